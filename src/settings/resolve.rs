//! Resolves settings to a decode mode that the model can run.

use super::{Attention, Commit, Draft, Mode, Selector, Settings};
use crate::decode::{
    self, DecodeMode, DiffusionError, DiffusionParams, DraftNet, DraftNetKind, Drafter, Inside,
    Unmask,
};
use crate::format::DlmConfig;
use crate::text::Tokenizer;
use std::num::NonZeroUsize;

/// Default length of a draft.
const DRAFT: usize = 8;
/// Smallest and largest number of tokens that prompt lookup matches; one token says little.
const MATCHES: (usize, usize) = (2, 4);
/// Default size of a sub-block, if it divides the block.
const SUB_BLOCK: usize = 8;
/// Default confidence from which tokens are accepted.
const THRESHOLD: f32 = 0.9;
const FACTOR: f32 = 1.0;
/// Factor next to a threshold.
const SECOND_FACTOR: f32 = 2.0;
const ENTROPY_BOUND: f32 = 0.1;
const SLOTS_PER_PASS: usize = 2;

/// Properties of a model that decide how it can be decoded.
#[derive(Clone, Copy)]
pub struct ModelCapabilities<'a> {
    /// Name of the model in messages.
    pub name: &'a str,
    /// Block-diffusion parameters, if its files have any.
    pub dlm: Option<&'a DlmConfig>,
    /// Tokenizer of the model.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Largest number of rows in a forward pass; a block must fit.
    pub rows: usize,
    /// The net that drafts from its hidden states, if it has one
    /// ([`Model::draft_net`](crate::model::Model::draft_net)).
    pub draft_net: Option<DraftNet>,
}

/// Invalid settings, or settings that the model does not support. The message names the setting and
/// its valid values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl SettingsError {
    /// A stable name of the kind of error, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "bad_decoding_parameter"
    }
}

fn refuse(message: impl Into<String>) -> SettingsError {
    SettingsError(message.into())
}

impl Settings {
    /// Resolves the settings to the decode mode of a model.
    ///
    /// # Errors
    /// When a value is invalid, or the model does not support the mode.
    pub fn mode(&self, model: &ModelCapabilities<'_>) -> Result<DecodeMode, SettingsError> {
        self.check()?;
        let mode = match self.decode_mode.unwrap_or_default() {
            Mode::Auto => match model.dlm {
                // The default mode must work, so a missing MASK token is no error here.
                Some(dlm) if dlm.ar_path && !self.can_mask(model) => Mode::Ar,
                Some(dlm) if dlm.ar_path => Mode::Verify,
                Some(_) => Mode::Iterative,
                None if model.draft_net.is_some() || self.draft.is_some() => Mode::Verify,
                None => Mode::Ar,
            },
            mode => mode,
        };
        match mode {
            Mode::Ar | Mode::Auto => Ok(DecodeMode::Autoregressive),
            Mode::Verify => {
                Ok(DecodeMode::Verify { drafter: self.drafter(model)?, row_cost: self.row_cost })
            }
            Mode::Greedy | Mode::Iterative | Mode::Adaptive => {
                let params = self.diffusion(model, self.unmask(mode, model)?)?;
                params.check(model.vocab, model.rows).map_err(|e| match e {
                    DiffusionError::Rows { .. } => refuse(format!(
                        "{e}: use a smaller block_size, or decode_mode ar, which needs no blocks"
                    )),
                    e => refuse(e.to_string()),
                })?;
                Ok(DecodeMode::Diffusion(params))
            }
        }
    }

    /// Checks the range of each value.
    ///
    /// # Errors
    /// When a value is out of range; the error names the setting.
    pub fn check(&self) -> Result<(), SettingsError> {
        // NaN fails all of these.
        let above_0 = |x: f32| x > 0.0 && x < f32::INFINITY;
        let at_least_0 = |x: f32| (0.0..f32::INFINITY).contains(&x);
        let up_to_1 = |x: f32| x > 0.0 && x <= 1.0;
        let range =
            |key: &str, value: Option<f32>, fits: &dyn Fn(f32) -> bool, want: &str| match value
                .filter(|&x| !fits(x))
            {
                Some(x) => Err(refuse(format!("{key} must be {want}, but is {x}"))),
                None => Ok(()),
            };
        range("threshold", self.threshold, &up_to_1, "above 0 and at most 1")?;
        range("factor", self.factor, &above_0, "above 0")?;
        range("entropy_bound", self.entropy_bound, &at_least_0, "at least 0")?;
        range("row_cost", self.row_cost, &at_least_0, "at least 0")?;
        let share = |x: f32| (0.0..=1.0).contains(&x);
        range("draft_threshold", self.draft_threshold, &share, "from 0 to 1")?;
        let shift = self.logit_shift.map(f32::from);
        range("logit_shift", shift, &|x| x <= 1.0, "0 or 1")?;
        let positive = [
            ("slots_per_pass", self.slots_per_pass),
            ("block_size", self.block_size),
            ("small_block_size", self.small_block_size),
        ];
        match positive.iter().find(|(_, value)| *value == Some(0)) {
            Some((key, _)) => Err(refuse(format!("{key} must be at least 1, but is 0"))),
            None => Ok(()),
        }
    }

