//! Models: finding their files on disk or on the hub, opening them, and what a shell needs around
//! them (grammars, chat prompts, an engine for one sequence).
//!
//! Nothing here prints: warnings are returned as values, and [`Progress`] is told of slow steps.

pub mod chat_prompt;
#[cfg(feature = "default-model")]
pub mod default_model;
mod drafter;
pub mod engine;
mod error;
pub mod fit;
#[cfg(feature = "grammar")]
pub mod grammar;
#[cfg(feature = "hub")]
mod hub;
mod loaded;
pub mod mapped;
mod model_files;
mod options;
pub mod pass_costs;
mod progress;
pub mod rope_scaling;
mod source;
#[cfg(feature = "hub")]
pub mod store;
mod synthetic;
pub mod weight_sizes;

pub use drafter::{DrafterOptions, OpenedDrafter};
pub use error::{NoTokenizer, OpenError};
pub use loaded::{Loaded, Opened, OpenedWeights, checkpoint, tokenizer};
pub use options::{ActivationBits, LayoutChoice, Logits, OpenOptions};
pub use progress::Progress;
pub use source::Placement;
pub use synthetic::{DrafterType, Synthetic};
