//! Configuration and tensors of Nemotron-Labs-Diffusion.

use super::fields::{Config, need, unsupported};
use crate::format::{DlmConfig, LoadError, LoadErrorKind as Kind, RopeScaling, Spec};
use serde_json::{Map, Value};

/// Model type of the family.
pub(super) const MODEL_TYPE: &str = "nemotron_labs_diffusion";
/// Class of the family.
pub(super) const CLASS: &str = "NemotronLabsDiffusionModel";
/// Class of the research model that came before it.
const PREDECESSOR: &str = "DiffEncoderModel";
/// Training in both directions inside a block, and causally.
const BIDIRECTIONAL: &str = "bidirectional";
/// Causal training alone.
const AUTOREGRESSIVE: &str = "autoregressive";

impl Config {
    /// Refuses the predecessor of the family, which other fields than the model type tell.
    pub(super) fn refuse_predecessor(&self, file: &str) -> Result<(), LoadError> {
        if !self.has_class(PREDECESSOR) {
            return Ok(());
        }
        let want = format!("`{CLASS}` in `architectures`");
        let found = format!("`{PREDECESSOR}`");
        Err(LoadError::new(Kind::UnsupportedArchitecture, file, want, found)
            .advice("it is a research predecessor of Nemotron-Labs-Diffusion"))
    }

    /// Checks the fields that the family needs.
    pub(super) fn check_nemotron(&self, file: &str, spec: &Spec) -> Result<(), LoadError> {
        let paradigm = self.dlm_paradigm.as_deref().unwrap_or(BIDIRECTIONAL);
        if ![BIDIRECTIONAL, AUTOREGRESSIVE].contains(&paradigm) {
            let want = format!("`dlm_paradigm` {BIDIRECTIONAL} or {AUTOREGRESSIVE}");
            return Err(unsupported(file, want, format!("`{paradigm}`"))
                .advice("other paradigms of Nemotron-Labs-Diffusion decode in another way"));
        }
        let yarn = matches!(spec.rope.scaling, Some(RopeScaling::Yarn(_)));
        let beta = self.query_beta().filter(|_| yarn);
        need(file, "llama_4_scaling_beta of RoPE scaling yarn", beta)?;
        need(file, "mask_token_id", self.mask_token_id)?;
        need(file, "block_size", self.block_size).map(|_| ())
    }

    /// Parameters of block diffusion; `None` for a model that was trained causally alone.
    pub(super) fn nemotron_dlm(&self) -> Option<DlmConfig> {
        if self.is_causal_alone() {
            return None;
        }
        Some(DlmConfig {
            bd_size: self.block_size?,
            mask_token_id: self.mask_token_id,
            ar_path: true,
            clean_attention: "causal".into(),
            logit_shift: 0,
            logit_shift_assumed: false,
            blocks_from_prompt: true,
            threshold_inclusive: true,
        })
    }

    /// A remark on a model that was trained causally alone.
    pub(super) fn nemotron_note(&self) -> Option<String> {
        let causal = self.nemotron() && self.is_causal_alone();
        causal.then(|| {
            format!("`dlm_paradigm` {AUTOREGRESSIVE}: the model is decoded token by token, not in blocks")
        })
    }

    fn is_causal_alone(&self) -> bool {
        self.dlm_paradigm.as_deref() == Some(AUTOREGRESSIVE)
    }
}

/// Returns true for tensors that change nothing here: scales of 8-bit keys and values.
pub(super) fn ignored(name: &str) -> bool {
    [".k_scale", ".v_scale"].iter().any(|end| name.ends_with(end))
}

/// The family's fields of `config.json`.
pub(super) fn fields(dlm: Option<&DlmConfig>) -> Map<String, Value> {
    let mut fields = Map::new();
    let paradigm = if dlm.is_some() { BIDIRECTIONAL } else { AUTOREGRESSIVE };
    fields.insert("dlm_paradigm".into(), paradigm.into());
    if let Some(dlm) = dlm {
        fields.insert("block_size".into(), dlm.bd_size.into());
        fields.insert("mask_token_id".into(), dlm.mask_token_id.into());
    }
    fields
}
