//! Model files → one [`Checkpoint`]: what the model is, its weights and its text parts.
//!
//! Containers (`safetensors`, `gguf`) become an [`Index`] of tensors without copying them; the
//! recipe gives each tensor its part in the model; `codec` turns foreign layouts into ours. Every
//! byte is untrusted: what is wrong is a [`LoadError`], never a panic, and allocations are bounded
//! by a small multiple of what the file really holds.

mod arrival;
mod check;
mod checkpoint;
pub mod codec;
mod error;
mod gguf;
mod hf;
mod index;
mod linear;
mod load;
mod packed;
mod pieces;
mod recipe;
mod reorder;
mod safetensors;
mod spec;

pub use arrival::{Arrival, NoMemory};
pub use checkpoint::{
    Activations, Checkpoint, GenerationDefaults, GgufVocab, LayerWeights, Linear, TextParts,
    Vocabulary, Weights,
};
pub use error::{LoadError, LoadErrorKind};
pub use gguf::GgmlType;
pub use index::{DType, File, Index, Tensor};
pub use linear::HeadType;
pub use load::load;
pub use packed::write as write_packed;
pub use pieces::Pieces;
pub use reorder::ReorderError;
pub use spec::{
    Activation, Architecture, DlmConfig, Llama3Scaling, Rope, RopeScaling, Spec, YarnScaling,
};
