//! Settings of decoding and sampling, shared by all shells: command options, the `dlm` section of the
//! configuration and fields of requests. Unset values come from the model or are defaults.
//!
//! The features `clap` and `utoipa` turn these types into command options and schemas.
//!
//! ```
//! use wrinklefree::decode::DecodeMode;
//! use wrinklefree::settings::{Mode, ModelCapabilities, Settings};
//!
//! let model =
//!     ModelCapabilities { name: "tiny", dlm: None, tokenizer: None, vocab: 100, rows: 64, draft_net: None };
//! let mode = Settings::default().mode(&model)?;
//! assert_eq!(mode, DecodeMode::Autoregressive);
//!
//! let diffusion = Settings { decode_mode: Some(Mode::Greedy), ..Settings::default() };
//! let error = diffusion.mode(&model).unwrap_err();
//! assert!(error.to_string().contains("tiny has no MASK token"));
//! # Ok::<(), wrinklefree::settings::SettingsError>(())
//! ```

mod hole;
mod json_error;
mod reasoning;
mod resolve;
mod sampling;

pub use hole::{Hole, HoleError};
pub use json_error::{explain_json_error, shown};
pub use reasoning::{Effort, OutputReasoning, Reasoning, ReasoningError};
pub use resolve::{ModelCapabilities, SettingsError, describe};
pub use sampling::Sampling;

use serde::Deserialize;
use std::num::NonZeroUsize;

/// Settings of decoding. Unset values come from the model or are defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(id = "dlm"))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Decoding"))]
#[serde(default)]
pub struct Settings {
    /// Decode mode [default: auto]
    ///
    /// One token after the other, or blocks of tokens at once.
    #[cfg_attr(feature = "clap", arg(long, value_name = "MODE", value_enum))]
    pub decode_mode: Option<Mode>,
    /// Source of drafts for `verify`
    ///
    /// [default: model with a draft model, denoise if the model can, mtp if it has a block for it, else
    /// ngram]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SOURCE", value_enum))]
    pub draft: Option<Draft>,
    /// Most tokens of a draft [default: 8]
    ///
    /// The default is the drafter's block with `--draft model`, and the rest of a block for a model whose
    /// blocks begin where the prompt ends.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub draft_length: Option<NonZeroUsize>,
    /// End drafts less sure than P [default: 0]
    ///
    /// For drafters with a confidence head: a draft ends before the first token of a lower confidence.
    #[cfg_attr(feature = "clap", arg(long, value_name = "P", allow_negative_numbers = true))]
    pub draft_threshold: Option<f32>,
    /// Cost of one more row [default: measured]
    ///
    /// The cost that one more row adds to a forward pass, as a share of a pass of one row. `verify`
    /// drafts as far as that pays off, and always if rows are free (0).
    #[cfg_attr(feature = "clap", arg(long, value_name = "SHARE", allow_negative_numbers = true))]
    pub row_cost: Option<f32>,
    /// Positions in a block [default: the model's]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub block_size: Option<usize>,
    /// Positions in a sub-block [default: 8]
    ///
    /// Must divide the block size. The default is the whole block if 8 does not divide it.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub small_block_size: Option<usize>,
    /// Rule of `iterative` [default: threshold]
    ///
    /// The rule by which `iterative` accepts a token.
    #[cfg_attr(feature = "clap", arg(long, value_name = "RULE", value_enum))]
    pub selector: Option<Selector>,
    /// Accept tokens surer than P [default: 0.9]
    ///
    /// Used by `adaptive`, and by `iterative` with the selectors threshold, margin, product and those
    /// with factors next to a threshold.
    #[cfg_attr(feature = "clap", arg(long, value_name = "P", allow_negative_numbers = true))]
    pub threshold: Option<f32>,
    /// For selectors with a factor
    ///
    /// Smaller is slower and better [default: 1 for factor, 2 next to a threshold].
    #[cfg_attr(feature = "clap", arg(long, value_name = "F", allow_negative_numbers = true))]
    pub factor: Option<f32>,
    /// For the selector entropy [default: 0.1]
    ///
    /// In nats. Smaller is slower and better.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NATS", allow_negative_numbers = true))]
    pub entropy_bound: Option<f32>,
    /// For the selector topk [default: 2]
    #[cfg_attr(feature = "clap", arg(long, value_name = "K"))]
    pub slots_per_pass: Option<usize>,
    /// The MASK token [default: the model's]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub mask_token_id: Option<u32>,
    /// Attention inside a block
    ///
    /// Which slots of its own block a masked slot attends to [default: bidirectional].
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHAT", value_enum))]
    pub block_attention: Option<Attention>,
    /// Row that predicts [default: the model's]
    ///
    /// 1: the logits of the position before a token predict it. 0: those of its own position do.
    #[cfg_attr(feature = "clap", arg(long, value_name = "0|1"))]
    pub logit_shift: Option<u8>,
    /// Repeat sub-blocks alone [default: false]
    ///
    /// Repeats passes over a sub-block alone, against the rest of the block as it was before:
    /// faster, and not quite exact.
    #[cfg_attr(feature = "clap", arg(long, value_name = "YES", num_args = 0..=1, require_equals = true, default_missing_value = "true"))]
    pub sub_block_cache: Option<bool>,
    /// Keys and values of a finished block
    ///
    /// When they are computed: in a pass of their own (clean), or with the next block's first pass
    /// (fused) [default: clean].
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHEN", value_enum))]
    pub commit: Option<Commit>,
}

