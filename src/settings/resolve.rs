//! From what the user says about decoding to a mode that the model can run.

use super::{Attention, Commit, Draft, Mode, Selector, Settings};
use crate::decode::{self, DecodeMode, DiffusionError, DiffusionParams, Drafter, Inside, Unmask};
use crate::format::DlmConfig;
use crate::text::Tokenizer;
use std::num::NonZeroUsize;

/// Tokens of a draft at most.
const DRAFT: usize = 8;
/// Tokens that prompt lookup matches, at least and at most: a single one says little.
const MATCHES: (usize, usize) = (2, 4);
/// Positions in a sub-block where they divide the block.
const SUB_BLOCK: usize = 8;
/// Confidence from which tokens are accepted.
const THRESHOLD: f32 = 0.9;
const FACTOR: f32 = 1.0;
const ENTROPY_BOUND: f32 = 0.1;
const SLOTS_PER_PASS: usize = 2;

/// What a model brings that matters for decoding.
#[derive(Clone, Copy)]
pub struct Ability<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// What its files say of block diffusion.
    pub dlm: Option<&'a DlmConfig>,
    /// Its tokenizer.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Size of its vocabulary.
    pub vocab: usize,
    /// Rows of one forward pass at most: a block needs that many.
    pub rows: usize,
}

/// Settings that make no sense, or that the model cannot be decoded with. The message names the
/// setting and says what it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl SettingsError {
    /// A name for the kind of error that never changes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "bad_decoding_parameter"
    }
}

fn refuse(message: impl Into<String>) -> SettingsError {
    SettingsError(message.into())
}

impl Settings {
    /// The mode for a model.
    ///
    /// # Errors
    /// When the model cannot be decoded like that.
    pub fn mode(&self, model: &Ability<'_>) -> Result<DecodeMode, SettingsError> {
        self.check()?;
        let mode = match self.decode_mode.unwrap_or_default() {
            Mode::Auto => match model.dlm {
                // Whoever asks for nothing special gets an answer.
                Some(dlm) if dlm.ar_path && !self.can_mask(model) => Mode::Ar,
                Some(dlm) if dlm.ar_path => Mode::Verify,
                Some(_) => Mode::Iterative,
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
                let params = self.diffusion(model, self.unmask(mode)?)?;
                params.check(model.vocab, model.rows).map_err(|e| match e {
                    DiffusionError::Rows { .. } => refuse(format!(
                        "{e}: a smaller block_size fits, and decode_mode ar needs no blocks"
                    )),
                    e => refuse(e.to_string()),
                })?;
                Ok(DecodeMode::Diffusion(params))
            }
        }
    }

    /// Refuses values that no mode can use, whatever the mode.
    pub fn check(&self) -> Result<(), SettingsError> {
        // NaN is in no range.
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
        range("entropy_bound", self.entropy_bound, &at_least_0, "0 at least")?;
        range("row_cost", self.row_cost, &at_least_0, "0 at least")?;
        let shift = self.logit_shift.map(f32::from);
        range("logit_shift", shift, &|x| x <= 1.0, "0 or 1")?;
        let nothing = [
            ("slots_per_pass", self.slots_per_pass),
            ("block_size", self.block_size),
            ("small_block_size", self.small_block_size),
        ];
        match nothing.iter().find(|(_, value)| *value == Some(0)) {
            Some((key, _)) => Err(refuse(format!("{key} must be 1 at least, but is 0"))),
            None => Ok(()),
        }
    }

    /// What is said that only block diffusion reads.
    pub fn of_blocks(&self) -> Vec<&'static str> {
        let said = [
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
        said.into_iter().filter(|(_, said)| *said).map(|(key, _)| key).collect()
    }

    /// Which slots a pass of a diffusion mode unmasks.
    fn unmask(&self, mode: Mode) -> Result<Unmask, SettingsError> {
        let threshold = self.threshold.unwrap_or(THRESHOLD);
        let selector = self.selector.unwrap_or_default();
        match (mode, selector) {
            (Mode::Greedy | Mode::Adaptive, s) if s != Selector::Threshold => Err(refuse(
                "a selector goes with decode_mode iterative: greedy takes a whole block, and \
                 adaptive raises a threshold",
            )),
            (Mode::Greedy, _) => Ok(Unmask::All),
            (Mode::Adaptive, _) => Ok(Unmask::Rising(threshold)),
            (_, Selector::Threshold) => Ok(Unmask::Above(threshold)),
            (_, Selector::Margin) => Ok(Unmask::Margin(threshold)),
            (_, Selector::Factor) => Ok(Unmask::Factor(self.factor.unwrap_or(FACTOR))),
            (_, Selector::Entropy) => {
                Ok(Unmask::Entropy(self.entropy_bound.unwrap_or(ENTROPY_BOUND)))
            }
            (_, Selector::Topk) => Ok(Unmask::Top(self.slots_per_pass.unwrap_or(SLOTS_PER_PASS))),
        }
    }

