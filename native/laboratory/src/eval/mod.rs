//! The measurements of `wf-run eval`.

pub mod activation_stats;
pub mod activations;
pub mod agreement;
pub mod coherence;
pub mod kv;
pub mod logits;
pub mod perplexity;
pub mod prompts;
pub mod quality;
pub mod rows;
pub mod tensors;

use wf_run_cli::exit::Exit;
use wrinklefree::model::Logits;

/// Returns the logits of a pass.
///
/// # Errors
/// If the model computed a number that is not finite.
pub fn finite(logits: Logits<'_>) -> Result<Logits<'_>, Exit> {
    if logits.any_is_failed() { Err(Exit::NotFinite) } else { Ok(logits) }
}
