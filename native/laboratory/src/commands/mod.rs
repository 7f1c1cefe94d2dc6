//! The commands that measure, a module each with `Args` and `run`.

pub mod bench;
pub mod compare;
pub mod eval;
pub mod logits;
pub mod tune;
