//! A sequence: the decoder of a request, and the text of its output.

use super::pending_states::PendingStates;
use super::snapshots::SnapshotPlan;
use super::{Event, EventKind, MessageEnds, Request, SeqId};
use crate::batch_types::Logits;
use crate::cache::{KvSeq, Namespace, SaltHash, StatePlace};
use crate::decode::{
    AssumedDrafts, DecodeMode, Decoder, FinishReason, PassCosts, RowRequest, Sampled, StepOutcome,
};
use crate::model::Span;
use crate::text::{Detokenizer, StopStrings, Tokenizer};
use std::collections::VecDeque;
use std::time::Duration;

/// A sequence that has pages.
pub(super) struct Running {
    pub kv: KvSeq,
    pub sequence: Sequence,
}

/// The text that a sequence waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedPrompt {
    /// The sequence that computes it.
    pub by: SeqId,
    /// Its end, in positions.
    pub end: usize,
}

/// A request that has not ended.
pub(super) struct Sequence {
    pub id: SeqId,
    /// Namespace of the sequences that it may share pages with.
    pub namespace: Namespace,
    pub decoder: Box<dyn Decoder + Send>,
    pub finished: bool,
    /// True if the model computed a number for it that is not finite.
    pub failed: bool,
    /// Index of the stop string that has been found.
    stopped: Option<usize>,
    /// The context shift, if the request has one.
    shift: Option<ContextShift>,
    /// True if the text has filled its context and must be shifted.
    pub full: bool,
    /// Number of forward passes that it took part in.
    pub passes: usize,
    /// Number of prompt tokens that the prefix cache had at its first admission.
    pub cached: Option<usize>,
    /// Positions at which the prefix cache keeps its recurrent states; `None` for texts that no other
    /// will go on from.
    pub snapshots: Option<SnapshotPlan>,
    /// Hidden states for the net that drafts; `None` if another drafter or none does.
    pub pending_states: Option<PendingStates>,
    /// Confidence below which its drafts end.
    pub draft_threshold: f32,
    /// Replaces its drafts.
    pub assumed_drafts: Option<AssumedDrafts>,
    /// Text of another sequence that it waits for before it runs.
    pub awaited: Option<AwaitedPrompt>,
    /// Number of steps since it last got rows.
    pub waited: u32,
    /// True if the request asks for [`EventKind::Slots`].
    watch: bool,
    eos: Vec<u32>,
    /// Number of next tokens that no stop string may end.
    unstoppable: usize,
    /// `None` without a tokenizer, or after a stop string.
    detokenizer: Option<Detokenizer>,
    stops: StopStrings,
}

/// Continuation of a text that is longer than its context.
#[derive(Clone, Copy)]
struct ContextShift {
    /// Number of first tokens that stay.
    keep: usize,
    /// Number of tokens that may follow after the current context.
    left: usize,
}

impl Sequence {
    /// Makes a sequence of at most `context` positions.
    pub fn new(
        id: SeqId,
        request: Request,
        context: usize,
        tokenizer: Option<&Tokenizer>,
        costs: PassCosts,
    ) -> Self {
        let Request { tokens, sampling, stop, stop_scope, eos, mode, watch, cache_salt, .. } =
            request;
        let min_tokens = sampling.min_tokens;
        let max_tokens = request.max_tokens.min(context - tokens.len());
        let left = request.max_tokens - max_tokens;
        let plan = SnapshotPlan::new(tokens.len(), request.stable_prefix, request.message_ends);
        let pending_states = mode.draft_net().map(|_| PendingStates::default());
        let draft_threshold = mode.draft_threshold();
        let snapshots = (!matches!(mode, DecodeMode::Embed(_))).then_some(plan);
        Self {
            id,
            namespace: Namespace { salt: SaltHash::new(&cache_salt), block: mode.clean_block() },
            decoder: mode.decoder(tokens, max_tokens, eos.clone(), sampling, costs),
            finished: false,
            failed: false,
            stopped: None,
            shift: request.context_shift.map(|keep| ContextShift { keep, left }),
            full: false,
            passes: 0,
            cached: None,
            snapshots,
            pending_states,
            draft_threshold,
            assumed_drafts: request.assumed_drafts,
            awaited: None,
            watch,
            waited: 0,
            eos,
            unstoppable: min_tokens,
            detokenizer: tokenizer.map(Detokenizer::new),
            stops: StopStrings::new(stop).within(stop_scope),
        }
    }

    /// Ends of messages in its text, as ends of pages, for the worth of recurrent states.
    pub fn message_ends(&self) -> impl Iterator<Item = (usize, StatePlace)> + Clone + use<> {
        self.snapshots.into_iter().flat_map(|plan| plan.message_ends())
    }

    /// Starts again with a cache that holds the first `cached` positions.
    pub fn resume(&mut self, cached: usize) {
        self.decoder.resume(cached);
        if let Some(pending) = &mut self.pending_states {
            pending.restart(cached);
        }
    }

