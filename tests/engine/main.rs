//! The engine: requests, decoders and samplers.

mod agents;
#[path = "../../benches/common/mod.rs"]
mod common;
mod diffusion;
mod drafter;
mod drafter_reference;
mod drafter_shares;
#[path = "../../benches/common/hybrid.rs"]
mod hybrid;
mod mtp;
mod nemotron;
#[path = "../common/diffusion.rs"]
mod parameters;
mod prompt_rows;
#[path = "../linear_attention/reference.rs"]
mod reference;
mod requests;
mod samplers;
mod sampling;
mod saved_prefix;
mod shift;
mod snapshots;
mod transcripts;
mod verify;
