//! The scheduler: decides which sequences run, and which of their rows a pass computes.
//!
//! Sequences are admitted first come, first served, except that those wait whose beginning a running one
//! computes ([`sharing`]). They get pages as they grow. If pages run out, the sequence that was admitted
//! last is preempted: it gives its pages back and waits in front of all others. Its output so far stays
//! valid, and it continues from there. The one that was admitted first always runs, so every sequence
//! ends. A sequence whose context is full and that has a context shift keeps its place and gets
//! new pages.
//!
//! A pass has the rows that each decoding sequence requests, and as many rows of prompts as the batch has
//! room for. Sequences that got no rows in one step come first in the next.

use super::sequence::{Running, Sequence};
use super::snapshots::draft_rows;
use super::{EngineConfig, EngineStats, Event, FinishReason, SeqId, sharing};
use crate::batch_types::Logits;
use crate::cache::StatePlace::{AnswerEnd, OnTheWay};
use crate::cache::{KvPool, KvSeq, PAGE};
use crate::decode::DraftCounts;
use crate::model::{Output, Span};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

/// The sequences of an engine, and the events that have not been polled.
pub(super) struct Scheduler {
    config: EngineConfig,
    /// Sequences that have pages, in the order of their admission.
    pub(super) running: Vec<Running>,
    /// Sequences without pages, in the order of their admission.
    waiting: VecDeque<Sequence>,
    /// Sequences without pages that wait for [`Self::resume`].
    parked: Vec<Sequence>,
    events: VecDeque<Event>,
    /// Number of preemptions so far.
    preempted: u64,
    /// Drafts so far by a net that reads hidden states.
    drafts: DraftCounts,
    /// Length of the longest text so far that such a net drafted for, with the draft.
    pub(super) longest_drafted: usize,
    /// Maximum number of rows of prompts in a pass next to sequences that decode.
    pub prompt_rows: usize,
    /// The same in a pass without such sequences.
    pub lone_prompt_rows: usize,
}

/// The rows of one forward pass.
pub(super) struct StepPlan<'a> {
    /// Rows of each scheduled sequence, oldest first.
    pub spans: Vec<Span<'a>>,
    /// True for spans whose hidden states are kept for drafts.
    pub keeps: Vec<bool>,
    /// The sequences that the spans belong to, in the same order.
    pub scheduled: Vec<Scheduled>,
    /// Kind of output that all of these sequences need.
    pub output: Output,
    /// Number of rows of sequences that read known text.
    pub prefill_rows: usize,
    /// Number of rows of sequences that decode.
    pub decode_rows: usize,
}

/// A running sequence that takes part in a pass.
pub(super) struct Scheduled {
    /// Index among the running sequences.
    index: usize,
    /// Number of rows whose logits it gets.
    logits: usize,
    /// Position of its first row, and number of its rows.
    rows: (usize, usize),
}

impl Scheduler {
    pub fn new(config: EngineConfig) -> Self {
        let (running, parked) = (Vec::new(), Vec::new());
        let (waiting, events) = (VecDeque::new(), VecDeque::new());
        let (preempted, prompt_rows, drafts) = (0, usize::MAX, DraftCounts::default());
        Self {
            config,
            running,
            waiting,
            parked,
            events,
            preempted,
            drafts,
            longest_drafted: 0,
            prompt_rows,
            lone_prompt_rows: usize::MAX,
        }
    }

    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Number of sequences, and use of the pages in `kv`.
    pub fn stats(&self, kv: &KvPool) -> EngineStats {
        EngineStats {
            running: self.running.len(),
            waiting: self.waiting.len() + self.parked.len(),
            free_pages: kv.free_pages(),
            idle_pages: kv.idle_pages(),
            kv_pages: kv.pages(),
            preempted: self.preempted,
            snapshots: kv.snapshots(),
            snapshot_limit: kv.snapshot_limit(),
            dropped_snapshots: kv.dropped_snapshots(),
            drafts: self.drafts,
            state_bytes: kv.state_shape().map_or(0, |shape| {
                self.running.len() * shape.bytes() + kv.snapshots() * shape.snapshot_bytes()
            }),
        }
    }

