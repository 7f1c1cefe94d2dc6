//! Lossless speculative decoding: a cheap draft of the next tokens, and one autoregressive pass that
//! verifies it.
//!
//! Every token is sampled from the logits of the autoregressive path, in order and with the random
//! number of its position. The draft only decides how many rows of the pass are of use. So the output is
//! that of [`Autoregressive`], token for token, at any temperature. This needs a forward pass that gives
//! a row the same bits whatever rows are next to it.

use super::draft::{DraftCounts, Drafter};
use super::draft_length::DraftLength;
use super::pass_costs::PassCosts;
use super::{Autoregressive, Decoder, HeldLogits, RowRequest, Sampler, Slot, StepOutcome};
use crate::batch_types::{AttentionMask, LogitRows, Logits};
use std::time::Duration;

/// Lossless speculative decoding: the output of [`Autoregressive`] in fewer passes.
pub struct Verify {
    ar: Autoregressive,
    drafter: Drafter,
    /// Tokens of the next pass: the last known token, and the draft after it. While the model drafts,
    /// the draft is MASK tokens. Empty while the text is being read.
    input: Vec<u32>,
    /// Rows of a drafting pass that predict the masked slots.
    rows: Vec<usize>,
    /// Number of tokens that the engine is to draft before the next pass.
    due: usize,
    /// True if the next pass fills the draft; otherwise it verifies the draft.
    drafting: bool,
    /// Number of tokens that the last verifying pass made final.
    settled: usize,
    /// Rows after the last settled token, which the grammar has to judge first.
    held: Option<HeldLogits>,
    draft_length: DraftLength,
    /// Drafts that were verified.
    counts: DraftCounts,
}

impl Verify {
    /// Makes a decoder with the output of `ar` and drafts by `drafter`. Drafts are as
    /// long as these costs of passes pay off, and there are none while they cost more than they save.
    pub fn new(ar: Autoregressive, drafter: Drafter, costs: PassCosts) -> Self {
        let draft_length = DraftLength::new(drafter.passes() + 1, costs, drafter.costs(&costs));
        let (input, rows, held, due) = (Vec::new(), Vec::new(), None, 0);
        let (drafting, settled) = (false, 0);
        let counts = DraftCounts::default();
        Self { ar, drafter, input, rows, due, drafting, settled, held, draft_length, counts }
    }

    /// Prepares the next round; the last token is known and not in the cache.
    fn plan(&mut self) {
        let (tokens, left) = (self.ar.tokens(), self.ar.left());
        self.input.clear();
        self.input.extend(tokens.last());
        let most = self.draft_length.length(left.saturating_sub(1).min(self.drafter.length()));
        self.due = if matches!(self.drafter, Drafter::Net { .. }) { most } else { 0 };
        self.drafting = self.drafter.extend(tokens, most, &mut self.input);
        self.rows.clear();
        self.rows.extend(self.drafter.rows(self.input.len() - 1));
    }

    /// Fills the draft: the most likely token except MASK for each slot.
    fn fill_draft(&mut self, logits: Logits<'_>) -> StepOutcome {
        self.input.truncate(1);
        self.input.extend((0..logits.len()).map(|row| self.drafter.best(logits.row(row))));
        self.drafting = false;
        self.ar.outcome()
    }

    /// Accepts the drafted tokens up to the first one that differs from the sampled token, and this
    /// sampled token. `logits` are the rows after the settled tokens. Stops where the grammar is due.
    fn verify(&mut self, logits: Logits<'_>, outcome: &mut StepOutcome) {
        for row in 0..logits.len() {
            self.ar.extend(logits.row(row), outcome);
            self.settled += 1;
            let agrees = self.input.get(self.settled) == self.ar.tokens().last();
            if outcome.finished.is_some() || !agrees {
                break;
            }
            if self.ar.guide_due() {
                self.held = Some(HeldLogits::new(logits.split(row + 1).1));
                return;
            }
        }
        self.end_round();
    }

