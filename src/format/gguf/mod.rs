//! Reader of little-endian GGUF files, versions 2 and 3.

mod drafter;
mod hadamard;
mod keys;
mod meta;
mod parse;
mod recipe;
mod rope;
mod spec;
mod split;
mod type_ids;
pub(super) mod types;
mod vocab;
mod write;

pub use types::GgmlType;
pub use write::{GgufFile, GgufOptions, GgufTokenizer};

pub(super) use drafter::load_drafter;
pub(super) use parse::scan_header;
pub(super) use recipe::load;

/// Returns true if the bytes start with GGUF's magic.
pub(super) fn recognize(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GGUF")
}
