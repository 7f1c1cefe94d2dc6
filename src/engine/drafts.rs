//! Drafts by the model's block for multi-token prediction.
//!
//! The block reads each position's token and the hidden state before it. The states of a pass wait here
//! until the tokens after them are known: the block then reads all accepted positions at once, and
//! drafts after the last one. It does not read the last positions of a text that ends, is cancelled or
//! preempted, nor states that are unknown after a cached prefix; these only make drafts worse.

use super::schedule::{Running, Scheduler, most_rows};
use crate::batch_types::{AttentionMask, LogitRows};
use crate::cache::{KvPool, PAGE};
use crate::decode::argmax;
use crate::model::{Drafts, Model, Runtime, Span, Workspace};
use std::ops::Range;

/// Number of waiting states from which the block reads them although no draft is due.
const MANY: usize = PAGE;

/// Hidden states of a sequence that the block has not read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PendingStates {
    /// States of consecutive positions, `[positions][hidden_size]`.
    states: Vec<f32>,
    /// The first of these positions.
    first: usize,
    /// Number of first positions of the text that the block has read.
    read: usize,
}

impl PendingStates {
    /// Starts with a cache of `cached` positions.
    pub fn restart(&mut self, cached: usize) {
        self.states.clear();
        (self.first, self.read) = (cached, cached);
    }

    /// Adds the states of a pass from position `start` on. They replace those of a rejected draft.
    pub fn push(&mut self, start: usize, states: &[f32], hidden: usize) {
        let kept = start.saturating_sub(self.first) * hidden;
        match start >= self.first && kept <= self.states.len() {
            true => self.states.truncate(kept),
            false => self.states.clear(),
        }
        self.first = start - self.states.len() / hidden;
        self.states.extend_from_slice(states);
    }

    /// Positions of a text of `length` tokens that the block can read now.
    fn readable(&self, length: usize, hidden: usize) -> Range<usize> {
        let end = self.first + self.states.len() / hidden + 1;
        self.read.min(length)..end.min(length).max(self.read.min(length))
    }

    /// Appends the state before each of these positions to `out`: zeros where it is unknown.
    fn before(&self, positions: Range<usize>, hidden: usize, out: &mut Vec<f32>) {
        for position in positions {
            let at = position.checked_sub(self.first + 1).map(|i| i * hidden);
            match at.and_then(|at| self.states.get(at..at + hidden)) {
                Some(state) => out.extend_from_slice(state),
                None => out.resize(out.len() + hidden, 0.0),
            }
        }
    }

    /// Drops the states that the block has read with the positions up to `end`.
    fn mark_read(&mut self, end: usize, hidden: usize) {
        let dropped = end.saturating_sub(self.first + 1) * hidden;
        self.states.drain(..dropped.min(self.states.len()));
        (self.first, self.read) = (self.first.max(end.saturating_sub(1)), end);
    }
}

/// A sequence that takes part in passes of the block.
struct Job {
    /// Index among the running sequences.
    index: usize,
    /// Positions to read.
    positions: Range<usize>,
    /// Number of tokens to draft.
    wanted: usize,
    draft: Vec<u32>,
}

impl Job {
    /// Rows of the next pass: the positions to read first, then the last drafted token.
    fn span<'a>(&'a self, running: &'a [Running]) -> Span<'a> {
        let Running { kv: seq, sequence } = &running[self.index];
        let (start, tokens) = match &self.draft[..] {
            [] => (self.positions.start, &sequence.decoder.tokens()[self.positions.clone()]),
            [.., _] => {
                (self.positions.end + self.draft.len() - 1, &self.draft[self.draft.len() - 1..])
            }
        };
        let logits = if self.wanted > 0 { LogitRows::Last } else { LogitRows::None };
        Span { seq: *seq, start, tokens, attention_mask: AttentionMask::Causal, logits }
    }
}