    /// Records how much of the draft was right, and prepares the next round.
    fn end_round(&mut self) {
        // The last settled token is not the draft's.
        let (drafted, accepted) = (self.input.len() - 1, self.settled - 1);
        self.draft_length.record(drafted, accepted);
        if drafted > 0 {
            let (drafted, accepted) = (drafted as u64, accepted as u64);
            self.counts.add(DraftCounts { drafts: 1, drafted, accepted });
        }
        self.plan();
    }
}

impl Decoder for Verify {
    fn next_rows(&mut self, budget: usize) -> Option<RowRequest<'_>> {
        if self.input.is_empty() || self.ar.finished() {
            return self.ar.next_rows(budget);
        }
        self.input.truncate(budget);
        let (start, tokens) = (self.ar.cached(), &self.input[..]);
        let (attention_mask, logits) = if self.drafting {
            let fit = self.rows.partition_point(|&row| row < tokens.len());
            (AttentionMask::Draft(start + tokens.len()), LogitRows::Only(&self.rows[..fit]))
        } else {
            (AttentionMask::Causal, LogitRows::All)
        };
        Some(RowRequest { start, tokens, attention_mask, logits })
    }

    fn accept(&mut self, logits: Logits<'_>) -> StepOutcome {
        if self.input.is_empty() {
            let outcome = self.ar.accept(logits);
            self.settled = outcome.tokens.len();
            if self.settled > 0 {
                self.plan();
            }
            return outcome;
        }
        if self.drafting {
            return self.fill_draft(logits);
        }
        let mut outcome = StepOutcome::default();
        self.settled = 0;
        self.verify(logits, &mut outcome);
        outcome
    }

    fn share_pass(&mut self, sequences: usize) {
        self.draft_length.share_pass(sequences);
    }

    fn guide_due(&self) -> bool {
        self.ar.guide_due()
    }

    fn guide(&mut self, budget: &mut Duration) -> Option<StepOutcome> {
        let mut outcome = self.ar.guide(budget)?;
        if !self.guide_due()
            && let Some(held) = self.held.take()
        {
            match outcome.finished {
                Some(_) => self.end_round(),
                None => self.verify(held.view(), &mut outcome),
            }
        }
        Some(outcome)
    }

    fn next_end(&self) -> usize {
        if self.input.is_empty() {
            self.ar.next_end()
        } else {
            self.ar.cached() + self.input.len() + self.due
        }
    }

    fn draft_due(&self) -> usize {
        if self.guide_due() || self.ar.finished() { 0 } else { self.due }
    }

    fn draft_sampler(&self) -> Option<Sampler> {
        self.ar.draft_sampler()
    }

    fn take_draft(&mut self, draft: &[u32]) {
        if draft.is_empty() && self.due > 0 {
            // It cost as much as one whose first token is wrong.
            self.draft_length.record(1, 0);
        }
        self.input.extend(draft.iter().take(self.due));
        self.due = 0;
    }

    fn skip_draft(&mut self) {
        self.due = 0;
    }

    fn draft_counts(&self) -> DraftCounts {
        self.counts
    }

    fn prefilling(&self) -> bool {
        self.ar.prefilling()
    }

    fn tokens(&self) -> &[u32] {
        self.ar.tokens()
    }

    fn skippable(&self) -> usize {
        self.ar.skippable()
    }

    fn resume(&mut self, cached: usize) {
        // A new round begins when the text has been read. Drafts change no token.
        self.input.clear();
        self.due = 0;
        self.held = None;
        self.ar.resume(cached);
    }

    fn restart(&mut self, text: Vec<u32>, max_tokens: usize) {
        self.input.clear();
        (self.due, self.settled) = (0, 0);
        self.ar.restart(text, max_tokens);
    }

    fn slots(&self) -> Vec<Slot> {
        let tokens = self.ar.tokens();
        // The token before a draft is final, whichever pass sampled it.
        let known = self.settled.max(usize::from(!self.input.is_empty()));
        let settled = tokens[tokens.len() - known..].iter().map(|&token| Slot::Final(token, None));
        let draft = self.input.iter().skip(1).map(|&token| {
            if self.drafting { Slot::Masked } else { Slot::Provisional(token, None) }
        });
        let due = std::iter::repeat_n(Slot::Masked, self.due);
        settled.chain(draft).chain(due).collect()
    }
}
