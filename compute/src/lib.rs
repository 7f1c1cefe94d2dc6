//! The lower floors of WrinkleFree, which compute: packed matrices, SIMD kernels and the thread
//! team. A crate of its own for three reasons: `unsafe` lives here and nowhere above; it is optimised
//! for speed where a browser's module is optimised for size; and its tests build without the rest.
//!
//! Imports only point down: `kernel` → `matrix` → `ternary` → `carry` → `mem`, `par`, `rows`.

pub mod carry;
pub mod kernel;
pub mod matrix;
pub mod mem;
pub mod par;
pub mod rows;
pub mod ternary;
