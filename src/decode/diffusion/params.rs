//! How blocks are denoised, and which values make sense.

use super::super::Certainty;

/// How a block is denoised.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffusionParams {
    /// Positions in a block.
    pub block: usize,
    /// Positions in a sub-block; divides the block.
    pub sub_block: usize,
    /// Id of the MASK token.
    pub mask: u32,
    /// Which slots a pass unmasks.
    pub unmask: Unmask,
    /// What slots see of their own block.
    pub inside: Inside,
    /// What clean tokens see of their own block: themselves and what precedes them, or all of it.
    pub clean_causal: bool,
    /// Whether the logits at i − 1 predict token i, or those at i do.
    pub shift: bool,
    /// Passes over a sub-block alone, against the block's keys and values of an earlier pass: the
    /// approximation that Fast-dLLM calls DualCache. Only with [`Inside::Bidirectional`].
    pub sub_cache: bool,
    /// When the keys and values of a finished block are computed.
    pub commit: Commit,
}

/// When the keys and values of a finished block are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// In a pass of their own.
    Clean,
    /// In the first pass over the next block, which then does not see its own first token yet where
    /// the finished block predicts it (shift 1). Without a shift the text is the same.
    Fused,
}

/// Which masked slots of the current sub-block a pass unmasks; always one at least, the surest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unmask {
    /// The whole block at once.
    All,
    /// Those whose token has a probability above this.
    Above(f32),
    /// The same with a threshold θ that rises from pass to pass of a sub-block:
    /// max(0.5, θ − 0.4), max(0.7, θ − 0.2), θ, θ… For θ of 0.7 and more it is faster than θ
    /// throughout, and not of its quality: what is accepted is never masked again. (For a lower θ the
    /// second pass is the strictest.)
    Rising(f32),
    /// Those whose two most likely tokens differ by more than this in probability
    /// (arXiv 2502.06768).
    Margin(f32),
    /// The n surest, for the largest n with (n + 1)(1 − p) < this, where p is the probability of the
    /// least sure of them (Fast-dLLM's factor, arXiv 2505.22618, section 3.3).
    Factor(f32),
    /// The most of those with the least entropy whose entropies, but for the largest, sum to at most
    /// this many nats (EB-Sampler, arXiv 2505.24857).
    Entropy(f32),
    /// So many.
    Top(usize),
}

/// What slots see of their own block while it is denoised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// All of it.
    Bidirectional,
    /// Themselves and what precedes them.
    Causal,
}

/// A parameter that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DiffusionError {
    /// Blocks of nothing, or sub-blocks that do not fill a block.
    #[error("small_block_size {sub_block} does not divide block_size {block}")]
    SubBlock {
        /// Positions in a sub-block.
        sub_block: usize,
        /// Positions in a block.
        block: usize,
    },
    /// A threshold that is no probability.
    #[error("threshold must be above 0 and at most 1, but is {0}")]
    Threshold(f32),
    /// A factor that no slot, or every slot, meets.
    #[error("factor must be a number above 0, but is {0}")]
    Factor(f32),
    /// A bound that is no entropy.
    #[error("entropy_bound must be a number of nats, 0 at least, but is {0}")]
    Entropy(f32),
    /// Passes that unmask nothing.
    #[error("slots_per_pass is 0: a pass unmasks one slot at least")]
    Top,
    /// DualCache where nothing is approximate.
    #[error(
        "sub_block_cache is for bidirectional attention inside the block: causal attention reuses \
         what is exact without it"
    )]
    SubCache,
    /// MASK is no token.
    #[error("mask_token_id {mask} is outside the vocabulary of {vocab}")]
    Mask {
        /// The id.
        mask: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A block does not fit a forward pass.
    #[error(
        "block_size {block} takes passes of {needed} rows, more than the {rows} rows of a forward pass"
    )]
    Rows {
        /// Positions in a block.
        block: usize,
        /// Rows of a pass over it.
        needed: usize,
        /// Rows of a pass at most.
        rows: usize,
    },
}

impl DiffusionError {
    /// A name for the kind of error that never changes.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "bad_decoding_parameter"
    }
}

