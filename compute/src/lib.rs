//! The lower floors of WrinkleFree, which compute: packed matrices, SIMD kernels and the thread
//! thread pool. A crate of its own for three reasons: `unsafe` lives here and nowhere above; it is optimized
//! for speed where a browser's module is optimized for size; and its tests build without the rest.
//!
//! Imports only point down: `kernel` → `matrix` → `ternary` → `loader` → `mem`, `par`, `rows`.

pub mod batch_types;
pub mod kernel;
pub mod loader;
pub mod matrix;
pub mod mem;
pub mod par;
pub mod ternary;
