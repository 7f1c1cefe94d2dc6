//! The model inside the program. To swap it, replace the file (made with `wf-run convert`).

/// A packed model file; empty in a build without one.
pub static DEFAULT_MODEL: &[u8] = include_bytes!("../../models/default.wf.safetensors");

/// What the model is called in output.
pub const DEFAULT_NAME: &str = "default";
