//! Decoders and sampling.

mod sample;
pub use sample::{Sampled, Sampler, SamplingParams};
