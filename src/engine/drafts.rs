//! Drafts by a net that reads the model's hidden states.
//!
//! The states of a pass wait here until it is known which tokens are accepted: the net then reads all
//! accepted positions at once, and drafts after the last one. It does not read the last positions of a text
//! that ends, is cancelled or preempted, nor states that are unknown after a cached prefix; these only make
//! drafts worse.

use super::schedule::{Running, Scheduler, most_rows};
use crate::cache::{KvPool, PAGE};
use crate::model::{DraftJob, Model, Runtime, Workspace};
use std::ops::Range;

/// Number of waiting states from which the net reads them although no draft is due.
const MANY: usize = PAGE;

/// Hidden states of a sequence that the net has not read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PendingStates {
    /// States of consecutive positions, `[positions][width]`.
    states: Vec<f32>,
    /// The first of these positions.
    first: usize,
    /// Number of first positions of the text that the net has read.
    read: usize,
}

/// Shape of the states that a net reads.
#[derive(Clone, Copy, Debug)]
struct StateShape {
    /// Number of values of a state.
    width: usize,
    /// Distance from the position whose state is read to the position that reads it: 1 for a block for
    /// multi-token prediction, 0 for a drafter.
    lag: usize,
}

impl StateShape {
    fn of(model: &Model) -> Self {
        Self { width: model.state_width(), lag: 1 - model.unread_tokens() }
    }
}

impl PendingStates {
    /// Starts with a cache of `cached` positions.
    pub fn restart(&mut self, cached: usize) {
        self.states.clear();
        (self.first, self.read) = (cached, cached);
    }

    /// Adds the states of a pass from position `start` on. They replace those of a rejected draft.
    pub fn push(&mut self, start: usize, states: &[f32], width: usize) {
        let kept = start.saturating_sub(self.first) * width;
        match start >= self.first && kept <= self.states.len() {
            true => self.states.truncate(kept),
            false => self.states.clear(),
        }
        self.first = start - self.states.len() / width;
        self.states.extend_from_slice(states);
    }

    /// Positions of a text of `length` tokens that the net can read now.
    fn readable(&self, length: usize, shape: StateShape) -> Range<usize> {
        let end = self.first + self.states.len() / shape.width + shape.lag;
        // States after it are those of rejected drafts.
        let length = length.saturating_sub(1 - shape.lag);
        self.read.min(length)..end.min(length).max(self.read.min(length))
    }

    /// The states that these positions read: zeros where they are unknown.
    fn read_by(&self, positions: Range<usize>, shape: StateShape) -> Vec<f32> {
        let mut out = Vec::with_capacity(positions.len() * shape.width);
        for position in positions {
            let at = position.checked_sub(self.first + shape.lag).map(|i| i * shape.width);
            match at.and_then(|at| self.states.get(at..at + shape.width)) {
                Some(state) => out.extend_from_slice(state),
                None => out.resize(out.len() + shape.width, 0.0),
            }
        }
        out
    }

    /// Drops the states that the net has read with the positions up to `end`.
    fn mark_read(&mut self, end: usize, shape: StateShape) {
        let dropped = end.saturating_sub(self.first + shape.lag) * shape.width;
        self.states.drain(..dropped.min(self.states.len()));
        (self.first, self.read) = (self.first.max(end.saturating_sub(shape.lag)), end);
    }
}

/// Work of the net for a running sequence.
struct Work {
    /// Index among the running sequences.
    index: usize,
    /// Positions to read.
    positions: Range<usize>,
    /// The states that they read.
    states: Vec<f32>,
    /// Number of tokens to draft.
    wanted: usize,
}

impl Scheduler {
    /// Lets the net read what waits for it, and draft for all sequences that are due.
    pub fn draft(
        &mut self,
        model: &Model,
        runtime: &Runtime,
        pool: &mut KvPool,
        workspace: &mut Workspace,
    ) {
        let shape = StateShape::of(model);
        let all = 0..self.running.len();
        let work: Vec<Work> = all.filter_map(|index| self.work(index, pool, shape)).collect();
        if work.is_empty() {
            return;
        }
        let drafts = {
            let mut jobs: Vec<DraftJob<'_>> = work.iter().map(|work| self.job(work)).collect();
            model.draft(runtime, pool, &mut jobs, workspace)
        };
        for (Work { index, positions, wanted, .. }, draft) in work.into_iter().zip(drafts) {
            let sequence = &mut self.running[index].sequence;
            if let Some(pending) = &mut sequence.pending_states {
                pending.mark_read(positions.end, shape);
            }
            if wanted > 0 {
                self.longest_drafted =
                    self.longest_drafted.max(sequence.decoder.tokens().len() + wanted);
                let (mut tokens, vocab) = (draft.tokens, model.spec().vocab_size);
                if let Some(assumed) = &sequence.assumed_drafts {
                    assumed.replace(sequence.decoder.tokens().len(), vocab, &mut tokens);
                }
                sequence.decoder.take_draft(&tokens);
            }
        }
    }

