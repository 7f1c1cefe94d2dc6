//! The measurements of `wf-run eval`.

pub mod activation_stats;
pub mod activations;
pub mod agreement;
pub mod coherence;
pub mod kv;
pub mod perplexity;
pub mod prompts;
pub mod quality;
pub mod rows;
