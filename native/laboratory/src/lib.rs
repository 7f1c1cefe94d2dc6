//! The measurements of `wf-run`: speed, numbers of threads, quality, and differences between models.
//!
//! [`commands`] has the commands `bench`, `tune`, `eval`, `compare` and `logits`. They stand on `bench`,
//! which measures speed, and `eval`, which measures quality. `wf-run convert` also counts and compares:
//! [`activation_stats`], [`logits`] and [`tensors`].

mod bench;
pub mod commands;
mod eval;

pub use eval::{activation_stats, finite, logits, tensors};