    /// Returns the decoder's next rows, at most `budget` of them. Counts the steps without rows.
    pub fn next_span(&mut self, seq: KvSeq, budget: usize) -> Option<Span<'_>> {
        let request = if budget > 0 { self.decoder.next_rows(budget) } else { None };
        self.waited = if request.is_some() { 0 } else { self.waited + 1 };
        let RowRequest { start, tokens, attention_mask, logits } = request?;
        Some(Span { seq, start, tokens, attention_mask, logits })
    }

    /// Gives the decoder its logits, and reports the tokens that became final. Returns the number of
    /// positions whose keys and values are final now.
    pub fn accept(&mut self, logits: Logits<'_>, events: &mut VecDeque<Event>) -> usize {
        self.passes += 1;
        let outcome = self.decoder.accept(logits);
        self.apply(outcome, events)
    }

    /// Lets the grammar decide which tokens may follow, and reports the tokens that became final. Stops
    /// when a decision takes longer than is left of `budget`. Returns the number of positions as
    /// [`accept`](Self::accept).
    pub fn guide(&mut self, budget: &mut Duration, events: &mut VecDeque<Event>) -> Option<usize> {
        let mut committed = None;
        while !self.finished && self.decoder.guide_due() {
            let Some(outcome) = self.decoder.guide(budget) else { break };
            committed = Some(self.apply(outcome, events));
        }
        committed
    }

    /// Reports the outcome of a pass, or of the grammar's decision about it. Returns the number of
    /// positions whose keys and values are final.
    fn apply(&mut self, outcome: StepOutcome, events: &mut VecDeque<Event>) -> usize {
        if !outcome.scored.is_empty() {
            events.push_back(self.event(EventKind::Scored(outcome.scored)));
        }
        if let Some(vector) = outcome.embedding {
            events.push_back(self.event(EventKind::Embedded(vector)));
        }
        if let Some(logits) = outcome.logits {
            events.push_back(self.event(EventKind::Logits(logits)));
        }
        self.report(outcome.tokens, events);
        if self.watch && !self.decoder.guide_due() {
            events.push_back(self.event(EventKind::Slots(self.decoder.slots())));
        }
        self.failed = outcome.finished == Some(FinishReason::NotFinite);
        let stopped = self.stopped.map(FinishReason::StopString);
        match (stopped.or(outcome.finished), self.shift) {
            (Some(FinishReason::Length), Some(ContextShift { left: 1.., .. })) => self.full = true,
            (Some(reason), _) => self.finish(reason, events),
            (None, _) => {}
        }
        outcome.committed
    }

    /// Drops the older part of a text that has filled its context, and continues after the rest.
    pub fn shift_context(&mut self, context: usize) {
        let Some(shift) = &mut self.shift else { return };
        let text = shifted(self.decoder.tokens(), shift.keep);
        let next = shift.left.min(context - text.len());
        shift.left -= next;
        self.full = false;
        self.snapshots = Some(SnapshotPlan::new(text.len(), None, MessageEnds::default()));
        self.decoder.restart(text, next);
    }

    /// Reports final tokens, up to a stop string.
    fn report(&mut self, tokens: Vec<Sampled>, events: &mut VecDeque<Event>) {
        for sampled in tokens {
            let (text, stopped) = self.show(&sampled);
            events.push_back(self.event(EventKind::Token { sampled, text }));
            if stopped.is_some() {
                // Text after a stop string is not part of the output.
                self.detokenizer = None;
                self.stopped = stopped;
                return;
            }
        }
    }

    /// Reports the end, with the text that was held back for stop strings.
    pub fn finish(&mut self, reason: FinishReason, events: &mut VecDeque<Event>) {
        let mut text = String::new();
        if let Some(mut detokenizer) = self.detokenizer.take()
            && self.stops.push(&detokenizer.finish(), &mut text).is_none()
        {
            text += &self.stops.finish();
        }
        self.finished = true;
        let (passes, cached) = (self.passes, self.cached.unwrap_or(0));
        let drafts = self.decoder.draft_counts();
        events.push_back(self.event(EventKind::Finished { reason, text, passes, cached, drafts }));
    }

    fn event(&self, kind: EventKind) -> Event {
        Event { seq: self.id, kind }
    }

    /// Returns the text that a token adds, and the index of the stop string that it completes.
    fn show(&mut self, sampled: &Sampled) -> (String, Option<usize>) {
        let mut shown = String::new();
        let early = self.unstoppable > 0;
        self.unstoppable = self.unstoppable.saturating_sub(1);
        let stopped = match &mut self.detokenizer {
            Some(detokenizer) if early => {
                self.stops.pass(&detokenizer.push(sampled.token), &mut shown);
                None
            }
            Some(detokenizer) if !self.eos.contains(&sampled.token) => {
                self.stops.push(&detokenizer.push(sampled.token), &mut shown).map(|s| s.index)
            }
            _ => None,
        };
        (shown, stopped)
    }
}

/// Returns the first `keep` tokens and the newer half of the rest.
fn shifted(tokens: &[u32], keep: usize) -> Vec<u32> {
    let dropped = (tokens.len() - keep).div_ceil(2);
    [&tokens[..keep], &tokens[keep + dropped..]].concat()
}

#[cfg(test)]
mod tests {
    use super::shifted;

    #[test]
    fn the_first_tokens_and_the_newer_half_of_the_rest_stay() {
        for (keep, want) in [
            (0, &[5, 6, 7, 8][..]),
            (1, &[0, 5, 6, 7, 8]),
            (4, &[0, 1, 2, 3, 7, 8]),
            (7, &[0, 1, 2, 3, 4, 5, 6, 8]),
            (8, &[0, 1, 2, 3, 4, 5, 6, 7]),
        ] {
            assert_eq!(shifted(&[0, 1, 2, 3, 4, 5, 6, 7, 8], keep), want, "{keep}");
        }
        assert_eq!(shifted(&[0, 1], 0), [1]);
    }
}
