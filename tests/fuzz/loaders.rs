//! The loaders, the text layer, and what is under them.
#[path = "../../src/format/mod.rs"]
pub mod format;
#[path = "../../src/text/mod.rs"]
pub mod text;

pub use wrinklefree_compute::{kernel, loader, matrix, mem, ternary};