    /// Names of the settings that are set but only affect block diffusion.
    pub fn diffusion_keys(&self) -> Vec<&'static str> {
        let settings = [
            ("threshold", self.threshold.is_some()),
            ("selector", self.selector.is_some()),
            ("factor", self.factor.is_some()),
            ("entropy_bound", self.entropy_bound.is_some()),
            ("slots_per_pass", self.slots_per_pass.is_some()),
            ("block_size", self.block_size.is_some()),
            ("small_block_size", self.small_block_size.is_some()),
            ("block_attention", self.block_attention.is_some()),
            ("sub_block_cache", self.sub_block_cache.is_some()),
            ("commit", self.commit.is_some()),
        ];
        settings.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect()
    }

    /// Rule by which a pass of a diffusion mode unmasks slots.
    fn unmask(&self, mode: Mode, model: &ModelCapabilities<'_>) -> Result<Unmask, SettingsError> {
        let inclusive = model.dlm.is_some_and(|d| d.threshold_inclusive);
        let threshold = self.threshold.unwrap_or(THRESHOLD);
        let selector = self.selector.unwrap_or_default();
        let second = self.factor.unwrap_or(SECOND_FACTOR);
        match (mode, selector) {
            (Mode::Greedy | Mode::Adaptive, s) if s != Selector::Threshold => Err(refuse(
                "selector needs decode_mode iterative: greedy takes a whole block, and adaptive \
                 raises a threshold",
            )),
            (Mode::Greedy, _) => Ok(Unmask::All),
            (Mode::Adaptive, _) => Ok(Unmask::Rising(threshold)),
            (_, Selector::Threshold) if inclusive => Ok(Unmask::AtLeast(threshold)),
            (_, Selector::Threshold) => Ok(Unmask::Above(threshold)),
            (_, Selector::Margin) => Ok(Unmask::Margin(threshold)),
            (_, Selector::Factor) => Ok(Unmask::Factor(self.factor.unwrap_or(FACTOR))),
            (_, Selector::Entropy) => {
                Ok(Unmask::Entropy(self.entropy_bound.unwrap_or(ENTROPY_BOUND)))
            }
            (_, Selector::ThresholdFactor) => Ok(Unmask::ThresholdAndFactor(threshold, second)),
            (_, Selector::ThresholdOrFactor) => Ok(Unmask::ThresholdOrFactor(threshold, second)),
            (_, Selector::Product) => Ok(Unmask::Product(threshold)),
            (_, Selector::Topk) => Ok(Unmask::Top(self.slots_per_pass.unwrap_or(SLOTS_PER_PASS))),
        }
    }

    fn diffusion(
        &self,
        model: &ModelCapabilities<'_>,
        unmask: Unmask,
    ) -> Result<DiffusionParams, SettingsError> {
        let mask = self.mask(model)?;
        let Some(block) = self.block_size.or(model.dlm.map(|d| d.bd_size)) else {
            return Err(refuse(format!(
                "{} has no block size, so it may not be a block-diffusion model: \
                 set block_size if it is",
                model.name
            )));
        };
        let from_prompt = model.dlm.is_some_and(|d| d.blocks_from_prompt);
        let divides = block.is_multiple_of(SUB_BLOCK) && !from_prompt;
        let sub_block = if divides { SUB_BLOCK } else { block };
        Ok(DiffusionParams {
            block,
            sub_block: self.small_block_size.unwrap_or(sub_block),
            mask,
            unmask,
            inside: match self.block_attention.unwrap_or_default() {
                Attention::Bidirectional => Inside::Bidirectional,
                Attention::Causal => Inside::Causal,
            },
            clean_causal: model.dlm.is_some_and(|d| d.clean_attention == "causal"),
            shift: self.shift(model),
            sub_cache: self.sub_block_cache.unwrap_or(false),
            commit: match self.commit.unwrap_or_default() {
                Commit::Clean => decode::Commit::Clean,
                Commit::Fused => decode::Commit::Fused,
            },
            suffix: Vec::new(),
            from_prompt,
        })
    }

    fn shift(&self, model: &ModelCapabilities<'_>) -> bool {
        self.logit_shift.or(model.dlm.map(|d| d.logit_shift)) != Some(0)
    }

    fn drafter(&self, model: &ModelCapabilities<'_>) -> Result<Drafter, SettingsError> {
        let can = model.dlm.is_some() || self.mask_token_id.is_some();
        let default = match model.draft_net.map(|net| net.kind) {
            Some(DraftNetKind::Blocks) => Draft::Model,
            _ if can => Draft::Denoise,
            Some(DraftNetKind::Mtp) => Draft::Mtp,
            None => Draft::Ngram,
        };
        let draft = self.draft.unwrap_or(default);
        // A block that begins where the prompt ends was trained as the next token and the draft after it.
        let block = model.dlm.filter(|d| d.blocks_from_prompt && draft == Draft::Denoise);
        let longest = block.map_or(DRAFT, |d| (d.bd_size - 1).max(1));
        let length = self.draft_length.map_or(longest, NonZeroUsize::get);
        match draft {
            Draft::Mtp => self.net(model, DraftNetKind::Mtp).ok_or_else(|| {
                refuse(format!(
                    "draft mtp: {} has no block for multi-token prediction, or it was loaded without \
                     it: use draft ngram, or load the model with draft mtp",
                    model.name
                ))
            }),
            Draft::Model => {
                let drafter = self.net(model, DraftNetKind::Blocks).ok_or_else(|| {
                    refuse(format!(
                        "draft model: {} was loaded without a drafter: set draft_model to its files",
                        model.name
                    ))
                })?;
                match drafter {
                    Drafter::Net { net, .. } if self.draft_threshold.is_some() && !net.confident => {
                        Err(refuse(
                            "draft_threshold needs a drafter with a confidence head, and this one \
                             has none",
                        ))
                    }
                    drafter => Ok(drafter),
                }
            }
            Draft::Ngram => Ok(Drafter::Ngram { length, matches: MATCHES }),
            Draft::Denoise => {
                Ok(Drafter::Denoise { length, mask: self.mask(model)?, shift: self.shift(model) })
            }
        }
    }

    /// The model's net of this kind as the drafter, if it has one. A drafter's block is as long as it was
    /// trained, unless the settings ask for less.
    fn net(&self, model: &ModelCapabilities<'_>, kind: DraftNetKind) -> Option<Drafter> {
        let net = model.draft_net.filter(|net| net.kind == kind)?;
        let usual = if kind == DraftNetKind::Blocks { net.longest } else { DRAFT };
        let length = self.draft_length.map_or(usual, NonZeroUsize::get);
        Some(Drafter::Net { length, net, threshold: self.draft_threshold.unwrap_or(0.0) })
    }

    /// Warnings about assumptions of a mode that was resolved from these settings.
    pub fn warnings(&self, model: &ModelCapabilities<'_>, mode: &DecodeMode) -> Vec<String> {
        let mut warnings = Vec::new();
        let masks = match mode {
            DecodeMode::Verify { drafter, .. } => {
                if model.dlm.is_some_and(|d| !d.ar_path) {
                    warnings.push(format!(
                        "{} may have no trained autoregressive path, but `verify` gives its text",
                        model.name
                    ));
                }
                matches!(drafter, Drafter::Denoise { .. })
            }
            mode => matches!(mode, DecodeMode::Diffusion(_)),
        };
        if let (true, Ok((id, Some(text)))) = (masks, self.find_mask(model)) {
            warnings.push(format!(
                "the model's files name no MASK token: using {text:?} ({id}); \
                 set mask_token_id for another one"
            ));
        }
        warnings
    }

    /// Returns true if a MASK token is set or found.
    fn can_mask(&self, model: &ModelCapabilities<'_>) -> bool {
        self.mask_token_id.is_some() || self.find_mask(model).is_ok()
    }

    /// Id of the MASK token.
    fn mask(&self, model: &ModelCapabilities<'_>) -> Result<u32, SettingsError> {
        Ok(self.find_mask(model)?.0)
    }

    /// Finds the MASK token in the settings, the model's files or its tokenizer. Also returns its text
    /// if it is a guess.
    fn find_mask(
        &self,
        model: &ModelCapabilities<'_>,
    ) -> Result<(u32, Option<String>), SettingsError> {
        let &ModelCapabilities { dlm, tokenizer, vocab, name, .. } = model;
        let known = self.mask_token_id.or_else(|| dlm.and_then(|d| d.mask_token_id));
        if let Some(id) = known.or_else(|| tokenizer.and_then(|t| t.id("|<MASK>|"))) {
            return if (id as usize) < vocab {
                Ok((id, None))
            } else {
                Err(refuse(format!("mask_token_id {id} is outside the vocabulary of {vocab}")))
            };
        }
        match tokenizer.and_then(|t| guess(t, vocab)) {
            Some((id, text)) => Ok((id, Some(text))),
            None => Err(refuse(format!(
                "{name} has no MASK token, so it may not be a block-diffusion model: \
                 use decode_mode ar, or set mask_token_id if it has one"
            ))),
        }
    }
}

