//! The words that decoders and the forward pass share: what rows see, which get logits, and the
//! logits (or hidden states, which take the same way).

/// What a row sees: the row at position p attends to the keys `0..end(p)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// Itself and everything before it.
    Causal,
    /// Everything before this position.
    Prefix(usize),
    /// Its own block of this many positions (on absolute positions) and everything before it.
    BlockCausal(usize),
    /// As [`BlockCausal`](Self::BlockCausal), of one size before a position and of another from it on. BlockCausal
    /// of 1 are causal.
    MixedBlocks {
        /// The position.
        at: usize,
        /// Sizes before it and from it on.
        blocks: [usize; 2],
    },
}

/// What a pass gives for the rows that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Logits, `[vocab_size]`.
    #[default]
    Logits,
    /// The final norm's output, `[hidden_size]`; the output head is left out.
    Hidden,
}

/// Which rows of a span get logits, or whatever a pass gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows<'a> {
    /// None.
    None,
    /// The last row.
    Last,
    /// Every row.
    All,
    /// These, counted from the span's first and in ascending order; one may be named twice.
    Only(&'a [usize]),
}

impl LogitRows<'_> {
    /// How many of a span's `len` rows that is.
    pub fn count(self, len: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Last => len.min(1),
            Self::All => len,
            Self::Only(rows) => rows.len(),
        }
    }
}

/// Logits of the rows that were asked for, in batch order; or other rows of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'w> {
    /// `[rows][width]`.
    values: &'w [f32],
    width: usize,
}

impl<'w> Logits<'w> {
    /// Rows of `width` numbers, which is the vocabulary's size for logits.
    ///
    /// # Panics
    /// When `values` are not whole rows.
    pub fn new(values: &'w [f32], width: usize) -> Self {
        assert!(values.len().is_multiple_of(width));
        Self { values, width }
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// No row was asked for.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Logits of one row, `[width]`.
    ///
    /// # Panics
    /// When there are not that many rows.
    pub fn row(&self, i: usize) -> &'w [f32] {
        &self.values[i * self.width..(i + 1) * self.width]
    }

    /// All rows, `[rows][width]`.
    pub fn values(&self) -> &'w [f32] {
        self.values
    }

    /// The first `count` rows, and the rest.
    ///
    /// # Panics
    /// When there are not that many rows.
    pub fn split(&self, count: usize) -> (Self, Self) {
        let (a, b) = self.values.split_at(count * self.width);
        (Self { values: a, ..*self }, Self { values: b, ..*self })
    }
}
