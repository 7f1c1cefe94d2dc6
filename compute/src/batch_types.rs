//! Types that decoders and the forward pass share: attention masks, the rows that get logits, and
//! the logits.

/// Attention mask of a span: the row at position p attends to the keys `0..end(p)`.
///
/// One number per row replaces a mask matrix. A block ends at the end of the span at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// Each row sees itself and everything before it.
    Causal,
    /// Each row sees the keys before this position.
    Prefix(usize),
    /// As [`Prefix`](Self::Prefix), for rows that draft tokens: they take the model's adapter for drafts,
    /// if it has one.
    Draft(usize),
    /// Each row sees its block and everything before it. Blocks have this many positions and begin
    /// at multiples of that.
    BlockCausal(usize),
    /// As [`BlockCausal`](Self::BlockCausal), with one block size before a position and another from
    /// it on. Blocks of 1 are causal.
    MixedBlocks {
        /// The position where the block size changes.
        at: usize,
        /// Block sizes before `at`, and from `at` on.
        blocks: [usize; 2],
    },
}

/// The result of a pass for the rows that are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Logits, `[vocab_size]`.
    #[default]
    Logits,
    /// Output of the final norm, `[hidden_size]`; the output head is not computed.
    Hidden,
}

/// The rows of a span that get an [`Output`].
///
/// ```
/// use wrinklefree_compute::batch_types::LogitRows;
///
/// assert_eq!(LogitRows::Last.count(5), 1);
/// assert_eq!(LogitRows::Only(&[0, 3]).count(5), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows<'a> {
    /// No row.
    None,
    /// The last row.
    Last,
    /// Every row.
    All,
    /// These rows, counted from the span's first, in ascending order. A row may appear twice.
    Only(&'a [usize]),
}

impl LogitRows<'_> {
    /// Number of rows that are selected of a span of `len` rows.
    pub fn count(self, len: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Last => len.min(1),
            Self::All => len,
            Self::Only(rows) => rows.len(),
        }
    }
}

/// Logits of the rows that were asked for, in batch order, or their hidden states.
///
/// ```
/// use wrinklefree_compute::batch_types::Logits;
///
/// let logits = Logits::new(&[0.1, 0.9, 0.7, 0.3], 2);
/// assert_eq!((logits.len(), logits.row(1)), (2, &[0.7, 0.3][..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Logits<'w> {
    /// `[rows][width]`.
    values: &'w [f32],
    width: usize,
}

impl<'w> Logits<'w> {
    /// Views `values` as rows of `width` numbers: the vocabulary's size for logits.
    ///
    /// # Panics
    /// If `values` are not whole rows.
    pub fn new(values: &'w [f32], width: usize) -> Self {
        assert!(values.len().is_multiple_of(width));
        Self { values, width }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Returns true if no row was asked for.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the logits of one row, `[width]`.
    ///
    /// # Panics
    /// If `i` is out of range.
    pub fn row(&self, i: usize) -> &'w [f32] {
        &self.values[i * self.width..(i + 1) * self.width]
    }

    /// Returns true if the model computed a number of this row, or before it, that is not finite. A forward
    /// pass sets all numbers of such a row to NaN.
    ///
    /// # Panics
    /// If `i` is out of range.
    pub fn is_failed(&self, i: usize) -> bool {
        Self::row_is_failed(self.row(i))
    }

    /// As [`is_failed`](Self::is_failed), for a row.
    pub fn row_is_failed(row: &[f32]) -> bool {
        row.first().is_some_and(|x| x.is_nan())
    }

    /// Returns true if any row [is failed](Self::is_failed).
    pub fn any_is_failed(&self) -> bool {
        (0..self.len()).any(|i| self.is_failed(i))
    }

    /// Returns all rows, `[rows][width]`.
    pub fn values(&self) -> &'w [f32] {
        self.values
    }

    /// Splits off the first `count` rows and returns them and the rest.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn split(&self, count: usize) -> (Self, Self) {
        let (a, b) = self.values.split_at(count * self.width);
        (Self { values: a, ..*self }, Self { values: b, ..*self })
    }
}
