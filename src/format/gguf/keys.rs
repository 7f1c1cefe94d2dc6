//! Keys that reader and writer share.

use super::meta::Metadata;
use crate::format::LoadError;

/// Key of the architecture.
pub(super) const ARCHITECTURE: &str = "general.architecture";
/// Architecture of PrismML's first files.
pub(super) const OLD_DRAFTER: &str = "dspark";
/// Architectures of drafters.
pub(super) const DRAFTERS: [&str; 2] = ["dflash", OLD_DRAFTER];
/// Key of block-diffusion parameters, as JSON. Other programs ignore it.
pub(super) const DLM: &str = "wrinklefree.dlm_config";
/// Key of what the files state about the training.
pub(super) const TRAINING: &str = "wrinklefree.training";
/// Key of the activations that ternary matrices with one scale were trained with, `int8` or `int16`. Other
/// programs ignore it.
pub(super) const ACTIVATIONS: &str = "wrinklefree.activations";
/// Key of a flag: `general.sampling.*` has all that the model's authors state. Readers then add none of the
/// family's own parameters.
pub(super) const SAMPLING_STATED: &str = "wrinklefree.sampling_stated";

/// Number of blocks that draft tokens (multi-token prediction), if there are any.
pub(super) fn mtp_blocks(meta: &Metadata<'_>) -> Result<Option<usize>, LoadError> {
    Ok(meta.size("qwen35.nextn_predict_layers")?.filter(|&n| n > 0))
}
