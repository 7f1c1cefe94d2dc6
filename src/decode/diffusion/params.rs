//! Parameters of block diffusion and their valid ranges.

use super::super::Certainty;

/// Parameters of block diffusion.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffusionParams {
    /// Number of positions in a block.
    pub block: usize,
    /// Number of positions in a sub-block; divides the block.
    pub sub_block: usize,
    /// Id of the MASK token.
    pub mask: u32,
    /// Rule for the slots that a pass unmasks.
    pub unmask: Unmask,
    /// Attention inside a block while it is denoised.
    pub inside: Inside,
    /// True if final tokens attend to themselves and earlier tokens; false if they attend to their whole
    /// block.
    pub clean_causal: bool,
    /// True if the logits at i − 1 predict token i; false if those at i do.
    pub shift: bool,
    /// Computes later passes over a sub-block alone, with the block's keys and values of an earlier pass.
    /// This is an approximation, DualCache in Fast-dLLM. Only with [`Inside::Bidirectional`].
    pub sub_cache: bool,
    /// Pass that computes the final keys and values of a finished block.
    pub commit: Commit,
    /// Tokens after the output: the output fills the hole between prompt and suffix. Hole and suffix
    /// stand in the block in which the prompt ends, so all of its slots see both sides. Only with
    /// [`Inside::Bidirectional`].
    pub suffix: Vec<u32>,
    /// True if the first block begins where the prompt ends, and others where the one before it ends. Then
    /// the row before a block predicts its first token, and a block ends with the output. Otherwise
    /// blocks begin at multiples of their size. Only with causal final tokens and [`Commit::Clean`].
    pub from_prompt: bool,
}

/// The pass that computes the final keys and values of a finished block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// A pass of its own.
    Clean,
    /// The first pass over the next block. With a shift this pass lacks the block's first token, which
    /// the finished block predicts in the same pass. Without a shift the text is the same.
    Fused,
}

/// Rule for the masked slots of the current sub-block that a pass unmasks; at least the most certain one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unmask {
    /// All slots of the block.
    All,
    /// Slots whose token has a probability above this.
    Above(f32),
    /// Slots whose token has at least this probability.
    AtLeast(f32),
    /// As `Above`, with a threshold θ that rises from pass to pass over a sub-block:
    /// max(0.5, θ − 0.4), max(0.7, θ − 0.2), θ, θ… For θ ≥ 0.7 it is faster than a constant θ, with lower
    /// quality: accepted tokens are never masked again. For a lower θ the second pass is the strictest.
    Rising(f32),
    /// Slots whose two most likely tokens differ by more than this in probability (arXiv 2502.06768).
    Margin(f32),
    /// The n most certain slots, for the largest n with (n + 1)(1 − p) < this, where p is the probability
    /// of the least certain of them (Fast-dLLM's factor, arXiv 2505.22618, section 3.3).
    Factor(f32),
    /// Slots with at least this probability and, for the n-th most certain one, at least 1 − f / (n + 1).
    ThresholdAndFactor(f32, f32),
    /// Slots with at least this probability, or with at least 0.45 and, for the n-th most certain one,
    /// 1 − f / (n + 1).
    ThresholdOrFactor(f32, f32),
    /// The largest number of slots whose probabilities have a product of at least this.
    Product(f32),
    /// The largest number of slots with the lowest entropies whose sum, without the largest one, is at
    /// most this many nats (EB-Sampler, arXiv 2505.24857).
    Entropy(f32),
    /// This number of slots.
    Top(usize),
}

/// Attention inside a block while it is denoised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Slots attend to the whole block.
    Bidirectional,
    /// Slots attend to themselves and earlier positions.
    Causal,
}

