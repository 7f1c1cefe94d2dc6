//! The rows of a forward pass.

use crate::batch_types::{AttentionMask, LogitRows};
use crate::cache::{KvPool, KvSeq, PAGE};
use crate::mem::AlignedVec;

/// Consecutive tokens of one sequence in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The sequence in the KV cache.
    pub seq: KvSeq,
    /// Position of the first token; at most the number of positions written so far. With linear
    /// attention, at most [`DeltaShape::rejectable`](crate::kernel::DeltaShape::rejectable) positions
    /// may be written again, and none of a page that is full.
    pub start: usize,
    /// Token ids; at least one.
    pub tokens: &'a [u32],
    /// Keys that each row attends to. They must be written, this span included, and not all freed by a
    /// sliding window. Linear attention requires [`AttentionMask::Causal`].
    pub attention_mask: AttentionMask,
    /// Rows that get logits.
    pub logits: LogitRows<'a>,
}

impl Span<'_> {
    /// Position after the last token.
    pub fn end(&self) -> usize {
        self.start + self.tokens.len()
    }

    /// Number of keys that the row at `position` attends to.
    fn visible(&self, position: usize) -> usize {
        let block = |size: usize| ((position / size + 1) * size).min(self.end());
        match self.attention_mask {
            AttentionMask::Causal => position + 1,
            AttentionMask::Prefix(end) | AttentionMask::Draft(end) => end,
            AttentionMask::BlockCausal(size) => block(size),
            AttentionMask::MixedBlocks { at, blocks } => block(blocks[usize::from(position >= at)]),
        }
    }

    /// Panics if the span cannot be computed.
    pub(super) fn check(&self, kv: &KvPool, vocab: usize) {
        assert!(!self.tokens.is_empty(), "a span has at least one token");
        assert!(
            self.start <= kv.written(self.seq),
            "a span starts at or before the end of the cache"
        );
        assert!(self.end() <= kv.capacity(self.seq), "a span fits its sequence's pages");
        assert!(self.tokens.iter().all(|&t| (t as usize) < vocab), "tokens are in the vocabulary");
        if let Some(shape) = kv.state_shape() {
            let (causal, written) = (AttentionMask::Causal, kv.written(self.seq));
            assert!(
                self.attention_mask == causal,
                "rows of linear attention see earlier ones only"
            );
            let kept = written / PAGE * PAGE <= self.start;
            assert!(
                kept && written <= self.start + shape.delta.rejectable(),
                "a span replaces no rows that recurrent states have taken"
            );
        }
        if let AttentionMask::Prefix(end) | AttentionMask::Draft(end) = self.attention_mask {
            let there = self.end().max(kv.written(self.seq));
            assert!(0 < end && end <= there, "rows attend to written keys only");
        }
        if let LogitRows::Only(rows) = self.logits {
            let within = rows.last().is_none_or(|&last| last < self.tokens.len());
            assert!(rows.is_sorted() && within, "logits are of the span's rows, in order");
        }
    }
}

/// A row of a batch: one token.
#[derive(Clone, Copy)]
pub(super) struct BatchRow {
    pub seq: KvSeq,
    pub token: u32,
    pub position: usize,
    /// True for a row of a draft, which takes the model's adapter for drafts.
    pub drafts: bool,
}

/// The rows of all spans, in order.
#[derive(Default)]
pub(super) struct Batch {
    pub rows: Vec<BatchRow>,
    /// End of the keys `0..end` that each row attends to.
    pub ends: Vec<usize>,
    /// Indices of the rows that the last layer computes: those that get logits, and those whose hidden
    /// states are kept.
    pub wanted: Vec<usize>,
    /// Indices into `wanted` of the rows that get logits; empty where all do.
    pub with_logits: Vec<usize>,
    /// True if rows without logits may be among the `wanted`.
    pub keeps_hidden: bool,
    /// Bounds of the groups of rows that attend together; each group is of one sequence.
    pub bounds: Vec<usize>,
    /// Number of rows before [`Self::narrow`].
    pub all_rows: usize,
    /// True after [`Self::narrow`].
    is_narrow: bool,
    /// Largest number of rows that attend together.
    max_group: usize,
    /// Buffers for [`Self::narrow`].
    narrowed: (Vec<BatchRow>, Vec<usize>),
}