/// Describes a mode in a few words.
pub fn describe(mode: &DecodeMode) -> String {
    let params = match mode {
        DecodeMode::Autoregressive => return "ar".into(),
        DecodeMode::Embed(_) => return "embed".into(),
        DecodeMode::Logits => return "logits".into(),
        DecodeMode::Verify { drafter, row_cost } => {
            let source = match drafter {
                Drafter::Ngram { .. } => "ngram",
                Drafter::Denoise { .. } => "denoise",
                Drafter::Net { net: DraftNet { kind: DraftNetKind::Mtp, .. }, .. } => "mtp",
                Drafter::Net { .. } => "model",
            };
            let cost = row_cost.map(|c| format!(", row cost {c}")).unwrap_or_default();
            return format!("verify, {source}{cost}");
        }
        DecodeMode::Diffusion(params) => params,
    };
    let mut text = match params.unmask {
        Unmask::All => "greedy".into(),
        Unmask::Above(t) | Unmask::AtLeast(t) => format!("iterative {t}"),
        Unmask::Rising(t) => format!("adaptive {t}"),
        Unmask::Margin(t) => format!("iterative, margin {t}"),
        Unmask::Factor(f) => format!("iterative, factor {f}"),
        Unmask::ThresholdAndFactor(t, f) => format!("iterative {t} and factor {f}"),
        Unmask::ThresholdOrFactor(t, f) => format!("iterative {t} or factor {f}"),
        Unmask::Product(t) => format!("iterative, product {t}"),
        Unmask::Entropy(bound) => format!("iterative, entropy {bound}"),
        Unmask::Top(n) => format!("iterative, {n} per pass"),
    };
    for (applies, suffix) in [
        (params.inside == Inside::Causal, ", causal"),
        (params.sub_cache, ", sub-block cache"),
        (params.commit == decode::Commit::Fused, ", fused"),
    ] {
        text += if applies { suffix } else { "" };
    }
    text
}

