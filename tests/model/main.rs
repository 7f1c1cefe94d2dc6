//! The forward pass: its numbers, which depend on a sequence's own tokens alone.

#[path = "../common/batching.rs"]
mod batching;
#[path = "../../benches/common/mod.rs"]
mod common;
mod finite;
mod forward;
mod golden;
mod golden_qwen35;
#[path = "../../benches/common/hybrid.rs"]
mod hybrid;
mod int8_activations;
mod kv;
mod layout;
mod linear_attention;
mod nemotron;
#[path = "../common/npy.rs"]
mod npy;
#[path = "../linear_attention/reference.rs"]
mod reference;
mod reorder;
mod screen;
