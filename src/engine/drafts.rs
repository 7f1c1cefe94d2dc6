//! Drafts by a net that reads the model's hidden states.
//!
//! The states of a pass wait here until it is known which tokens are accepted: the net then reads all
//! accepted positions at once, and drafts after the last one. It does not read the last positions of a text
//! that ends, is cancelled or preempted, nor states that are unknown after a cached prefix; these only make
//! drafts worse.

use super::pending_states::StateShape;
use super::schedule::{Scheduler, most_rows};
use super::sequence::Running;
use crate::cache::{KvPool, PAGE};
use crate::model::{DraftJob, Model, Runtime, Workspace};
use std::ops::Range;

/// Number of waiting states from which the net reads them although no draft is due.
const MANY: usize = PAGE;

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
        let wanted = if complete && (!positions.is_empty() || unread > 0) {
            due.min(fits.saturating_sub(1))
        } else {
            0
        };
        if due > 0 && wanted == 0 {
            sequence.decoder.skip_draft();
        }
        let states = pending.read_by(positions.clone(), shape);
        let work = wanted > 0 || (many && !positions.is_empty());
        work.then_some(Work { index, positions, states, wanted })
    }
}