/// Error: a parameter is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DiffusionError {
    /// A size is 0, or the sub-block does not divide the block.
    #[error("small_block_size {sub_block} does not divide block_size {block}")]
    SubBlock {
        /// Number of positions in a sub-block.
        sub_block: usize,
        /// Number of positions in a block.
        block: usize,
    },
    /// The threshold is out of range.
    #[error("threshold must be above 0 and at most 1, but is {0}")]
    Threshold(f32),
    /// The factor is out of range.
    #[error("factor must be a number above 0, but is {0}")]
    Factor(f32),
    /// The entropy bound is out of range.
    #[error("entropy_bound must be a number of nats, at least 0, but is {0}")]
    Entropy(f32),
    /// The number of slots per pass is 0.
    #[error("slots_per_pass is 0, but a pass unmasks at least one slot: give 1 or more")]
    Top,
    /// DualCache with causal attention.
    #[error(
        "sub_block_cache needs bidirectional attention inside the block: turn it off, since causal \
         attention reuses exact keys and values without it"
    )]
    SubCache,
    /// A fused commit of blocks that begin where the prompt ends.
    #[error(
        "commit fused needs blocks at multiples of their size, but this model's blocks begin where the \
         prompt ends: use commit clean"
    )]
    FusedFromPrompt,
    /// A suffix with causal attention.
    #[error("the model cannot see the text after a hole: its attention inside a block is causal")]
    CausalSuffix,
    /// Hole and suffix do not fit the block.
    #[error(
        "a hole of {hole} tokens and a suffix of {suffix} do not fit the block of {block} slots, of \
         which the prompt takes {known}: at most {} fit",
        block.saturating_sub(*known)
    )]
    Hole {
        /// Number of tokens to generate.
        hole: usize,
        /// Number of tokens after them.
        suffix: usize,
        /// Number of positions in a block.
        block: usize,
        /// Number of first slots with the end of the prompt.
        known: usize,
    },
    /// The MASK token is outside the vocabulary.
    #[error("mask_token_id {mask} is outside the vocabulary of {vocab}")]
    Mask {
        /// The id.
        mask: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A token id of the suffix is outside the vocabulary.
    #[error("token id {id} of the suffix is outside the vocabulary of {vocab} tokens")]
    Suffix {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The prompt or the suffix has the MASK token.
    #[error(
        "token {at} of the {text} is the MASK token {mask}, which is a hole to the model: leave it out"
    )]
    MaskedText {
        /// Which text: `prompt` or `suffix`.
        text: &'static str,
        /// Index of the token in the text, from 0.
        at: usize,
        /// Id of the MASK token.
        mask: u32,
    },
    /// A block needs more rows than a forward pass may have.
    #[error(
        "block_size {block} needs passes of {needed} rows, but a forward pass has at most {rows} rows"
    )]
    Rows {
        /// Number of positions in a block.
        block: usize,
        /// Number of rows of a pass over the block.
        needed: usize,
        /// Maximum number of rows of a pass.
        rows: usize,
    },
}

impl DiffusionError {
    /// Returns a stable identifier of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "bad_decoding_parameter"
    }
}

impl DiffusionParams {
    /// Checks the parameters for a vocabulary of `vocab` tokens and passes of at most `rows` rows.
    ///
    /// # Errors
    /// [`DiffusionError`] for the first invalid parameter.
    pub fn check(&self, vocab: usize, rows: usize) -> Result<(), DiffusionError> {
        let Self { block, sub_block, mask, .. } = *self;
        if block == 0 || sub_block == 0 || !block.is_multiple_of(sub_block) {
            return Err(DiffusionError::SubBlock { sub_block, block });
        }
        if self.sub_cache && self.inside == Inside::Causal {
            return Err(DiffusionError::SubCache);
        }
        if self.from_prompt && self.commit == Commit::Fused {
            return Err(DiffusionError::FusedFromPrompt);
        }
        if self.rows() > rows {
            return Err(DiffusionError::Rows { block, needed: self.rows(), rows });
        }
        if mask as usize >= vocab {
            return Err(DiffusionError::Mask { mask, vocab });
        }
        // Each comparison is false for NaN.
        if let Some(t) = self.unmask.threshold().filter(|&t| !(t > 0.0 && t <= 1.0)) {
            return Err(DiffusionError::Threshold(t));
        }
        if let Some(f) = self.unmask.factor().filter(|&f| !(f > 0.0 && f.is_finite())) {
            return Err(DiffusionError::Factor(f));
        }
        match self.unmask {
            Unmask::Entropy(bound) if !(bound >= 0.0 && bound.is_finite()) => {
                Err(DiffusionError::Entropy(bound))
            }
            Unmask::Top(0) => Err(DiffusionError::Top),
            _ => Ok(()),
        }
    }

