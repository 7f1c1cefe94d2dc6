//! A grammar for the engine's tests.

use super::VOCAB;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wrinklefree::decode::{Constraint, Next};

/// A grammar: token i of the output is i or i + 1 modulo 5, and the text ends after `length` tokens.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    pub length: usize,
    pub output: Vec<u32>,
    /// Time that a step says it takes.
    pub time: Duration,
    /// Number of calls of `poll` for which a step is not ready.
    pub polls: usize,
    pub late: usize,
    /// Number of calls of `next`.
    pub calls: Arc<AtomicUsize>,
}

impl Steps {
    fn allows(&self, place: usize, token: u32) -> bool {
        let rest = (token as usize + 5 - place % 5) % 5;
        rest < 2 && (token as usize) < VOCAB
    }
}

impl Constraint for Steps {
    fn next(&mut self) -> Next {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let place = self.output.len();
        if place == self.length {
            return Next::End;
        }
        let bit = |token: u32| u64::from(self.allows(place, token)) << token;
        let set = (0..VOCAB as u32).map(bit).sum::<u64>();
        Next::Tokens(vec![set as u32, (set >> 32) as u32])
    }

    fn accept(&mut self, token: u32) {
        assert!(self.allows(self.output.len(), token), "{token} after {:?}", self.output);
        self.output.push(token);
    }

    fn rewind(&mut self, tokens: usize) {
        self.output.truncate(self.output.len() - tokens);
    }

    fn poll(&mut self, budget: &mut Duration) -> Option<Next> {
        if self.late < self.polls {
            self.late += 1;
            return None;
        }
        self.late = 0;
        *budget = budget.saturating_sub(self.time);
        Some(self.next())
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}
