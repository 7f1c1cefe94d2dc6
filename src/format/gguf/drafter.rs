//! GGUF files of drafters: the architecture `dflash`, and the older `dspark`.

use super::hadamard::Rotations;
use super::keys::{ARCHITECTURE, DRAFTERS, OLD_DRAFTER};
use super::meta::Metadata;
use super::parse::{Tensors, parse};
use super::recipe::{GgufSource, narrow};
use super::spec::{Keys, spec};
use crate::format::codec::RowOrder;
use crate::format::drafter::{
    DraftLayout, DrafterCheckpoint, DrafterConfig, DrafterScales, take_target_ids,
};
use crate::format::index::File;
use crate::format::numbers::NumberCheck;
use crate::format::recipe::{DraftRole, TensorNames, TensorRole, TensorSource, assemble_drafter};
use crate::format::{LoadError, LoadErrorKind as Kind};

/// Reads a GGUF file with a drafter.
pub(in crate::format) fn load_drafter(
    files: Vec<File>,
    numbers: &mut NumberCheck<'_, '_, '_>,
) -> Result<DrafterCheckpoint, LoadError> {
    let count = files.len();
    let Some(file) = files.into_iter().next().filter(|_| count == 1) else {
        let found = format!("{count} files");
        return Err(LoadError::new(Kind::NotAModel, "drafter", "one GGUF file", found));
    };
    let (name, head) = (file.name, file.bytes.first());
    let (meta, Tensors { mut index, .. }) = parse(&name, &head, file.bytes)?;
    let arch = meta.need(ARCHITECTURE, meta.text(ARCHITECTURE)?)?;
    if !DRAFTERS.contains(&arch) {
        let want = format!("`{ARCHITECTURE}` to be dflash or dspark: a drafter");
        let found = format!("`{arch}`");
        return Err(LoadError::new(Kind::UnsupportedArchitecture, &name, want, found));
    }
    let stored_types = index.types();
    let target_ids = take_target_ids(&mut index, false)?;
    narrow(&mut index)?;
    let mut spec = spec(&meta, &mut index)?;
    // A drafter that borrows everything has no vocabulary of its own.
    let known = spec.vocab_size;
    spec.vocab_size = known.max(1);
    spec.check(&name)?;
    let rotations = Rotations::read(&meta, &mut spec, &index)?;
    spec.vocab_size = known;
    let mut source = GgufSource {
        file: &name,
        index,
        names: if arch == OLD_DRAFTER { &TensorNames::GGUF_DSPARK } else { &TensorNames::GGUF },
        order: RowOrder::Same,
        architecture: spec.architecture,
        int8: Some(false),
        rotations,
        numbers,
    };
    let has = |role| source.has(TensorRole::Draft(role));
    let (markov, confidence) = (has(DraftRole::MarkovPrevious), has(DraftRole::Confidence));
    let keys = Keys { meta: &meta, arch };
    let windows = windows(&keys, spec.layers)?;
    let config = DrafterConfig { windows, ..config(&keys, markov, confidence)? };
    let (conditioned, parts) = (config.log_snr.is_some(), (target_ids, None));
    let weights = assemble_drafter(&mut spec, conditioned, parts, &mut source)?;
    source.index.expect_empty(|_| false)?;
    let checkpoint = DrafterCheckpoint { spec, config, weights, flushed: 0, stored_types };
    checkpoint.check(&name)?;
    Ok(checkpoint)
}

/// Reads how a drafter drafts. It has the heads that are there.
fn config(keys: &Keys<'_>, markov: bool, confidence: bool) -> Result<DrafterConfig, LoadError> {
    let old = keys.arch == OLD_DRAFTER;
    // The old files have the prefix twice.
    let own = |name: &str| if old { keys.key(&keys.key(name)) } else { keys.key(name) };
    let meta = keys.meta;
    for name in ["conv_kernel_size", "selector_rank"] {
        if let Some(n) = meta.size(&own(name))?.filter(|&n| n > 0) {
            let want = format!("no `{}`, which DFlash2 has", own(name));
            return Err(keys.error(Kind::UnsupportedFeature, want, n));
        }
    }
    let stated = meta.bool(&own("has_confidence_head"))?;
    if (stated == Some(true) || confidence) && !markov {
        let want = "a Markov head next to the confidence head";
        return Err(keys.error(Kind::UnsupportedFeature, want, "a confidence head alone"));
    }
    if stated == Some(true) && !confidence {
        let want = "the tensors of the confidence head, which the file states";
        return Err(keys.error(Kind::Missing, want, "no such tensors"));
    }
    let log_snr = match meta.bool(&own("log_snr_conditioning"))? {
        Some(true) => {
            let bound = |name: &str| meta.need(&own(name), meta.float(&own(name))?);
            Some((bound("min_log_snr")?, bound("max_log_snr")?))
        }
        _ => None,
    };
    let stated = meta.bool(&own("sample_from_anchor"))?.or(old.then_some(true));
    let layout = DraftLayout::concluded(stated, markov);
    let mask = meta.id("tokenizer.ggml.mask_token_id")?;
    let mask = if old { meta.id(&own("mask_token_id"))?.or(mask) } else { mask };
    Ok(DrafterConfig {
        block: meta.size(&own("block_size"))?.unwrap_or(layout.usual_block()),
        mask: meta.need("tokenizer.ggml.mask_token_id", mask)?,
        taps: taps(meta, &own("target_layers"), old)?,
        layout,
        layout_stated: stated.is_some(),
        causal: meta.bool(&keys.key("attention.causal"))?.unwrap_or(false),
        log_snr,
        windows: Vec::new(),
        scales: DrafterScales::stated(
            meta.float(&own("embedding_scale"))?,
            meta.float(&own("logit_scale"))?,
            meta.float(&own("final_logit_softcapping"))?,
        ),
    })
}

/// Reads the windows of layers: all have one, or those that the pattern names.
fn windows(keys: &Keys<'_>, layers: usize) -> Result<Vec<Option<usize>>, LoadError> {
    let Some(window) = keys.meta.size(&keys.key("attention.sliding_window"))?.filter(|&n| n > 0)
    else {
        return Ok(Vec::new());
    };
    let key = keys.key("attention.sliding_window_pattern");
    let pattern = keys.meta.bools(&key)?.unwrap_or_else(|| vec![true; layers]);
    if pattern.len() != layers {
        let want = format!("`{key}` with a truth value for each of {layers} layers");
        return Err(keys.error(Kind::Value, want, pattern.len()));
    }
    Ok(pattern.into_iter().map(|windowed| windowed.then_some(window)).collect())
}

/// Layers whose hidden states are read. Files of `dflash` name the layer after each.
fn taps(meta: &Metadata<'_>, key: &str, old: bool) -> Result<Vec<usize>, LoadError> {
    let listed = meta.need(key, meta.integers(key, true)?)?;
    let from = i64::from(!old);
    let tap = |&id: &i64| usize::try_from(id - from).ok();
    listed.iter().map(tap).collect::<Option<_>>().ok_or_else(|| {
        let want = format!("`{key}` with layers from {from}");
        LoadError::new(Kind::Value, meta.file, want, format!("{listed:?}"))
    })
}