impl Scheduler {
    /// Lets the block read what waits for it, and draft for all sequences that are due.
    pub fn draft(
        &mut self,
        model: &Model,
        runtime: &Runtime,
        pool: &mut KvPool,
        workspace: &mut Workspace,
    ) {
        let hidden = model.spec().hidden_size;
        let mut jobs: Vec<Job> = Vec::new();
        let mut before = Vec::new();
        for index in 0..self.running.len() {
            let Some(job) = self.job(index, pool, hidden) else { continue };
            if let Some(pending) = &self.running[index].sequence.pending_states {
                pending.before(job.positions.clone(), hidden, &mut before);
            }
            jobs.push(job);
        }
        while !jobs.is_empty() {
            let spans: Vec<Span<'_>> = jobs.iter().map(|job| job.span(&self.running)).collect();
            let Drafts { logits, hidden: states } =
                model.draft(runtime, pool, &spans, &before, workspace);
            before.clear();
            for (row, job) in jobs.iter_mut().filter(|job| job.wanted > 0).enumerate() {
                job.draft.push(argmax(logits.row(row), None));
                if job.draft.len() < job.wanted {
                    before.extend_from_slice(&states[row * hidden..(row + 1) * hidden]);
                }
            }
            jobs.retain(|job| {
                let done = job.draft.len() == job.wanted;
                if done {
                    let sequence = &mut self.running[job.index].sequence;
                    if let Some(pending) = &mut sequence.pending_states {
                        pending.mark_read(job.positions.end, hidden);
                    }
                    sequence.decoder.take_draft(&job.draft);
                }
                !done
            });
        }
    }

    /// The work of the block for a running sequence, if there is any. A draft that cannot be made is taken
    /// as an empty one.
    fn job(&mut self, index: usize, pool: &KvPool, hidden: usize) -> Option<Job> {
        let rows = self.config().max_batch_tokens.max(1);
        let Running { kv, sequence } = &mut self.running[index];
        let pending = sequence.pending_states.as_ref()?;
        let (known, capacity) = (sequence.decoder.tokens().len(), pool.capacity(*kv));
        let mut positions = pending.readable(known.min(capacity), hidden);
        let many = positions.len() >= MANY;
        positions.start = positions.start.max(pool.readable_from(*kv)).min(positions.end);
        let due = sequence.decoder.draft_due();
        let fits = rows.min(most_rows(sequence, *kv, pool)).min(capacity + 1 - known.min(capacity));
        let wanted = match positions.end == known && !positions.is_empty() {
            true => due.min(fits.saturating_sub(1)),
            false => 0,
        };
        if due > 0 && wanted == 0 {
            sequence.decoder.take_draft(&[]);
        }
        let work = wanted > 0 || (many && !positions.is_empty());
        work.then(|| Job { index, positions, wanted, draft: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States of two values: the position, and its negative.
    fn states(positions: Range<usize>) -> Vec<f32> {
        positions.flat_map(|p| [p as f32, -(p as f32)]).collect()
    }

    fn before(pending: &PendingStates, positions: Range<usize>) -> Vec<f32> {
        let mut out = Vec::new();
        pending.before(positions, 2, &mut out);
        out.into_iter().step_by(2).collect()
    }

    #[test]
    fn states_wait_until_the_tokens_behind_them_are_known() {
        let mut pending = PendingStates::default();
        pending.restart(32);
        pending.push(32, &states(32..35), 2);
        assert_eq!(pending.readable(35, 2), 32..35);
        assert_eq!(pending.readable(36, 2), 32..36);
        assert_eq!(before(&pending, 32..36), [0.0, 32.0, 33.0, 34.0], "31 is unknown");
        pending.mark_read(36, 2);
        assert_eq!(pending.readable(36, 2), 36..36);
        // A row and a draft of three, of which one is right.
        pending.push(35, &states(35..39), 2);
        assert_eq!(pending.readable(38, 2), 36..38);
        assert_eq!(before(&pending, 36..38), [35.0, 36.0]);
        // No draft was due; the next pass replaces the rejected states.
        pending.push(37, &states(37..38), 2);
        assert_eq!(pending.readable(39, 2), 36..39);
        assert_eq!(before(&pending, 36..39), [35.0, 36.0, 37.0]);
        pending.mark_read(39, 2);
        assert_eq!(pending, PendingStates { states: Vec::new(), first: 38, read: 39 });
    }

    #[test]
    fn a_text_that_starts_again_forgets_its_states() {
        let mut pending = PendingStates::default();
        pending.push(0, &states(0..40), 2);
        pending.restart(0);
        pending.push(0, &states(0..3), 2);
        assert_eq!(pending.readable(100, 2), 0..4);
        assert_eq!(before(&pending, 0..4), [0.0, 0.0, 1.0, 2.0]);
    }
}
