//! The loaders and the floors under them.
#[path = "../../src/format/mod.rs"]
pub mod format;
#[path = "../../src/matrix/mod.rs"]
pub mod matrix;
#[path = "../../src/mem.rs"]
pub mod mem;
#[path = "../../src/ternary/mod.rs"]
pub mod ternary;
