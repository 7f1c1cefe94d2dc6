//! The packed file: a safetensors file whose tensors are in kernel layout. Each tensor starts on a
//! 64-byte boundary, and their order is that of a forward pass. Reading copies no matrix.
//!
//! `__metadata__` holds as JSON: `spec`, `matrices` (kind and logical shape of each), `rotations` (their
//! block sizes; signs are the tensors `rotation.N.signs`), `generation`, `dlm` and `special_tokens`; and
//! as text: `chat_template` and `tool_template`. The tokenizer is the tensor `tokenizer.json`.

mod read;
mod write;

pub(super) use read::{load, recognize};
pub use write::write;

use super::Activations;
use serde::{Deserialize, Serialize};

/// `format` in the metadata.
const FORMAT: &str = "wrinklefree";
/// `version` in the metadata, by the first feature that a file has: one-bit matrices, a block that drafts
/// tokens, group scales in the tight layout, rotated matrices or linear attention, planes, none. Older
/// programs read older versions.
const VERSION_ONE_BIT: &str = "7";
const VERSION_MTP: &str = "6";
const VERSION_TIGHT_GROUPS: &str = "5";
const VERSION_ROTATIONS: &str = "4";
const VERSION_PLANES: &str = "3";
const VERSION_NO_PLANES: &str = "2";
/// Versions that are read; version 1 has no tight layout.
const READABLE_VERSIONS: [&str; 7] = [
    "1",
    VERSION_NO_PLANES,
    VERSION_PLANES,
    VERSION_ROTATIONS,
    VERSION_TIGHT_GROUPS,
    VERSION_MTP,
    VERSION_ONE_BIT,
];
/// Name of the tensor with the tokenizer.
const TOKENIZER: &str = "tokenizer.json";
/// Name prefix of tensors that pad the next one to a boundary.
const PADDING: &str = "padding.";
/// Name prefix of the tensors of a block that drafts tokens.
const MTP: &str = "mtp.";
/// Alignment of a tensor's data, in bytes.
const ALIGN: usize = 64;

/// Metadata of a matrix that its tensors do not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MatrixEntry {
    rows: usize,
    cols: usize,
    #[serde(flatten)]
    kind: MatrixKind,
    /// Absent for embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    activations: Option<Activations>,
    /// Index of the rotation in `rotations`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rotation: Option<usize>,
}

/// A rotation, without its signs.
#[derive(Serialize, Deserialize)]
struct RotationEntry {
    block: usize,
    /// Number of signs; absent if all are 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signs: Option<usize>,
}

/// Name of the tensor with the signs of a rotation.
fn signs_name(rotation: usize) -> String {
    format!("rotation.{rotation}.signs")
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum MatrixKind {
    /// The tensor holds codes. Scales are one f32 (which f64 holds exactly) or a tensor `.scales`.
    Ternary {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scale: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<usize>,
        /// True for the tight layout: three codes in five bits.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tight: bool,
    },
    /// The tensor holds signs in the one-bit layout, and `.scales` an f16 for each 128 columns.
    #[serde(rename = "one-bit")]
    OneBit,
    /// The tensor holds values, and `.scales` their f32 scales.
    Int8 { group: usize },
    /// Values of 4, 6 or 8 bits. The tensor holds the upper four bits, `.low` the lower ones, if any.
    /// `.scales` holds f32 scales, or int8 factors of the f32 values in `.factors`.
    Planes { group: usize, bits: usize },
    /// The tensor holds elements, row-major.
    Float,
}