    fn diffusion(
        &self,
        model: &Ability<'_>,
        unmask: Unmask,
    ) -> Result<DiffusionParams, SettingsError> {
        let mask = self.mask(model)?;
        let Some(block) = self.block_size.or(model.dlm.map(|d| d.bd_size)) else {
            return Err(refuse(format!(
                "{} does not say how large its blocks are: is it a block-diffusion model? \
                 block_size says so",
                model.name
            )));
        };
        let sub_block = if block.is_multiple_of(SUB_BLOCK) { SUB_BLOCK } else { block };
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
        })
    }

    fn shift(&self, model: &Ability<'_>) -> bool {
        self.logit_shift.or(model.dlm.map(|d| d.logit_shift)) != Some(0)
    }

    fn drafter(&self, model: &Ability<'_>) -> Result<Drafter, SettingsError> {
        let length = self.draft_length.map_or(DRAFT, NonZeroUsize::get);
        let can = model.dlm.is_some() || self.mask_token_id.is_some();
        match self.draft.unwrap_or(if can { Draft::Denoise } else { Draft::Ngram }) {
            Draft::Ngram => Ok(Drafter::Ngram { length, matches: MATCHES }),
            Draft::Denoise => {
                Ok(Drafter::Denoise { length, mask: self.mask(model)?, shift: self.shift(model) })
            }
        }
    }

    /// What a mode of these settings takes for granted, in sentences for people.
    pub fn warnings(&self, model: &Ability<'_>, mode: &DecodeMode) -> Vec<String> {
        let mut warnings = Vec::new();
        let masks = match mode {
            DecodeMode::Verify { drafter, .. } => {
                if model.dlm.is_some_and(|d| !d.ar_path) {
                    warnings.push(format!(
                        "{} does not say that it has a trained autoregressive path, whose text \
                         `verify` gives",
                        model.name
                    ));
                }
                matches!(drafter, Drafter::Denoise { .. })
            }
            mode => matches!(mode, DecodeMode::Diffusion(_)),
        };
        if let (true, Ok((id, Some(text)))) = (masks, self.find_mask(model)) {
            warnings.push(format!(
                "the model's files name no MASK token; taking {text:?} ({id}), mask_token_id says \
                 otherwise"
            ));
        }
        warnings
    }

    /// Whether there is a MASK token, be it a wrong one.
    fn can_mask(&self, model: &Ability<'_>) -> bool {
        self.mask_token_id.is_some() || self.find_mask(model).is_ok()
    }

    /// The MASK token.
    fn mask(&self, model: &Ability<'_>) -> Result<u32, SettingsError> {
        Ok(self.find_mask(model)?.0)
    }

    /// The MASK token: what the user says, what the model's files say, what its tokenizer has; and
    /// its text if that is a guess.
    fn find_mask(&self, model: &Ability<'_>) -> Result<(u32, Option<String>), SettingsError> {
        let &Ability { dlm, tokenizer, vocab, name, .. } = model;
        let known = self.mask_token_id.or_else(|| dlm.and_then(|d| d.mask_token_id));
        if let Some(id) = known.or_else(|| tokenizer.and_then(|t| t.id("|<MASK>|"))) {
            return match (id as usize) < vocab {
                true => Ok((id, None)),
                false => {
                    Err(refuse(format!("mask_token_id {id} is outside the vocabulary of {vocab}")))
                }
            };
        }
        match tokenizer.and_then(|t| guess(t, vocab)) {
            Some((id, text)) => Ok((id, Some(text))),
            None => Err(refuse(format!(
                "{name} has no MASK token, so it is no block-diffusion model: decode_mode ar \
                 works with every model, mask_token_id names the token if there is one"
            ))),
        }
    }
}

/// A mode in a few words.
pub fn describe(mode: &DecodeMode) -> String {
    let params = match mode {
        DecodeMode::Autoregressive => return "ar".into(),
        DecodeMode::Embed(_) => return "embed".into(),
        DecodeMode::Verify { drafter, row_cost } => {
            let source = match drafter {
                Drafter::Ngram { .. } => "ngram",
                Drafter::Denoise { .. } => "denoise",
            };
            let cost = row_cost.map(|c| format!(", row cost {c}")).unwrap_or_default();
            return format!("verify, {source}{cost}");
        }
        DecodeMode::Diffusion(params) => params,
    };
    let mut text = match params.unmask {
        Unmask::All => "greedy".into(),
        Unmask::Above(t) => format!("iterative {t}"),
        Unmask::Rising(t) => format!("adaptive {t}"),
        Unmask::Margin(t) => format!("iterative, margin {t}"),
        Unmask::Factor(f) => format!("iterative, factor {f}"),
        Unmask::Entropy(bound) => format!("iterative, entropy {bound}"),
        Unmask::Top(n) => format!("iterative, {n} a pass"),
    };
    for (says, what) in [
        (params.inside == Inside::Causal, ", causal"),
        (params.sub_cache, ", sub-block cache"),
        (params.commit == decode::Commit::Fused, ", fused"),
    ] {
        text += if says { what } else { "" };
    }
    text
}

/// The last special token whose text says mask.
fn guess(tokenizer: &Tokenizer, vocab: usize) -> Option<(u32, String)> {
    let ids = (0..u32::try_from(vocab).ok()?).rev().filter(|&id| tokenizer.is_special(id));
    ids.filter_map(|id| Some((id, tokenizer.token(id)?)))
        .find(|(_, text)| text.to_lowercase().contains("mask"))
}
