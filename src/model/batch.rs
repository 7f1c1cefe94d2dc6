//! What goes into a forward pass.

use crate::batch_types::{AttentionMask, LogitRows};
use crate::cache::{KvPool, KvSeq};

/// Consecutive tokens of one sequence in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The sequence.
    pub seq: KvSeq,
    /// Position of the first token; at most what the sequence has written.
    pub start: usize,
    /// The tokens.
    pub tokens: &'a [u32],
    /// What each row sees; never past what is written, this span included, nor only what a window has
    /// passed.
    pub attention_mask: AttentionMask,
    /// Rows whose logits are wanted.
    pub logits: LogitRows<'a>,
}

impl Span<'_> {
    /// Position after the last token.
    pub fn end(&self) -> usize {
        self.start + self.tokens.len()
    }

    /// Keys that the row at `position` sees.
    fn sees(&self, position: usize) -> usize {
        let block = |size: usize| ((position / size + 1) * size).min(self.end());
        match self.attention_mask {
            AttentionMask::Causal => position + 1,
            AttentionMask::Prefix(end) => end,
            AttentionMask::BlockCausal(size) => block(size),
            AttentionMask::MixedBlocks { at, blocks } => block(blocks[usize::from(position >= at)]),
        }
    }

    /// Panics where a caller asks for what cannot be computed.
    fn check(&self, kv: &KvPool, vocab: usize) {
        assert!(!self.tokens.is_empty(), "a span has at least one token");
        assert!(
            self.start <= kv.written(self.seq),
            "a span starts where the cache ends, or before"
        );
        assert!(self.end() <= kv.capacity(self.seq), "a span fits its sequence's pages");
        assert!(self.tokens.iter().all(|&t| (t as usize) < vocab), "tokens are in the vocabulary");
        if let AttentionMask::Prefix(end) = self.attention_mask {
            let there = self.end().max(kv.written(self.seq));
            assert!(0 < end && end <= there, "no row sees keys that are not there");
        }
        if let LogitRows::Only(rows) = self.logits {
            let within = rows.last().is_none_or(|&last| last < self.tokens.len());
            assert!(rows.is_sorted() && within, "logits are of the span's rows, in order");
        }
    }
}

/// One row of a batch.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub seq: KvSeq,
    pub token: u32,
    pub position: usize,
}

/// The rows of all spans, one after the other.
#[derive(Default)]
pub(super) struct Batch {
    pub rows: Vec<Row>,
    /// The keys `0..end` that each row attends to.
    pub ends: Vec<usize>,
    /// Rows that get logits.
    pub wanted: Vec<usize>,
    /// Rows from one bound to the next are of one sequence, and attend together.
    pub bounds: Vec<usize>,
    /// Rows that attend together at most.
    most: usize,
    /// Buffers of what is narrowed.
    fewer: (Vec<Row>, Vec<usize>),
}

impl Batch {
    /// Takes the rows of `spans`; `most` of them at most attend together.
    pub fn fill(&mut self, spans: &[Span<'_>], kv: &KvPool, vocab: usize, most: usize) {
        let Self { rows, ends, wanted, .. } = self;
        rows.clear();
        ends.clear();
        wanted.clear();
        for span in spans {
            span.check(kv, vocab);
            let first = rows.len();
            match span.logits {
                LogitRows::None => {}
                LogitRows::Last => wanted.push(first + span.tokens.len() - 1),
                LogitRows::All => wanted.extend(first..first + span.tokens.len()),
                LogitRows::Only(which) => wanted.extend(which.iter().map(|row| first + row)),
            }
            for (position, &token) in (span.start..).zip(span.tokens) {
                rows.push(Row { seq: span.seq, token, position });
                ends.push(span.sees(position));
            }
        }
        self.most = most;
        self.bound();
    }

    /// Whether some rows get no logits, or not in their order.
    pub fn wants_less(&self) -> bool {
        !self.wanted.iter().copied().eq(0..self.rows.len())
    }

    /// Drops the rows that get no logits.
    pub fn narrow(&mut self) {
        let Self { rows, ends, wanted, fewer, .. } = self;
        fewer.0.clear();
        fewer.1.clear();
        fewer.0.extend(wanted.iter().map(|&row| rows[row]));
        fewer.1.extend(wanted.iter().map(|&row| ends[row]));
        std::mem::swap(rows, &mut fewer.0);
        std::mem::swap(ends, &mut fewer.1);
        self.bound();
    }

    fn bound(&mut self) {
        self.bounds.clear();
        let mut first = 0;
        for (i, row) in self.rows.iter().enumerate() {
            if i == 0 || i - first == self.most || row.seq != self.rows[i - 1].seq {
                first = i;
                self.bounds.push(i);
            }
        }
        self.bounds.push(self.rows.len());
    }
}
