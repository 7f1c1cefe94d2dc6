//! Our packed file: a safetensors file whose tensors stand in kernel layout, each on a 64-byte
//! boundary, in the order in which a forward pass reads them. Reading copies no matrix.
//!
//! `__metadata__` holds, as JSON: `spec`, `matrices` (kind and logical shape of each), `generation`,
//! `dlm`, `special_tokens`; and as text `chat_template`. The tokenizer is the tensor `tokenizer.json`.

mod read;
mod write;

pub(super) use read::{load, recognize};
pub use write::write;

use super::Activations;
use serde::{Deserialize, Serialize};

/// `format` in the metadata.
const FORMAT: &str = "wrinklefree";
/// `version` in the metadata of files with planes, and of those without, which older programs read too.
const PLANES: &str = "3";
const NO_PLANES: &str = "2";
/// Versions that are read; the first knew no tight layout.
const READ: [&str; 3] = ["1", NO_PLANES, PLANES];
/// The tensor with the tokenizer.
const TOKENIZER: &str = "tokenizer.json";
/// Tensors that only move the next one to a boundary.
const PADDING: &str = "padding.";
/// Boundary of the data of a tensor.
const ALIGN: usize = 64;

/// What the tensors of a matrix do not say themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    rows: usize,
    cols: usize,
    #[serde(flatten)]
    kind: EntryKind,
    /// Absent for embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    activations: Option<Activations>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum EntryKind {
    /// Codes in the tensor; one scale (an f32, which f64 holds exactly) or a tensor `.scales`.
    Ternary {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scale: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<usize>,
        /// Three codes in five bits.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tight: bool,
    },
    /// Values in the tensor, f32 in `.scales`.
    Int8 { group: usize },
    /// The plane of the upper four of so many bits (4, 6 or 8) in the tensor, that of the lower ones, if
    /// any, in `.low`; in `.scales` f32, or int8 parts of f32 in `.factors`.
    Planes { group: usize, bits: usize },
    /// Elements in the tensor, row-major.
    Float,
}
