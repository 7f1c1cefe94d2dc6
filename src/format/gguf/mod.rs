//! GGUF v2 and v3, little endian: metadata, tensors and what they mean.

mod meta;
mod parse;
mod recipe;
mod rope;
mod types;
mod vocab;

pub use types::GgmlType;

pub(super) use parse::outline;
pub(super) use recipe::load;

/// Does the file look like GGUF?
pub(super) fn recognize(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GGUF")
}