impl Batch {
    /// Replaces the rows by those of `spans`; groups have at most `max_group` rows. The hidden states of
    /// all rows of the spans for which `keeps` is true are kept.
    pub fn fill(&mut self, spans: &[Span<'_>], keeps: &[bool], max_group: usize) {
        let Self { rows, ends, wanted, with_logits, keeps_hidden, .. } = self;
        rows.clear();
        ends.clear();
        wanted.clear();
        with_logits.clear();
        *keeps_hidden = keeps.contains(&true);
        for (i, span) in spans.iter().enumerate() {
            let (first, before, count) = (rows.len(), wanted.len(), span.tokens.len());
            let keeps = keeps.get(i) == Some(&true);
            // Where the wanted rows begin: those of the span from its own first on.
            let base = if keeps { before } else { first };
            let list = if keeps { &mut *with_logits } else { &mut *wanted };
            match span.logits {
                LogitRows::None => {}
                LogitRows::Last => list.push(base + count - 1),
                LogitRows::All => list.extend(base..base + count),
                LogitRows::Only(which) => list.extend(which.iter().map(|row| base + row)),
            }
            match keeps {
                true => wanted.extend(first..first + count),
                false if *keeps_hidden => with_logits.extend(before..wanted.len()),
                false => {}
            }
            let drafts = matches!(span.attention_mask, AttentionMask::Draft(_));
            for (position, &token) in (span.start..).zip(span.tokens) {
                rows.push(BatchRow { seq: span.seq, token, position, drafts });
                ends.push(span.visible(position));
            }
        }
        (self.all_rows, self.is_narrow) = (rows.len(), false);
        self.max_group = max_group;
        self.group();
    }

    /// Number of rows that get logits.
    pub fn logit_rows(&self) -> usize {
        if self.keeps_hidden { self.with_logits.len() } else { self.wanted.len() }
    }

    /// Returns true unless all rows that the last layer computes get logits, in order.
    pub fn leaves_rows_without_logits(&self) -> bool {
        self.keeps_hidden && !self.with_logits.iter().copied().eq(0..self.wanted.len())
    }

    /// Returns true unless the last layer computes all rows, in order.
    pub fn needs_narrowing(&self) -> bool {
        !self.wanted.iter().copied().eq(0..self.rows.len())
    }

    /// Index that a row had before [`Self::narrow`].
    pub fn row_before_narrowing(&self, row: usize) -> usize {
        if self.is_narrow { self.wanted[row] } else { row }
    }

    /// Index of the row that the last layer computes as number `i`, in the batch as it is now.
    pub fn wanted_row(&self, i: usize) -> usize {
        if self.is_narrow { i } else { self.wanted[i] }
    }

    /// Replaces `buffer`, `[rows][width]`, by its `wanted` rows. `spare` takes the old buffer.
    pub fn gather(&self, buffer: &mut AlignedVec<f32>, width: usize, spare: &mut AlignedVec<f32>) {
        spare.grow(self.wanted.len() * width);
        for (to, &row) in spare.chunks_exact_mut(width).zip(&self.wanted) {
            to.copy_from_slice(&buffer[row * width..(row + 1) * width]);
        }
        std::mem::swap(buffer, spare);
    }

    /// Drops the rows that the last layer does not compute.
    pub fn narrow(&mut self) {
        self.is_narrow = true;
        let Self { rows, ends, wanted, narrowed, .. } = self;
        narrowed.0.clear();
        narrowed.1.clear();
        narrowed.0.extend(wanted.iter().map(|&row| rows[row]));
        narrowed.1.extend(wanted.iter().map(|&row| ends[row]));
        std::mem::swap(rows, &mut narrowed.0);
        std::mem::swap(ends, &mut narrowed.1);
        self.group();
    }

    /// Groups the rows that attend together.
    fn group(&mut self) {
        self.bounds.clear();
        let mut first = 0;
        for (i, row) in self.rows.iter().enumerate() {
            if i == 0 || i - first == self.max_group || row.seq != self.rows[i - 1].seq {
                first = i;
                self.bounds.push(i);
            }
        }
        self.bounds.push(self.rows.len());
    }
}
