//! Loads model files into one [`Checkpoint`]: the model's shape, its weights and its text parts.
//!
//! [`load`] recognizes files by their content. A container (`safetensors`, `gguf`) becomes a
//! [`TensorIndex`] of named tensors, which are views into the file. `recipe` gives each tensor its
//! role in the model, and [`codec`] converts foreign weight layouts into the kernels' own. Every byte
//! is untrusted: a bad file gives a [`LoadError`], never a panic. Allocations are bounded by a small
//! multiple of the file's size.
//!
//! ```
//! use wrinklefree::format::{Architecture, File, load};
//!
//! let bytes: &'static [u8] = include_bytes!("../../models/default.wf.safetensors");
//! let checkpoint = load(vec![File { name: "default.wf.safetensors".into(), bytes: bytes.into() }])?;
//! assert_eq!(checkpoint.weights.layers.len(), checkpoint.spec.layers);
//! assert!(checkpoint.text.vocabulary.is_some());
//!
//! let error = load(vec![File { name: "empty.gguf".into(), bytes: Vec::new().into() }]).unwrap_err();
//! assert_eq!(error.code(), "not_a_model");
//! # Ok::<(), wrinklefree::format::LoadError>(())
//! ```

mod check;
mod checkpoint;
pub mod codec;
mod drafter;
mod error;
mod export;
mod families;
mod file_bytes;
mod gguf;
mod hf;
mod index;
mod linear;
mod load;
mod mixer;
mod numbers;
mod packed;
mod recipe;
mod reorder;
mod rotation;
mod safetensors;
mod spec;
mod streamed_file;
mod value_order;

pub use checkpoint::{
    Activations, AttentionWeights, Checkpoint, GenerationDefaults, GgufVocab, LayerWeights, Linear,
    LinearAttentionWeights, LowRank, Mixer, MtpWeights, TextParts, Vocabulary, Weights,
};
pub use drafter::{
    DraftLayout, DrafterCheckpoint, DrafterConfig, DrafterScales, DrafterWeights, MarkovWeights,
};
pub use error::{LoadError, LoadErrorKind};
pub use export::ExportError;
pub use file_bytes::FileBytes;
pub use gguf::{GgmlType, GgufFile, GgufOptions, GgufTokenizer};
pub use hf::HfDirectory;
pub use index::{DType, File, Tensor, TensorIndex};
pub use linear::HeadType;
pub use load::{LoadOptions, load, load_drafter, load_with};
pub use mixer::{LinearAttention, MixerKind, ValueOrder};
pub use packed::write as write_packed;
pub use reorder::ReorderError;
pub use rotation::Rotation;
pub use spec::{
    Activation, Architecture, DlmConfig, Llama3Scaling, LongRopeScaling, Rope, RopeScaling,
    ScaleFactors, Spec, TrainingStatement, YarnScaling,
};
pub use streamed_file::{NoMemory, StreamedFile};
