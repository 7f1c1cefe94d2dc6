//! Who runs, and what of it a pass computes: what each sequence that decodes asks for, and as much
//! of waiting prompts as the row budget leaves room for. What gets no rows in one step comes first in
//! the next.
//!
//! Sequences are admitted first come, first served, and get pages as they grow. Where there are not
//! enough, the youngest gives its pages back and waits, before all younger ones; what it had said
//! stays said, and it goes on from there. The oldest always runs, so everything ends. A text that has
//! filled its context and is to go on keeps its place: only its pages are others.

use super::sequence::Sequence;
use super::{Engine, Running};
use crate::cache::{KvPool, KvSeq, PAGE};
use crate::model::Output;
use std::cmp::Reverse;

impl Engine {
    /// Starts waiting sequences, in order, as long as there is room for their texts.
    pub(super) fn admit(&mut self) {
        while let Some(next) = self.waiting.front_mut() {
            if self.running.len() >= self.config.sequences.max(1) {
                return;
            }
            let (kv, cached) = open(&mut self.kv, self.config.prefix_cache, next);
            // Everybody's next page stays free, or somebody would have to go at once.
            let spare = self.running.len() * PAGE;
            let positions = next.decoder.tokens().len();
            if !self.kv.has_room(kv, positions + spare) && !self.running.is_empty() {
                self.kv.close(kv);
                return;
            }
            self.kv.grow(kv, positions).expect("all pages are enough for one sequence");
            next.decoder.resume(cached);
            next.cached.get_or_insert(cached);
            let sequence = self.waiting.pop_front().expect("it was there just now");
            self.running.push(Running { kv, sequence });
        }
    }

    /// Pages for what every running sequence may do next. Where they do not suffice the youngest
    /// waits.
    pub(super) fn grow(&mut self) {
        let mut next = 0;
        while let Some(Running { kv, sequence }) = self.running.get(next) {
            let ask = sequence.decoder.ask(self.config.rows.max(1));
            let end = ask.map_or(0, |ask| ask.start + ask.tokens.len());
            match self.kv.grow(*kv, end) {
                Ok(()) => next += 1,
                Err(_) => self.preempt(),
            }
        }
    }

    /// Full texts go on behind what stays of them.
    pub(super) fn shift(&mut self) {
        let context = self.context();
        for Running { kv, sequence } in self.running.iter_mut().filter(|r| r.sequence.full) {
            sequence.shift(context);
            self.kv.close(*kv);
            let (shorter, cached) = open(&mut self.kv, self.config.prefix_cache, sequence);
            *kv = shorter;
            sequence.decoder.resume(cached);
        }
    }

    /// Sends the youngest running sequence back to the queue.
    fn preempt(&mut self) {
        if let Some(Running { kv, sequence }) = self.running.pop() {
            self.kv.close(kv);
            self.waiting.push_front(sequence);
            self.preempted += 1;
        }
    }

    /// Rows for each running sequence. Who got none in the last steps comes first, the longest wait
    /// before the others; then those that decode, then prompts, both by age. A pass gives logits or
    /// hidden states: what the first in this order wants.
    pub(super) fn shares(&self) -> (Output, Vec<usize>) {
        let mut left = self.config.rows.max(1);
        let mut shares = vec![0; self.running.len()];
        let mut order: Vec<usize> = (0..self.running.len()).collect();
        order.sort_by_key(|&i| {
            let sequence = &self.running[i].sequence;
            (Reverse(sequence.waited), sequence.decoder.prefilling())
        });
        let output = |i: usize| self.running[i].sequence.decoder.output();
        let first = order.first().map_or(Output::Logits, |&i| output(i));
        for i in order.into_iter().filter(|&i| output(i) == first) {
            if let Some(ask) =
                self.running[i].sequence.decoder.ask(left.max(1)).filter(|_| left > 0)
            {
                shares[i] = ask.tokens.len();
                left -= shares[i];
            }
        }
        (first, shares)
    }
}

/// Pages for a sequence: those of its text that are known, and how many positions they hold.
fn open(pool: &mut KvPool, share: bool, sequence: &Sequence) -> (KvSeq, usize) {
    let (tokens, skippable) = (sequence.decoder.tokens(), sequence.decoder.skippable());
    match share {
        true => pool.open_shared(&sequence.namespace, &tokens[..skippable]),
        false => (pool.open(0).expect("no page is needed"), 0),
    }
}
