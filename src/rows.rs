//! The words that decoders and the forward pass share: what rows see, which get logits, and the
//! logits.

/// What a row sees: the row at position p attends to the keys `0..end(p)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Itself and everything before it.
    Causal,
    /// Everything before this position.
    UpTo(usize),
    /// Its own block of this many positions (on absolute positions) and everything before it.
    Blocks(usize),
    /// As [`Blocks`](Self::Blocks), of one size before a position and of another from it on. Blocks
    /// of 1 are causal.
    Turning {
        /// The position.
        at: usize,
        /// Sizes before it and from it on.
        blocks: [usize; 2],
    },
}

/// Which rows of a span get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows<'a> {
    /// None.
    None,
    /// The last row.
    Last,
    /// Every row.
    All,
    /// These, counted from the span's first and in ascending order; one may be named twice.
    Only(&'a [usize]),
}

impl Rows<'_> {
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

/// Logits of the rows that were asked for, in batch order.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'w> {
    /// `[rows][vocab]`.
    values: &'w [f32],
    vocab: usize,
}

impl<'w> Logits<'w> {
    /// Logits as `[rows][vocab]`.
    ///
    /// # Panics
    /// When `values` are not whole rows.
    pub fn new(values: &'w [f32], vocab: usize) -> Self {
        assert!(values.len().is_multiple_of(vocab));
        Self { values, vocab }
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.vocab
    }

    /// No row was asked for.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Logits of one row, `[vocab_size]`.
    ///
    /// # Panics
    /// When there are not that many rows.
    pub fn row(&self, i: usize) -> &'w [f32] {
        &self.values[i * self.vocab..(i + 1) * self.vocab]
    }

    /// All rows, `[rows][vocab_size]`.
    pub fn values(&self) -> &'w [f32] {
        self.values
    }

    /// The first `count` rows, and the rest.
    ///
    /// # Panics
    /// When there are not that many rows.
    pub fn split(&self, count: usize) -> (Self, Self) {
        let (a, b) = self.values.split_at(count * self.vocab);
        (Self { values: a, ..*self }, Self { values: b, ..*self })
    }
}