    fn job<'a>(&'a self, work: &'a Work) -> DraftJob<'a> {
        let Work { index, positions, states, wanted } = work;
        let Running { kv, sequence } = &self.running[*index];
        DraftJob {
            seq: *kv,
            tokens: sequence.decoder.tokens(),
            positions: positions.clone(),
            states,
            wanted: *wanted,
            threshold: sequence.draft_threshold,
            sampler: if *wanted > 0 { sequence.decoder.draft_sampler() } else { None },
        }
    }

    /// The work of the net for a running sequence, if there is any. A draft that cannot be made is skipped.
    fn work(&mut self, index: usize, pool: &KvPool, shape: StateShape) -> Option<Work> {
        let rows = self.config().max_batch_tokens.max(1);
        let Running { kv, sequence } = &mut self.running[index];
        let pending = sequence.pending_states.as_ref()?;
        let (known, capacity) = (sequence.decoder.tokens().len(), pool.capacity(*kv));
        let unread = 1 - shape.lag;
        let mut positions = pending.readable(known.min(capacity + unread), shape);
        let many = positions.len() >= MANY;
        positions.start = positions.start.max(pool.readable_from(*kv)).min(positions.end);
        let due = sequence.decoder.draft_due();
        let fits = rows.min(most_rows(sequence, *kv, pool)).min(capacity + 1 - known.min(capacity));
        let complete = positions.end + unread == known;
        // A drafter may have read all positions before the newest token.
        let wanted = match complete && (!positions.is_empty() || unread > 0) {
            true => due.min(fits.saturating_sub(1)),
            false => 0,
        };
        if due > 0 && wanted == 0 {
            sequence.decoder.skip_draft();
        }
        let states = pending.read_by(positions.clone(), shape);
        let work = wanted > 0 || (many && !positions.is_empty());
        work.then_some(Work { index, positions, states, wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States of two values: the position, and its negative.
    fn states(positions: Range<usize>) -> Vec<f32> {
        positions.flat_map(|p| [p as f32, -(p as f32)]).collect()
    }

    /// States of a block for multi-token prediction, and of a drafter.
    const AFTER: StateShape = StateShape { width: 2, lag: 1 };
    const AT: StateShape = StateShape { width: 2, lag: 0 };

    fn read_by(pending: &PendingStates, positions: Range<usize>, shape: StateShape) -> Vec<f32> {
        pending.read_by(positions, shape).into_iter().step_by(2).collect()
    }

    fn before(pending: &PendingStates, positions: Range<usize>) -> Vec<f32> {
        read_by(pending, positions, AFTER)
    }

    #[test]
    fn a_drafter_reads_the_states_of_the_positions_themselves() {
        let mut pending = PendingStates::default();
        pending.restart(32);
        pending.push(32, &states(32..35), 2);
        assert_eq!(pending.readable(36, AT), 32..35, "the newest token has no state");
        assert_eq!(read_by(&pending, 32..35, AT), [32.0, 33.0, 34.0]);
        pending.mark_read(35, AT);
        assert_eq!(pending, PendingStates { states: Vec::new(), first: 35, read: 35 });
        // A row and a draft of three, of which one is right.
        pending.push(35, &states(35..39), 2);
        assert_eq!(pending.readable(38, AT), 35..37);
        assert_eq!(read_by(&pending, 35..37, AT), [35.0, 36.0]);
        pending.mark_read(37, AT);
        pending.push(37, &states(37..38), 2);
        assert_eq!(pending.readable(39, AT), 37..38);
    }

    #[test]
    fn states_wait_until_the_tokens_behind_them_are_known() {
        let mut pending = PendingStates::default();
        pending.restart(32);
        pending.push(32, &states(32..35), 2);
        assert_eq!(pending.readable(35, AFTER), 32..35);
        assert_eq!(pending.readable(36, AFTER), 32..36);
        assert_eq!(before(&pending, 32..36), [0.0, 32.0, 33.0, 34.0], "31 is unknown");
        pending.mark_read(36, AFTER);
        assert_eq!(pending.readable(36, AFTER), 36..36);
        // A row and a draft of three, of which one is right.
        pending.push(35, &states(35..39), 2);
        assert_eq!(pending.readable(38, AFTER), 36..38);
        assert_eq!(before(&pending, 36..38), [35.0, 36.0]);
        // No draft was due; the next pass replaces the rejected states.
        pending.push(37, &states(37..38), 2);
        assert_eq!(pending.readable(39, AFTER), 36..39);
        assert_eq!(before(&pending, 36..39), [35.0, 36.0, 37.0]);
        pending.mark_read(39, AFTER);
        assert_eq!(pending, PendingStates { states: Vec::new(), first: 38, read: 39 });
    }

    #[test]
    fn a_text_that_starts_again_forgets_its_states() {
        let mut pending = PendingStates::default();
        pending.push(0, &states(0..40), 2);
        pending.restart(0);
        pending.push(0, &states(0..3), 2);
        assert_eq!(pending.readable(100, AFTER), 0..4);
        assert_eq!(before(&pending, 0..4), [0.0, 0.0, 1.0, 2.0]);
    }
}
