//! How blocks are denoised, and which values make sense.

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
}

/// Which slots a pass unmasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unmask {
    /// The whole block at once.
    All,
    /// Those of the current sub-block with a confidence above this, and always the best one.
    Above(f32),
    /// The same with a threshold θ that rises from pass to pass of a sub-block:
    /// max(0.5, θ − 0.4), max(0.7, θ − 0.2), θ, θ… Faster than θ throughout, and not of its quality:
    /// what is accepted is never masked again.
    Rising(f32),
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
    /// MASK is no token.
    #[error("mask_token_id {mask} is outside the vocabulary of {vocab}")]
    Mask {
        /// The id.
        mask: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A block does not fit a forward pass.
    #[error("block_size {block} is more than the {rows} rows of a forward pass")]
    Rows {
        /// Positions in a block.
        block: usize,
        /// Rows of a pass at most.
        rows: usize,
    },
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
        if block > rows {
            return Err(DiffusionError::Rows { block, rows });
        }
        if mask as usize >= vocab {
            return Err(DiffusionError::Mask { mask, vocab });
        }
        match self.unmask {
            // NaN is not above 0.
            Unmask::Above(t) | Unmask::Rising(t) if !(t > 0.0 && t <= 1.0) => {
                Err(DiffusionError::Threshold(t))
            }
            _ => Ok(()),
        }
    }
}

impl Unmask {
    /// The confidence that a slot must exceed in the `pass`-th pass over its sub-block (from 0).
    pub(super) fn threshold(self, pass: usize) -> f32 {
        match (self, pass) {
            (Self::All, _) => f32::NEG_INFINITY,
            (Self::Rising(t), 0) => (t - 0.4).max(0.5),
            (Self::Rising(t), 1) => (t - 0.2).max(0.7),
            (Self::Above(t) | Self::Rising(t), _) => t,
        }
    }
}