/// Guesses the MASK token: the last special token whose text contains "mask".
fn guess(tokenizer: &Tokenizer, vocab: usize) -> Option<(u32, String)> {
    let ids = (0..u32::try_from(vocab).ok()?).rev().filter(|&id| tokenizer.is_special(id));
    ids.filter_map(|id| Some((id, tokenizer.token(id)?)))
        .find(|(_, text)| text.to_lowercase().contains("mask"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_drafts_is_chosen_where_there_is_one_and_nothing_else_is_asked_for() {
        let plain = ModelCapabilities {
            name: "m",
            dlm: None,
            tokenizer: None,
            vocab: 9,
            rows: 64,
            draft_net: None,
        };
        let net = DraftNet::mtp(0.25);
        let with = ModelCapabilities { draft_net: Some(net), ..plain };
        let settings = |decode_mode, draft| Settings { decode_mode, draft, ..Settings::default() };
        let described = |settings: &Settings, model| settings.mode(model).map(|m| describe(&m));
        for (mode, draft, without_block, with_block, loads) in [
            (None, None, Ok("ar"), "verify, mtp", true),
            (Some(Mode::Auto), None, Ok("ar"), "verify, mtp", true),
            (None, Some(Draft::Mtp), Err(()), "verify, mtp", true),
            (Some(Mode::Verify), None, Ok("verify, ngram"), "verify, mtp", true),
            (Some(Mode::Verify), Some(Draft::Ngram), Ok("verify, ngram"), "verify, ngram", false),
            (None, Some(Draft::Ngram), Ok("verify, ngram"), "verify, ngram", false),
            (Some(Mode::Ar), None, Ok("ar"), "ar", false),
        ] {
            let settings = settings(mode, draft);
            assert_eq!(described(&settings, &plain).map_err(|_| ()), without_block.map(Into::into));
            assert_eq!(described(&settings, &with), Ok(with_block.into()));
            assert_eq!(settings.may_use_mtp(), loads, "{settings:?}");
        }
        let length = NonZeroUsize::new(3);
        let settings = Settings { draft_length: length, ..settings(None, None) };
        let drafter = Drafter::Net { length: 3, net, threshold: 0.0 };
        assert_eq!(settings.mode(&with), Ok(DecodeMode::Verify { drafter, row_cost: None }));
    }
}
