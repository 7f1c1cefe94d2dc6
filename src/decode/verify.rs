//! Lossless decoding in fewer passes: a cheap draft of the next tokens, and one autoregressive pass
//! that checks it.
//!
//! Every token is sampled from the logits of the autoregressive path, in order and with the random
//! number of its place; the draft only decides how many rows of one pass turn out to be of use. So
//! the output is that of [`Autoregressive`], token for token, at any temperature (a forward pass
//! gives a row the same bits whatever stands beside it).

use super::draft::Drafter;
use super::reach::Reach;
use super::{Ask, Autoregressive, Decoder, Progress, Slot};
use crate::batch_types::{AttentionMask, LogitRows, Logits};

/// Decodes autoregressively with drafts.
pub struct Verify {
    ar: Autoregressive,
    drafter: Drafter,
    /// The known token that comes next, and the draft that follows it: MASKs while the model is to
    /// draft.
    input: Vec<u32>,
    /// Rows of a drafting pass that predict the masked slots.
    rows: Vec<usize>,
    drafting: bool,
    /// Tokens that the last pass which checked anything made final.
    settled: usize,
    reach: Reach,
}

impl Verify {
    /// The same output as `ar`, with drafts by `drafter`. One more row in a pass costs `row_cost`
    /// as a share of a pass of one row: drafts are as long as that is worth, and there are none
    /// while they cost more than they give.
    pub fn new(ar: Autoregressive, drafter: Drafter, row_cost: f32) -> Self {
        let (input, rows, reach) =
            (Vec::new(), Vec::new(), Reach::new(drafter.passes() + 1, row_cost));
        Self { ar, drafter, input, rows, drafting: false, settled: 0, reach }
    }

    /// Rows of the next pass, when the prompt has been read.
    fn next(&self, budget: usize) -> usize {
        self.input.len().min(budget)
    }

    /// Prepares the next round: there is one known token that is not in the cache.
    fn plan(&mut self) {
        let (tokens, left) = (self.ar.tokens(), self.ar.left());
        self.input.clear();
        self.input.extend(tokens.last());
        let most = self.reach.length(left.saturating_sub(1).min(self.drafter.length()));
        self.drafting = self.drafter.extend(tokens, most, &mut self.input);
        self.rows.clear();
        self.rows.extend(self.drafter.rows(self.input.len() - 1));
    }

    /// Takes the model's draft: the best token that is not MASK for each slot.
    fn drafted(&mut self, logits: Logits<'_>) -> Progress {
        self.input.truncate(1);
        self.input.extend((0..logits.len()).map(|row| self.drafter.best(logits.row(row))));
        self.drafting = false;
        self.ar.progress()
    }

    /// Keeps the drafted tokens that the model would have chosen, and the one that it chose instead.
    fn verified(&mut self, logits: Logits<'_>) -> Progress {
        let (mut progress, drafted) = (Progress::default(), self.input.len() - 1);
        let mut accepted = 0;
        for row in 0..logits.len() {
            self.ar.extend(logits.row(row), &mut progress);
            let agrees = self.input.get(row + 1) == self.ar.tokens().last();
            if progress.finished.is_some() || !agrees {
                break;
            }
            accepted += 1;
        }
        self.settled = progress.tokens.len();
        self.reach.learn(drafted, accepted.min(drafted));
        self.plan();
        progress
    }
}

impl Decoder for Verify {
    fn ask(&self, budget: usize) -> Option<Ask<'_>> {
        let ask = self.ar.ask(budget)?;
        if self.input.is_empty() {
            return Some(ask);
        }
        let tokens = &self.input[..self.next(budget)];
        let (attention_mask, logits) = match self.drafting {
            true => {
                let fit = self.rows.partition_point(|&row| row < tokens.len());
                (
                    AttentionMask::Prefix(ask.start + tokens.len()),
                    LogitRows::Only(&self.rows[..fit]),
                )
            }
            false => (AttentionMask::Causal, LogitRows::All),
        };
        Some(Ask { tokens, attention_mask, logits, ..ask })
    }

    fn take(&mut self, budget: usize, logits: Logits<'_>) -> Progress {
        if self.input.is_empty() {
            let progress = self.ar.take(budget, logits);
            self.settled = progress.tokens.len();
            if self.settled > 0 {
                self.plan();
            }
            return progress;
        }
        self.input.truncate(self.next(budget));
        if self.drafting { self.drafted(logits) } else { self.verified(logits) }
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
        // A new round begins when the text has been read: drafts change no token.
        self.input.clear();
        self.ar.resume(cached);
    }

    fn restart(&mut self, text: Vec<u32>, max_tokens: usize) {
        self.input.clear();
        self.settled = 0;
        self.ar.restart(text, max_tokens);
    }

    fn slots(&self) -> Vec<Slot> {
        let tokens = self.ar.tokens();
        // The token before a draft is known, whichever pass settled it.
        let known = self.settled.max(usize::from(!self.input.is_empty()));
        let settled = tokens[tokens.len() - known..].iter().map(|&token| Slot::Final(token, None));
        let draft = self.input.iter().skip(1).map(|&token| match self.drafting {
            true => Slot::Masked,
            false => Slot::Provisional(token, None),
        });
        settled.chain(draft).collect()
    }
}
