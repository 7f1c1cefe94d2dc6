//! Decoders and sampling.

mod sample;
pub use sample::{Choice, Sampled, Sampler, SamplingError, SamplingParams};
