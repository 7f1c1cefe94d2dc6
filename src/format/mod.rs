//! Model files → one [`Checkpoint`]: what the model is, its weights and its text parts.

mod checkpoint;
mod spec;

pub use checkpoint::{
    Activations, Checkpoint, GenerationDefaults, GgufVocab, LayerWeights, Linear, TextParts,
    Vocabulary, Weights,
};
pub use spec::{Activation, Architecture, DlmConfig, Llama3Scaling, Rope, Spec};