    /// Appends a sequence to the queue.
    pub fn enqueue(&mut self, sequence: Sequence) {
        self.waiting.push_back(sequence);
    }

    /// Removes the oldest event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends a sequence that has not ended, and frees its pages.
    pub fn cancel(&mut self, id: SeqId, pool: &mut KvPool) {
        let running = self.running.iter_mut().map(|r| &mut r.sequence);
        let mut all = running.chain(&mut self.waiting).chain(&mut self.parked);
        let Some(sequence) = all.find(|s| s.id == id) else { return };
        sequence.finish(FinishReason::Cancelled, &mut self.events);
        // The client may send the same text again.
        let kept = |r: &&Running| r.sequence.id == id && r.sequence.snapshots.is_some();
        for Running { kv, sequence } in self.running.iter().filter(kept) {
            let place = if sequence.decoder.prefilling() { OnTheWay } else { AnswerEnd };
            pool.keep_states(*kv, place);
        }
        self.release(pool);
    }

    /// Takes a sequence out of the queue, with its pages if it runs, until it is resumed.
    pub fn park(&mut self, id: SeqId, pool: &mut KvPool) {
        if let Some(index) = self.running.iter().position(|r| r.sequence.id == id) {
            let running = self.running.remove(index);
            let sequence = self.suspend(running, pool);
            self.parked.push(sequence);
        } else if let Some(index) = self.waiting.iter().position(|s| s.id == id) {
            self.parked.extend(self.waiting.remove(index));
        }
    }

    /// Puts a parked sequence at the end of the queue.
    pub fn resume(&mut self, id: SeqId) {
        if let Some(index) = self.parked.iter().position(|s| s.id == id) {
            self.waiting.push_back(self.parked.remove(index));
        }
    }

    /// Prepares the next pass: admits waiting sequences, lets grammars decide which tokens may follow,
    /// and makes pages.
    pub fn prepare(&mut self, budget: &mut Duration, pool: &mut KvPool) {
        self.admit(pool);
        self.guide(budget, pool);
        self.make_pages(pool);
    }