impl DiffusionParams {
    /// Whether the parameters make sense for a vocabulary of `vocab` and passes of `rows` rows.
    ///
    /// # Errors
    /// Names the parameter that does not.
    pub fn check(&self, vocab: usize, rows: usize) -> Result<(), DiffusionError> {
        let Self { block, sub_block, mask, .. } = *self;
        if block == 0 || sub_block == 0 || !block.is_multiple_of(sub_block) {
            return Err(DiffusionError::SubBlock { sub_block, block });
        }
        if self.sub_cache && self.inside == Inside::Causal {
            return Err(DiffusionError::SubCache);
        }
        if self.rows() > rows {
            return Err(DiffusionError::Rows { block, needed: self.rows(), rows });
        }
        if mask as usize >= vocab {
            return Err(DiffusionError::Mask { mask, vocab });
        }
        // NaN is not above anything.
        match self.unmask {
            Unmask::Above(t) | Unmask::Rising(t) | Unmask::Margin(t) if !(t > 0.0 && t <= 1.0) => {
                Err(DiffusionError::Threshold(t))
            }
            Unmask::Factor(f) if !(f > 0.0 && f.is_finite()) => Err(DiffusionError::Factor(f)),
            Unmask::Entropy(bound) if !(bound >= 0.0 && bound.is_finite()) => {
                Err(DiffusionError::Entropy(bound))
            }
            Unmask::Top(0) => Err(DiffusionError::Top),
            _ => Ok(()),
        }
    }

    /// Rows of the largest pass that cannot be cut.
    pub fn rows(&self) -> usize {
        match self.commit {
            Commit::Clean => self.block,
            Commit::Fused => self.block.saturating_mul(2),
        }
    }
}

impl Unmask {
    /// What makes one slot surer than another.
    pub(super) fn certainty(self) -> Certainty {
        match self {
            Self::Margin(_) => Certainty::Margin,
            Self::Entropy(_) => Certainty::Entropy,
            _ => Certainty::Probability,
        }
    }

    /// How many of the surest slots the `pass`-th pass (from 0) over a sub-block unmasks, given the
    /// certainty of each, the surest first.
    pub(super) fn count(self, certainties: &[f32], pass: usize) -> usize {
        let above = |t: f32| certainties.iter().take_while(|&&c| c > t).count();
        let count = match (self, pass) {
            (Self::All, _) => certainties.len(),
            (Self::Rising(t), 0) => above((t - 0.4).max(0.5)),
            (Self::Rising(t), 1) => above((t - 0.2).max(0.7)),
            (Self::Above(t) | Self::Rising(t) | Self::Margin(t), _) => above(t),
            (Self::Factor(f), _) => {
                let fits = |(i, &p): (usize, &f32)| (i + 2) as f32 * (1.0 - p) < f;
                certainties.iter().enumerate().take_while(|&entry| fits(entry)).count()
            }
            (Self::Entropy(bound), _) => {
                // The largest of the first n entropies is the last of them.
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
        assert_eq!(count(Unmask::Above(1.0), 0), 1, "always one");
        assert_eq!(count(Unmask::Margin(0.5), 0), 4);
        // (n + 1)(1 − p): 0.02, 0.15, 0.4, 2, 4.8.
        for (factor, want) in
            [(0.01, 1), (0.1, 1), (0.2, 2), (0.5, 3), (1.0, 3), (3.0, 4), (5.0, 5)]
        {
            assert_eq!(count(Unmask::Factor(factor), 0), want, "{factor}");
        }
        assert_eq!([1, 3, 99].map(|n| count(Unmask::Top(n), 0)), [1, 3, 5]);
        // The sums without the largest: 0, 0.1, 0.3, 0.8.
        let entropies = [-0.1f32, -0.2, -0.5, -2.0];
        for (bound, want) in [(0.0, 1), (0.15, 2), (0.35, 3), (1.0, 4)] {
            assert_eq!(Unmask::Entropy(bound).count(&entropies, 0), want, "{bound}");
        }
        assert_eq!(Unmask::Entropy(0.0).count(&[0.0, 0.0, -1.0, -1.0], 0), 3);
        assert_eq!(Unmask::Entropy(1.0).count(&[f32::NEG_INFINITY; 3], 0), 1);
    }
}