    /// Checks that neither the prompt nor the suffix has the MASK token.
    ///
    /// # Errors
    /// [`DiffusionError::MaskedText`]
    pub fn check_texts(&self, prompt: &[u32]) -> Result<(), DiffusionError> {
        let mask = self.mask;
        let masked = |(text, tokens): (&'static str, &[u32])| {
            let at = tokens.iter().position(|&token| token == mask)?;
            Some(DiffusionError::MaskedText { text, at, mask })
        };
        match [("prompt", prompt), ("suffix", &self.suffix)].into_iter().find_map(masked) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns the number of slots after a prompt of so many tokens that hole and suffix may take.
    #[must_use]
    pub fn hole_slots(&self, prompt: usize) -> usize {
        if self.from_prompt { self.block } else { self.block - prompt % self.block }
    }

    /// Checks that the hole of `max_tokens` tokens and the suffix fit the block after a prompt of so
    /// many tokens. The parameters must have passed [`check`](Self::check).
    ///
    /// # Errors
    /// [`DiffusionError`] if they do not, or the suffix has an unknown token.
    pub fn check_hole(
        &self,
        prompt: usize,
        max_tokens: usize,
        vocab: usize,
    ) -> Result<(), DiffusionError> {
        if self.suffix.is_empty() {
            return Ok(());
        }
        if self.inside == Inside::Causal {
            return Err(DiffusionError::CausalSuffix);
        }
        if let Some(&id) = self.suffix.iter().find(|&&id| id as usize >= vocab) {
            return Err(DiffusionError::Suffix { id, vocab });
        }
        let (suffix, slots) = (self.suffix.len(), self.hole_slots(prompt));
        if max_tokens.checked_add(suffix).is_some_and(|needed| needed <= slots) {
            Ok(())
        } else {
            Err(DiffusionError::Hole {
                hole: max_tokens,
                suffix,
                block: self.block,
                known: self.block - slots,
            })
        }
    }

    /// Returns the number of rows of the largest pass that cannot be split.
    pub fn rows(&self) -> usize {
        match self.commit {
            Commit::Clean => self.block,
            Commit::Fused => self.block.saturating_mul(2),
        }
    }
}

/// Least probability of a slot that [`Unmask::ThresholdOrFactor`] accepts below its threshold.
const LEAST: f32 = 0.45;

impl Unmask {
    /// The bound of probabilities or margins, if the rule has one.
    fn threshold(self) -> Option<f32> {
        match self {
            Self::Above(t)
            | Self::AtLeast(t)
            | Self::Rising(t)
            | Self::Margin(t)
            | Self::ThresholdAndFactor(t, _)
            | Self::ThresholdOrFactor(t, _)
            | Self::Product(t) => Some(t),
            Self::All | Self::Factor(_) | Self::Entropy(_) | Self::Top(_) => None,
        }
    }

    /// The factor, if the rule has one.
    fn factor(self) -> Option<f32> {
        match self {
            Self::Factor(f) | Self::ThresholdAndFactor(_, f) | Self::ThresholdOrFactor(_, f) => {
                Some(f)
            }
            _ => None,
        }
    }

    /// The measure of certainty that orders slots.
    pub(super) fn certainty(self) -> Certainty {
        match self {
            Self::Margin(_) => Certainty::Margin,
            Self::Entropy(_) => Certainty::Entropy,
            _ => Certainty::Probability,
        }
    }

