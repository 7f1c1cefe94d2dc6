//! Directories of drafters: DFlash and DSpark.

use super::fields::{Config, need, unsupported};
use super::speculators;
use super::{CONFIG, HfSource, WANTED, find, json, list, tensors};
use crate::format::drafter::{
    DraftLayout, DrafterCheckpoint, DrafterConfig, DrafterScales, take_target_ids,
};
use crate::format::index::{File, TensorIndex};
use crate::format::numbers::NumberCheck;
use crate::format::recipe::{DraftRole, TensorNames, TensorRole, TensorSource, assemble_drafter};
use crate::format::{LoadError, LoadErrorKind as Kind};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Name of the tensor with the MASK token's embedding.
const MASK_ROW: &str = "mask_embedding";

/// Fields of `config.json` that only drafters have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DrafterFields {
    architectures: Vec<String>,
    block_size: Option<usize>,
    mask_token_id: Option<u32>,
    target_layer_ids: Option<Vec<usize>>,
    dflash_config: Option<Box<DrafterFields>>,
    dspark_config: Option<Box<DrafterFields>>,
    sample_from_anchor: Option<bool>,
    causal: Option<bool>,
    markov_head_type: Option<String>,
    enable_confidence_head: Option<bool>,
    log_snr_conditioning: Option<bool>,
    min_log_snr: Option<f64>,
    max_log_snr: Option<f64>,
    hyper_connection: Option<IgnoredAny>,
    draft_vocab_size: Option<usize>,
    embedding_scale: Option<f64>,
    logit_scale: Option<f64>,
    final_logit_softcapping: Option<f64>,
    conv_kernel_size: Option<usize>,
    selector_rank: Option<usize>,
}

impl DrafterFields {
    /// These fields, with those that are left out from the part of the drafter's kind.
    fn flat(mut self) -> Self {
        for inner in [self.dflash_config.take(), self.dspark_config.take()].into_iter().flatten() {
            self.block_size = self.block_size.or(inner.block_size);
            self.mask_token_id = self.mask_token_id.or(inner.mask_token_id);
            self.target_layer_ids = self.target_layer_ids.or(inner.target_layer_ids);
            self.sample_from_anchor = self.sample_from_anchor.or(inner.sample_from_anchor);
            self.causal = self.causal.or(inner.causal);
            self.markov_head_type = self.markov_head_type.or(inner.markov_head_type);
            self.enable_confidence_head =
                self.enable_confidence_head.or(inner.enable_confidence_head);
            self.log_snr_conditioning = self.log_snr_conditioning.or(inner.log_snr_conditioning);
            self.min_log_snr = self.min_log_snr.or(inner.min_log_snr);
            self.max_log_snr = self.max_log_snr.or(inner.max_log_snr);
            self.draft_vocab_size = self.draft_vocab_size.or(inner.draft_vocab_size);
            self.embedding_scale = self.embedding_scale.or(inner.embedding_scale);
            self.logit_scale = self.logit_scale.or(inner.logit_scale);
            self.final_logit_softcapping =
                self.final_logit_softcapping.or(inner.final_logit_softcapping);
            self.conv_kernel_size = self.conv_kernel_size.or(inner.conv_kernel_size);
            self.selector_rank = self.selector_rank.or(inner.selector_rank);
        }
        self
    }

    fn refuse_variants(&self, file: &str) -> Result<(), LoadError> {
        let known = |name: &&String| is_drafter(name);
        if !self.architectures.iter().any(|name| known(&name)) {
            let want = "`architectures` with DFlashDraftModel or Qwen3DSparkModel";
            let found = format!("{:?}", self.architectures);
            return Err(LoadError::new(Kind::UnsupportedArchitecture, file, want, found));
        }
        if let Some(other) = self.markov_head_type.as_ref().filter(|kind| *kind != "vanilla") {
            let want = "`markov_head_type` vanilla";
            return Err(unsupported(file, want, format!("`{other}`")));
        }
        if self.hyper_connection.is_some() {
            return Err(unsupported(file, "no `hyper_connection`", "hyper-connections"));
        }
        let convolved = self.conv_kernel_size.is_some() || self.selector_rank.is_some();
        if convolved || self.architectures.iter().any(|name| name.starts_with("DFlash2")) {
            let found = "the convolutions or the selector of DFlash2";
            return Err(unsupported(file, "a drafter of DFlash or DSpark", found));
        }
        Ok(())
    }

    /// Checks that a head of so many rows is as large as stated.
    fn check_reduced(&self, file: &str, rows: usize) -> Result<(), LoadError> {
        match self.draft_vocab_size.filter(|&size| size != rows) {
            None => Ok(()),
            Some(size) => {
                let want =
                    format!("`draft_vocab_size` {rows}, of the tensor `d2t` or the vocabulary");
                Err(unsupported(file, want, size.to_string()))
            }
        }
    }

