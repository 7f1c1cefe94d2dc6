//! The state of llguidance in one output.

use llguidance::Matcher;
use llguidance::api::StopReason;
use std::fmt;
use std::time::{Duration, Instant};
use wrinklefree::decode::{Constraint, Next};

/// The state of llguidance in one output.
pub struct Guided {
    matcher: Matcher,
    vocab: usize,
    /// Accepted tokens that the matcher has not consumed: consuming is as expensive as a mask, so it
    /// belongs to the time of [`Constraint::next`].
    pending: Vec<u32>,
    /// Time that the last [`Constraint::next`] took.
    time: Duration,
}

impl Guided {
    /// Makes the state at the beginning of an output of a model with `vocab` tokens.
    pub fn new(matcher: Matcher, vocab: usize) -> Self {
        Self { matcher, vocab, pending: Vec::new(), time: Duration::ZERO }
    }

    fn compute(&mut self) -> Next {
        if !self.pending.is_empty() {
            // The reason to stop has the error.
            let _ = self.matcher.consume_tokens(&self.pending);
            self.pending.clear();
        }
        match self.matcher.stop_reason() {
            StopReason::NotStopped => {}
            StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence => {
                return Next::End;
            }
            other => {
                let why = self.matcher.get_error().unwrap_or_else(|| format!("{other:?}"));
                return Next::Unknown(why);
            }
        }
        match self.matcher.compute_mask() {
            Ok(set) if (0..self.vocab as u32).any(|token| set.is_allowed(token)) => {
                Next::Tokens(set.as_slice().to_vec())
            }
            Ok(_) => Next::End,
            Err(error) => Next::Unknown(error.to_string()),
        }
    }
}

impl fmt::Debug for Guided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guided").finish_non_exhaustive()
    }
}

impl Constraint for Guided {
    fn next(&mut self) -> Next {
        let begin = Instant::now();
        let next = self.compute();
        self.time = begin.elapsed();
        next
    }

    fn accept(&mut self, token: u32) {
        self.pending.push(token);
    }

    fn rewind(&mut self, tokens: usize) {
        let pending = tokens.min(self.pending.len());
        self.pending.truncate(self.pending.len() - pending);
        if tokens > pending {
            // The next call of `next` reports the error.
            let _ = self.matcher.rollback(tokens - pending);
        }
    }

    fn last_time(&self) -> Duration {
        self.time
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        let (matcher, pending) = (self.matcher.deep_clone(), self.pending.clone());
        Box::new(Self { matcher, pending, ..*self })
    }
}