    /// Plans the next pass: asks decoders for their rows.
    ///
    /// Sequences without rows in the last steps come first, the longest wait before the others; then
    /// those that decode, then prompts, both by age. A pass gives logits or hidden states: the kind that
    /// the first sequence in this order needs that does not wait for its grammar. Next to sequences that
    /// decode, prompts have few rows.
    pub fn schedule(&mut self, pool: &KvPool) -> StepPlan<'_> {
        let mut left = self.config.max_batch_tokens.max(1);
        let mut order: Vec<(usize, &mut Running)> = self.running.iter_mut().enumerate().collect();
        order.sort_by_key(|(_, r)| (Reverse(r.sequence.waited), r.sequence.decoder.prefilling()));
        let first = order.iter().find(|(_, r)| !r.sequence.decoder.guide_due());
        let output = first.map_or(Output::Logits, |(_, r)| r.sequence.decoder.output());
        let decodes = order.iter().any(|(_, r)| !r.sequence.decoder.prefilling());
        let mut prompts_left = if decodes { self.prompt_rows } else { self.lone_prompt_rows };
        let (mut prefill_rows, mut decode_rows) = (0, 0);
        let mut keeps = vec![false; order.len()];
        let mut spans: Vec<Option<Span<'_>>> = vec![None; order.len()];
        for (index, Running { kv, sequence }) in order {
            let prefilling = sequence.decoder.prefilling();
            let fits = sequence.decoder.output() == output && !sequence.decoder.guide_due();
            let most = if prefilling { left.min(prompts_left) } else { left };
            let budget = if fits { most.min(most_rows(sequence, *kv, pool)) } else { 0 };
            keeps[index] = sequence.pending_states.is_some();
            let Some(span) = sequence.next_span(*kv, budget) else { continue };
            let rows = span.tokens.len();
            left -= rows;
            if prefilling {
                prompts_left -= rows;
            }
            *(if prefilling { &mut prefill_rows } else { &mut decode_rows }) += rows;
            spans[index] = Some(span);
        }
        let scheduled = (spans.iter().enumerate())
            .filter_map(|(index, span)| Some((index, span.as_ref()?)))
            .map(|(index, span)| {
                let rows = (span.start, span.tokens.len());
                Scheduled { index, logits: span.logits.count(rows.1), rows }
            })
            .collect();
        let drafting = spans.iter().enumerate().filter(|(_, span)| span.is_some());
        let keeps = drafting.map(|(index, _)| keeps[index]).collect();
        let spans = spans.into_iter().flatten().collect();
        StepPlan { spans, keeps, scheduled, output, prefill_rows, decode_rows }
    }

    /// Gives sequences that a net drafts for the states of their rows, `[rows][width]`: those of all rows of
    /// such sequences, and of the rows with logits of others.
    pub fn keep(&mut self, scheduled: &[Scheduled], mut states: &[f32], width: usize) {
        for &Scheduled { index, logits, rows: (start, rows) } in scheduled {
            let pending = &mut self.running[index].sequence.pending_states;
            let count = if pending.is_some() { rows } else { logits };
            let Some((own, rest)) = states.split_at_checked(count * width) else { return };
            if let Some(pending) = pending {
                pending.push(start, own, width);
            }
            states = rest;
        }
    }

    /// Gives each scheduled sequence its logits. [`guide`](Self::guide) frees the pages of those that
    /// ended.
    pub fn accept(&mut self, scheduled: &[Scheduled], mut logits: Logits<'_>, pool: &mut KvPool) {
        for &Scheduled { index, logits: count, .. } in scheduled {
            let Running { kv, sequence } = &mut self.running[index];
            let (own, rest) = logits.split(count);
            sequence.decoder.share_pass(scheduled.len());
            let before = sequence.decoder.draft_counts();
            let committed = sequence.accept(own, &mut self.events);
            if sequence.pending_states.is_some() {
                self.drafts.add(sequence.decoder.draft_counts().since(before));
            }
            commit(pool, *kv, sequence, committed);
            logits = rest;
        }
    }

    /// Lets the grammars of running sequences decide which tokens may follow, those that wait longest
    /// first, until nothing is left of `budget`. The others take part in no pass before their turn.
    pub fn guide(&mut self, budget: &mut Duration, pool: &mut KvPool) {
        let mut order: Vec<&mut Running> = self.running.iter_mut().collect();
        order.sort_by_key(|running| Reverse(running.sequence.waited));
        for Running { kv, sequence } in order {
            if let Some(committed) = sequence.guide(budget, &mut self.events) {
                commit(pool, *kv, sequence, committed);
            }
        }
        self.release(pool);
        self.shift_contexts(pool);
    }

    /// Returns true if there are sequences, and all that run wait for their grammars.
    pub fn is_blocked(&self) -> bool {
        let idle = self.running.is_empty() && self.waiting.is_empty();
        !idle && self.running.iter().all(|running| running.sequence.decoder.guide_due())
    }

    /// Starts waiting sequences, in order, while there are pages for their texts. Those whose beginning a
    /// running sequence computes let others pass.
    fn admit(&mut self, pool: &mut KvPool) {
        let mut at = 0;
        while let Some(next) = self.waiting.get_mut(at) {
            if self.running.len() >= self.config.max_sequences.max(1) {
                return;
            }
            if self.config.prefix_cache && sharing::waits(next, &mut self.running, pool) {
                at += 1;
                continue;
            }
            let (kv, cached) = open(pool, self.config.prefix_cache, next);
            // One page for each running sequence stays free. Otherwise the next step would preempt one.
            let spare = self.running.len() * PAGE;
            let positions = next.decoder.tokens().len();
            if !pool.has_room(kv, positions + spare) && !self.running.is_empty() {
                pool.close(kv);
                return;
            }
            pool.grow(kv, positions).expect("all pages suffice for one sequence");
            pool.use_states(kv, next.message_ends());
            next.resume(cached);
            next.cached.get_or_insert(cached);
            self.running.extend(self.waiting.remove(at).map(|sequence| Running { kv, sequence }));
        }
    }

    /// Makes pages for all rows that each running sequence may get, in the order of their admission. Preempts
    /// the last ones until the pages suffice.
    fn make_pages(&mut self, pool: &mut KvPool) {
        let mut next = 0;
        while let Some(Running { kv, sequence }) = self.running.get(next) {
            let most = pool.committed(*kv) + self.config.max_batch_tokens.max(1);
            match pool.grow(*kv, sequence.decoder.next_end().min(most)) {
                Ok(()) => next += 1,
                Err(_) => self.preempt(pool),
            }
        }
    }

    /// Moves the running sequence that was admitted last back to the queue.
    fn preempt(&mut self, pool: &mut KvPool) {
        if let Some(running) = self.running.pop() {
            let sequence = self.suspend(running, pool);
            self.waiting.push_front(sequence);
        }
    }

    /// Takes the pages of a running sequence, which continues later from its text. Its states stay in the
    /// prefix cache.
    fn suspend(&mut self, Running { kv, sequence }: Running, pool: &mut KvPool) -> Sequence {
        pool.keep_states(kv, OnTheWay);
        pool.close(kv);
        self.preempted += 1;
        sequence
    }

    /// Drops the older part of each text that has filled its context and has a context shift.
    fn shift_contexts(&mut self, pool: &mut KvPool) {
        let context = self.config.context();
        for Running { kv, sequence } in self.running.iter_mut().filter(|r| r.sequence.full) {
            sequence.shift_context(context);
            pool.close(*kv);
            let (shorter, cached) = open(pool, self.config.prefix_cache, sequence);
            pool.use_states(shorter, sequence.message_ends());
            *kv = shorter;
            sequence.resume(cached);
        }
    }

    /// Removes ended sequences and frees their pages.
    fn release(&mut self, pool: &mut KvPool) {
        self.running.retain(|running| {
            if running.sequence.finished {
                pool.close(running.kv);
            }
            !running.sequence.finished
        });
        self.waiting.retain(|sequence| !sequence.finished);
        self.parked.retain(|sequence| !sequence.finished);
    }
}

