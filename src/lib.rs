//! WrinkleFree: ternary (BitNet b1.58, weights in {-1, 0, +1}) language models on ordinary CPUs.
//!
//! The modules are floors; imports only point down (`tests/house.rs` holds them to it):
//! `settings`, `engine` → `model`, `decode`, `text` → `cache`, `format` → `kernel` → `matrix` →
//! `ternary` → `loader` → `mem`, `par`, `rows`; from `kernel` down they are the crate `wrinklefree-compute`. The
//! core reads no file, clock, socket or environment variable: the shells (`wf-run`, the npm package)
//! bring bytes and time.
#![forbid(unsafe_code)]

pub mod cache;
pub mod decode;
pub mod engine;
pub mod format;
pub mod model;
pub mod settings;
pub mod text;

pub use wrinklefree_compute::{batch_types, kernel, loader, matrix, mem, par, ternary};