/// Values of `decode_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// `verify` for a model with both paths or with a block for multi-token prediction, or if `draft` is
    /// set; `iterative` for one that only denoises; otherwise `ar`
    #[default]
    Auto,
    /// Autoregressive: one token per pass
    Ar,
    /// Block diffusion: a whole block in one pass
    Greedy,
    /// Block diffusion: tokens of sufficient confidence in each pass
    Iterative,
    /// As `iterative`, with a threshold that starts low in each sub-block and rises
    Adaptive,
    /// Lossless speculative decoding: the output of `ar` in fewer passes, from checked drafts
    Verify,
}

impl Mode {
    /// The value in settings and requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ar => "ar",
            Self::Greedy => "greedy",
            Self::Iterative => "iterative",
            Self::Adaptive => "adaptive",
            Self::Verify => "verify",
        }
    }

    /// Returns true for the modes of block diffusion, which see both sides of a hole.
    #[must_use]
    pub fn denoises(self) -> bool {
        matches!(self, Self::Greedy | Self::Iterative | Self::Adaptive)
    }
}

/// Values of `draft`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Draft {
    /// One block-diffusion pass
    Denoise,
    /// Prompt lookup: tokens that followed the same words earlier, in prompt or answer
    Ngram,
    /// The model's block for multi-token prediction, if its file has one
    Mtp,
    /// The draft model
    Model,
}

/// Values of `selector`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Selector {
    /// Tokens with a probability above the threshold
    #[default]
    Threshold,
    /// The n most probable tokens, for the largest n with (n + 1)(1 − least probability) < factor
    Factor,
    /// Tokens of least entropy, while the sum of their entropies without the largest is in bounds
    Entropy,
    /// Tokens whose probability exceeds the second choice by more than the threshold
    Margin,
    /// A fixed number of the most probable tokens
    Topk,
    /// Tokens of at least the threshold and, for the n-th most probable, 1 − factor / (n + 1)
    ThresholdFactor,
    /// Tokens of at least the threshold, or of at least 0.45 and 1 − factor / (n + 1)
    ThresholdOrFactor,
    /// The most probable tokens, while the product of their probabilities is at least the threshold
    Product,
}

/// Values of `block_attention`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Attention {
    /// Slots attend to the whole block
    #[default]
    Bidirectional,
    /// Slots attend to the slots before them
    Causal,
}

/// Values of `commit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Commit {
    /// A separate pass
    #[default]
    Clean,
    /// The next block's first pass, which saves one pass per block but lacks the block's first token
    Fused,
}

impl Settings {
    /// Returns true if decoding with these settings may use a model's block for multi-token prediction. It
    /// has to be loaded with the model then:
    /// [`LoadOptions::mtp`](crate::format::LoadOptions::mtp).
    #[must_use]
    pub fn may_use_mtp(&self) -> bool {
        let mode = matches!(self.decode_mode, None | Some(Mode::Auto | Mode::Verify));
        mode && matches!(self.draft, None | Some(Draft::Mtp))
    }

    /// Returns true if decoding with these settings may use a drafter in files of its own, if one is given.
    #[must_use]
    pub fn may_use_draft_model(&self) -> bool {
        let mode = matches!(self.decode_mode, None | Some(Mode::Auto | Mode::Verify));
        mode && matches!(self.draft, None | Some(Draft::Model))
    }

    /// Returns these settings, with unset values taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            decode_mode: self.decode_mode.or(other.decode_mode),
            draft: self.draft.or(other.draft),
            draft_length: self.draft_length.or(other.draft_length),
            draft_threshold: self.draft_threshold.or(other.draft_threshold),
            row_cost: self.row_cost.or(other.row_cost),
            block_size: self.block_size.or(other.block_size),
            small_block_size: self.small_block_size.or(other.small_block_size),
            selector: self.selector.or(other.selector),
            threshold: self.threshold.or(other.threshold),
            factor: self.factor.or(other.factor),
            entropy_bound: self.entropy_bound.or(other.entropy_bound),
            slots_per_pass: self.slots_per_pass.or(other.slots_per_pass),
            mask_token_id: self.mask_token_id.or(other.mask_token_id),
            block_attention: self.block_attention.or(other.block_attention),
            logit_shift: self.logit_shift.or(other.logit_shift),
            sub_block_cache: self.sub_block_cache.or(other.sub_block_cache),
            commit: self.commit.or(other.commit),
        }
    }
}
