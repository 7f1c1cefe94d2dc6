//! From the outputs of the engine to whole and streamed answers.

pub mod aside;
pub mod generation;
pub mod loading;
pub mod logprobs;
pub mod stream;
pub mod validation;
