//! The embedded model.

/// A packed model file.
pub use wrinklefree_model::DEFAULT as DEFAULT_MODEL;

/// Name of the model in output.
pub const DEFAULT_NAME: &str = "default";