/// Makes positions of a sequence final, and shares them if all are finite.
fn commit(pool: &mut KvPool, kv: KvSeq, sequence: &Sequence, committed: usize) {
    let before = pool.committed(kv);
    pool.commit(kv, committed);
    if sequence.failed {
        return;
    }
    pool.publish(kv, sequence.decoder.tokens());
    let Some(plan) = &sequence.snapshots else { return };
    let answered = sequence.finished.then_some(AnswerEnd);
    // A state that was refused is not offered again with each token of the next page.
    let completed = (committed / PAGE > before / PAGE).then(|| plan.place(committed / PAGE * PAGE));
    if let Some(place) = completed.flatten().or(answered) {
        pool.keep_states(kv, place);
    }
}

/// Opens a sequence in the pool. Returns also the number of its positions that the prefix cache has.
fn open(pool: &mut KvPool, prefix_cache: bool, sequence: &mut Sequence) -> (KvSeq, usize) {
    if !prefix_cache {
        return (pool.open(0).expect("no page and a state is needed"), 0);
    }
    let tokens = &sequence.decoder.tokens()[..sequence.decoder.skippable()];
    let (kv, cached) = pool.open_shared(&sequence.namespace, tokens);
    if let Some(plan) = &mut sequence.snapshots
        && pool.state_shape().is_some()
    {
        let known = pool.known_prefix(&sequence.namespace, tokens);
        // A page more is not worth a state.
        plan.branch_at(if known > cached + PAGE { known } else { 0 });
    }
    (kv, cached)
}

/// Number of rows that recurrent states allow a sequence in one pass.
pub(super) fn most_rows(sequence: &Sequence, kv: KvSeq, pool: &KvPool) -> usize {
    let (Some(shape), start) = (pool.state_shape(), pool.committed(kv)) else { return usize::MAX };
    if sequence.decoder.prefilling() {
        sequence.snapshots.map_or(usize::MAX, |plan| plan.prompt_rows(start))
    } else {
        draft_rows(start, shape.delta.rejectable())
    }
}