    fn log_snr(&self, file: &str) -> Result<Option<(f64, f64)>, LoadError> {
        if self.log_snr_conditioning != Some(true) {
            return Ok(None);
        }
        let min = need(file, "min_log_snr", self.min_log_snr)?;
        Ok(Some((min, need(file, "max_log_snr", self.max_log_snr)?)))
    }
}

/// Returns true for the name of a class of drafters.
pub(super) fn is_drafter(class: &str) -> bool {
    class.contains("DFlash") || class.contains("DSpark")
}

/// Reads the files of a drafter's directory.
pub(in crate::format) fn load_drafter(
    files: Vec<File>,
    numbers: &mut NumberCheck<'_, '_, '_>,
) -> Result<DrafterCheckpoint, LoadError> {
    let Some(config_file) = find(&files, CONFIG) else {
        return Err(LoadError::new(Kind::NotAModel, "drafter", WANTED, list(&files)));
    };
    let name = config_file.name.clone();
    if let Some(file) = find(&files, "mask_embedding.pt") {
        let want = "the MASK token's embedding in a safetensors file";
        return Err(unsupported(&file.name, want, "a pickle, which may run code")
            .advice("save it as the tensor `mask_embedding` next to the other weights"));
    }
    let plain = speculators::flattened(config_file)?;
    let config_file = plain.as_ref().unwrap_or(config_file);
    let fields = json::parse::<DrafterFields>(config_file)?.flat();
    fields.refuse_variants(&name)?;
    let (config, windows) = json::parse::<Config>(config_file)?.drafter(&name)?;
    let mut spec = config.spec(&name)?;
    spec.check(&name)?;
    let (index, weights_file) = tensors(&files)?;
    let mut index = without_prefix(index)?;
    let stored_types = index.types();
    let (target_ids, mask_row) = (take_target_ids(&mut index, true)?, index.take(MASK_ROW));
    fields.check_reduced(&name, target_ids.as_ref().map_or(spec.vocab_size, Vec::len))?;
    drop(files);
    let mut source = HfSource {
        file: &weights_file,
        index,
        names: &TensorNames::HF_DRAFTER,
        architecture: spec.architecture,
        config: &config,
        quantization: None,
        adapter: None,
        numbers,
    };
    let has = |role| source.has(TensorRole::Draft(role));
    let (markov, confidence) = (has(DraftRole::MarkovPrevious), has(DraftRole::Confidence));
    if fields.enable_confidence_head == Some(true) && !confidence {
        source.expect(TensorRole::Draft(DraftRole::Confidence))?;
    }
    if confidence && !markov {
        let want = "a Markov head next to the confidence head";
        return Err(unsupported(&name, want, "a confidence head alone"));
    }
    let dspark = fields.architectures.iter().any(|class| class.contains("DSpark"));
    let stated = fields.sample_from_anchor.or(dspark.then_some(true));
    let layout = DraftLayout::concluded(stated, markov);
    let drafter = DrafterConfig {
        block: fields.block_size.unwrap_or(layout.usual_block()),
        mask: need(&name, "mask_token_id", fields.mask_token_id)?,
        taps: need(&name, "target_layer_ids", fields.target_layer_ids.clone())?,
        layout,
        layout_stated: stated.is_some(),
        causal: fields.causal.unwrap_or(false),
        log_snr: fields.log_snr(&name)?,
        windows,
        scales: DrafterScales::stated(
            fields.embedding_scale,
            fields.logit_scale,
            fields.final_logit_softcapping,
        ),
    };
    let mask_row = mask_row.map(|t| t.with_shape(vec![t.shape.iter().product()]));
    let mask_row = mask_row.map(|t| source.numbers.vector(&t, spec.hidden_size)).transpose()?;
    let (conditioned, parts) = (drafter.log_snr.is_some(), (target_ids, mask_row));
    let weights = assemble_drafter(&mut spec, conditioned, parts, &mut source)?;
    source.index.expect_empty(|name| name.ends_with("rotary_emb.inv_freq"))?;
    let checkpoint = DrafterCheckpoint { spec, config: drafter, weights, flushed: 0, stored_types };
    checkpoint.check(&name)?;
    Ok(checkpoint)
}

/// Drops the prefix `model.`, which some files have and others do not.
fn without_prefix(mut index: TensorIndex) -> Result<TensorIndex, LoadError> {
    let mut plain = TensorIndex::default();
    for mut tensor in index.drain() {
        if let Some(name) = tensor.name.strip_prefix("model.") {
            tensor.name = name.to_owned();
        }
        plain.insert(tensor)?;
    }
    Ok(plain)
}