    /// Returns the number of slots that pass `pass` (from 0) over a sub-block unmasks, given the certainty
    /// of each slot in falling order.
    pub(super) fn count(self, certainties: &[f32], pass: usize) -> usize {
        let above = |t: f32| certainties.iter().take_while(|&&c| c > t).count();
        let ranked = |fits: &dyn Fn(f32, f32) -> bool| {
            let ranks = certainties.iter().zip(2u16..);
            ranks.take_while(|&(&p, rank)| fits(p, f32::from(rank))).count()
        };
        let count = match (self, pass) {
            (Self::All, _) => certainties.len(),
            (Self::Rising(t), 0) => above((t - 0.4).max(0.5)),
            (Self::Rising(t), 1) => above((t - 0.2).max(0.7)),
            (Self::Above(t) | Self::Rising(t) | Self::Margin(t), _) => above(t),
            (Self::AtLeast(t), _) => certainties.iter().take_while(|&&c| c >= t).count(),
            (Self::Factor(f), _) => {
                let fits = |(i, &p): (usize, &f32)| (i + 2) as f32 * (1.0 - p) < f;
                certainties.iter().enumerate().take_while(|&entry| fits(entry)).count()
            }
            (Self::ThresholdAndFactor(t, f), _) => ranked(&|p, n| p >= t && p >= 1.0 - f / n),
            (Self::ThresholdOrFactor(t, f), _) => {
                ranked(&|p, n| p >= t || (p >= LEAST && p >= 1.0 - f / n))
            }
            (Self::Product(t), _) => {
                let mut product = 1.0;
                let fits = |&p: &f32| {
                    product *= p;
                    product >= t
                };
                certainties.iter().copied().take_while(fits).count()
            }
            (Self::Entropy(bound), _) => {
                // Entropies rise, so the last of the first n is the largest.
                let mut others = 0.0;
                let fits = |&c: &f32| {
                    let fits = others <= bound;
                    others -= c;
                    fits
                };
                certainties.iter().copied().take_while(fits).count()
            }
            (Self::Top(n), _) => n,
        };
        count.clamp(1, certainties.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_count_as_their_papers_say() {
        let p = [0.99f32, 0.95, 0.9, 0.6, 0.2];
        let count = |unmask: Unmask, pass| unmask.count(&p, pass);
        assert_eq!(count(Unmask::All, 0), 5);
        assert_eq!([0, 1, 2, 9].map(|pass| count(Unmask::Above(0.9), pass)), [2; 4]);
        assert_eq!([0, 1, 2, 9].map(|pass| count(Unmask::Rising(0.9), pass)), [4, 3, 2, 2]);
        assert_eq!(count(Unmask::AtLeast(0.9), 0), 3);
        assert_eq!(count(Unmask::Above(1.0), 0), 1, "always one");
        assert_eq!(count(Unmask::Margin(0.5), 0), 4);
        // (n + 1)(1 − p): 0.02, 0.15, 0.4, 2, 4.8.
        for (factor, want) in
            [(0.01, 1), (0.1, 1), (0.2, 2), (0.5, 3), (1.0, 3), (3.0, 4), (5.0, 5)]
        {
            assert_eq!(count(Unmask::Factor(factor), 0), want, "{factor}");
        }
        // 1 − 2 / (n + 1): 0, 0.333, 0.5, 0.6, 0.667.
        assert_eq!(count(Unmask::ThresholdAndFactor(0.5, 2.0), 0), 4);
        assert_eq!(count(Unmask::ThresholdAndFactor(0.95, 2.0), 0), 2);
        assert_eq!(count(Unmask::ThresholdAndFactor(0.1, 0.1), 0), 1, "always one");
        assert_eq!(count(Unmask::ThresholdOrFactor(0.95, 2.0), 0), 4);
        assert_eq!(count(Unmask::ThresholdOrFactor(0.1, 0.1), 0), 5);
        assert_eq!(Unmask::ThresholdOrFactor(0.9, 2.0).count(&[0.46, 0.44], 0), 1);
        // Products: 0.99, 0.94, 0.846, 0.508, 0.102.
        for (bound, want) in [(1.0, 1), (0.9, 2), (0.84, 3), (0.5, 4), (0.1, 5)] {
            assert_eq!(count(Unmask::Product(bound), 0), want, "{bound}");
        }
        assert_eq!([1, 3, 99].map(|n| count(Unmask::Top(n), 0)), [1, 3, 5]);
        // Sums without the largest: 0, 0.1, 0.3, 0.8.
        let entropies = [-0.1f32, -0.2, -0.5, -2.0];
        for (bound, want) in [(0.0, 1), (0.15, 2), (0.35, 3), (1.0, 4)] {
            assert_eq!(Unmask::Entropy(bound).count(&entropies, 0), want, "{bound}");
        }
        assert_eq!(Unmask::Entropy(0.0).count(&[0.0, 0.0, -1.0, -1.0], 0), 3);
        assert_eq!(Unmask::Entropy(1.0).count(&[f32::NEG_INFINITY; 3], 0), 1);
    }
}
