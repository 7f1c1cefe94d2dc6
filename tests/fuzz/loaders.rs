//! The loaders, the text floor, and what is under them.
#[path = "../../src/format/mod.rs"]
pub mod format;
#[path = "../../src/matrix/mod.rs"]
pub mod matrix;
#[path = "../../src/mem.rs"]
pub mod mem;
#[path = "../../src/ternary/mod.rs"]
pub mod ternary;
#[path = "../../src/text/mod.rs"]
pub mod text;
