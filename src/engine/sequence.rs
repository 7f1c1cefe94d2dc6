//! A sequence: its decoder and its text.

use super::{Event, Request, SeqId};
use crate::batch_types::Logits;
use crate::cache::{KvSeq, Namespace};
use crate::decode::{Decoder, FinishReason, Sampled};
use crate::model::Span;
use crate::text::{Detokenizer, StopStrings, Tokenizer};
use std::collections::VecDeque;

pub(super) struct Sequence {
    pub id: SeqId,
    /// Namespace of the sequences that it may share pages with.
    pub namespace: Namespace,
    pub decoder: Box<dyn Decoder + Send>,
    pub finished: bool,
    /// The stop string that is complete.
    stopped: Option<usize>,
    /// What of a full text stays, and how many tokens may follow then.
    shift: Option<(usize, usize)>,
    /// The text has filled its context and is to go on.
    pub full: bool,
    /// Forward passes that it took part in.
    pub passes: usize,
    /// Tokens of the prompt that others had computed; known when it has first been admitted.
    pub cached: Option<usize>,
    /// Steps since it last got rows.
    pub waited: u32,
    watch: bool,
    eos: Vec<u32>,
    /// `None` without a tokenizer: the output is ids alone.
    detokenizer: Option<Detokenizer>,
    stops: StopStrings,
}

impl Sequence {
    /// A sequence of at most `context` positions.
    pub fn new(
        id: SeqId,
        request: Request,
        context: usize,
        tokenizer: Option<&Tokenizer>,
        row_cost: f32,
    ) -> Self {
        let Request { tokens, sampling, stop, eos, mode, watch, cache_salt, .. } = request;
        let max_tokens = request.max_tokens.min(context - tokens.len());
        let more = request.max_tokens - max_tokens;
        Self {
            id,
            namespace: Namespace { salt: cache_salt, block: mode.clean_block() },
            decoder: mode.decoder(tokens, max_tokens, eos.clone(), sampling, row_cost),
            finished: false,
            stopped: None,
            shift: request.context_shift.map(|keep| (keep, more)),
            full: false,
            passes: 0,
            cached: None,
            watch,
            waited: 0,
            eos,
            detokenizer: tokenizer.map(Detokenizer::new),
            stops: StopStrings::new(stop),
        }
    }

    /// The decoder's next rows, at most `share`.
    pub fn span(&self, kv: KvSeq, share: usize) -> Span<'_> {
        let ask = self.decoder.ask(share).expect("ended sequences are released");
        Span {
            seq: kv,
            start: ask.start,
            tokens: ask.tokens,
            attention_mask: ask.attention_mask,
            logits: ask.logits,
        }
    }

    /// Gives the decoder its logits and reports what became final; returns the positions that are
    /// part of the sequence now.
    pub fn take(
        &mut self,
        share: usize,
        logits: Logits<'_>,
        events: &mut VecDeque<Event>,
    ) -> usize {
        self.passes += 1;
        let progress = self.decoder.take(share, logits);
        if !progress.scored.is_empty() {
            events.push_back(Event::Scored { seq: self.id, tokens: progress.scored });
        }
        if let Some(vector) = progress.pooled {
            events.push_back(Event::Embedded { seq: self.id, vector });
        }
        self.report(progress.tokens, events);
        if self.watch {
            let slots = self.decoder.slots();
            events.push_back(Event::Slots { seq: self.id, slots });
        }
        let stopped = self.stopped.map(FinishReason::StopString);
        match (stopped.or(progress.finished), self.shift) {
            (Some(FinishReason::Length), Some((_, 1..))) => self.full = true,
            (Some(reason), _) => self.finish(reason, events),
            (None, _) => {}
        }
        progress.committed
    }

    /// Goes on behind what stays of a full text.
    pub fn shift(&mut self, context: usize) {
        let Some((keep, more)) = &mut self.shift else { return };
        let text = shifted(self.decoder.tokens(), *keep);
        let next = (*more).min(context - text.len());
        *more -= next;
        self.full = false;
        self.decoder.restart(text, next);
    }

    /// Reports final tokens, up to a stop string.
    fn report(&mut self, tokens: Vec<Sampled>, events: &mut VecDeque<Event>) {
        for sampled in tokens {
            let (text, stopped) = self.show(&sampled);
            events.push_back(Event::Token { seq: self.id, sampled, text });
            if stopped.is_some() {
                // What stands after a stop string is not part of the text.
                self.detokenizer = None;
                self.stopped = stopped;
                return;
            }
        }
    }

    /// Reports the end, with the text that was still held back.
    pub fn finish(&mut self, reason: FinishReason, events: &mut VecDeque<Event>) {
        let mut text = String::new();
        if let Some(mut detokenizer) = self.detokenizer.take()
            && self.stops.push(&detokenizer.finish(), &mut text).is_none()
        {
            text += &self.stops.finish();
        }
        self.finished = true;
        let (seq, passes, cached) = (self.id, self.passes, self.cached.unwrap_or(0));
        events.push_back(Event::Finished { seq, reason, text, passes, cached });
    }

    /// The text that a token adds, and the stop string that is complete.
    fn show(&mut self, sampled: &Sampled) -> (String, Option<usize>) {
        let mut shown = String::new();
        let stopped = match &mut self.detokenizer {
            Some(detokenizer) if !self.eos.contains(&sampled.token) => {
                self.stops.push(&detokenizer.push(sampled.token), &mut shown).map(|s| s.index)
            }
            _ => None,
        };
        (shown, stopped)
    }
}

/// A text without the older half of what follows its first `keep` tokens.
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
