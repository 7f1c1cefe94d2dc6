//! The state of llguidance in one output.

use super::step_queue::compute;
use llguidance::Matcher;
use llguidance::api::StopReason;
use std::fmt;
use std::mem;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wrinklefree::decode::{Constraint, Next};

/// Time that [`Constraint::poll`] waits for a step that was late before.
const LATE: Duration = Duration::from_micros(500);

/// The state of llguidance in one output.
pub struct Guided {
    matcher: Mutex<State>,
    vocab: usize,
    /// Accepted tokens that the matcher has not consumed: consuming is as expensive as a mask, so it
    /// belongs to the next step.
    pending: Vec<u32>,
    /// Time that the last step took.
    time: Duration,
}

enum State {
    Ready(Box<Matcher>),
    /// A thread computes the next step.
    Computing(Receiver<Step>),
    /// The thread panicked.
    Lost,
}

/// A step that is computed: the matcher behind it, what may follow, and the time that it took.
struct Step {
    matcher: Box<Matcher>,
    next: Next,
    time: Duration,
}

impl Guided {
    /// Makes the state at the beginning of an output of a model with `vocab` tokens.
    pub fn new(matcher: Matcher, vocab: usize) -> Self {
        let matcher = Mutex::new(State::Ready(Box::new(matcher)));
        Self { matcher, vocab, pending: Vec::new(), time: Duration::ZERO }
    }

    fn state(&mut self) -> &mut State {
        self.matcher.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next step on another thread, unless it runs. Returns the time for which it is waited.
    fn start(&mut self, budget: Duration) -> Duration {
        let (vocab, time) = (self.vocab, self.time);
        let pending = mem::take(&mut self.pending);
        let state = self.state();
        match mem::replace(state, State::Lost) {
            State::Ready(matcher) => {
                *state = State::Computing(compute(time, move || step(matcher, &pending, vocab)));
                budget
            }
            other => {
                *state = other;
                LATE.min(budget)
            }
        }
    }

    /// Waits until the step that a thread computes is there, for at most `time`.
    fn receive(&mut self, time: Duration) -> Option<Next> {
        let State::Computing(step) = self.state() else { return Some(lost()) };
        match step.recv_timeout(time) {
            Ok(Step { matcher, next, time }) => {
                *self.state() = State::Ready(matcher);
                self.time = time;
                Some(next)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                *self.state() = State::Lost;
                Some(lost())
            }
        }
    }
}

impl State {
    /// Returns the matcher, behind the step that a thread computes.
    fn matcher(&mut self) -> Option<&mut Matcher> {
        if let Self::Computing(step) = self {
            *self = step.recv().map_or(Self::Lost, |step| Self::Ready(step.matcher));
        }
        match self {
            Self::Ready(matcher) => Some(matcher),
            _ => None,
        }
    }
}

/// The result of a step whose thread panicked.
fn lost() -> Next {
    Next::Unknown("its computation failed".into())
}

/// Consumes tokens and computes which may follow.
fn step(mut matcher: Box<Matcher>, pending: &[u32], vocab: usize) -> Step {
    let begin = Instant::now();
    let next = next(&mut matcher, pending, vocab);
    Step { matcher, next, time: begin.elapsed() }
}

fn next(matcher: &mut Matcher, pending: &[u32], vocab: usize) -> Next {
    if !pending.is_empty() {
        // The reason to stop has the error.
        let _ = matcher.consume_tokens(pending);
    }
    match matcher.stop_reason() {
        StopReason::NotStopped => {}
        StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence => {
            return Next::End;
        }
        other => {
            let why = matcher.get_error().unwrap_or_else(|| format!("{other:?}"));
            return Next::Unknown(why);
        }
    }
    match matcher.compute_mask() {
        Ok(set) if (0..vocab as u32).any(|token| set.is_allowed(token)) => {
            Next::Tokens(set.as_slice().to_vec())
        }
        Ok(_) => Next::End,
        Err(error) => Next::Unknown(error.to_string()),
    }
}

impl fmt::Debug for Guided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guided").finish_non_exhaustive()
    }
}

impl Constraint for Guided {
    fn next(&mut self) -> Next {
        let (pending, vocab) = (mem::take(&mut self.pending), self.vocab);
        match self.state().matcher() {
            Some(matcher) => next(matcher, &pending, vocab),
            None => lost(),
        }
    }

    fn poll(&mut self, budget: &mut Duration) -> Option<Next> {
        let begin = Instant::now();
        let wait = self.start(*budget);
        let next = self.receive(wait);
        *budget = budget.saturating_sub(begin.elapsed());
        next
    }

    fn accept(&mut self, token: u32) {
        self.pending.push(token);
    }

    fn rewind(&mut self, tokens: usize) {
        let pending = tokens.min(self.pending.len());
        self.pending.truncate(self.pending.len() - pending);
        if tokens > pending
            && let Some(matcher) = self.state().matcher()
        {
            // The next step reports the error.
            let _ = matcher.rollback(tokens - pending);
        }
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        let mut state = self.matcher.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = state.matcher().map_or(State::Lost, |m| State::Ready(Box::new(m.deep_clone())));
        let (matcher, pending) = (Mutex::new(copy), self.pending.clone());
        Box::new(Self { matcher, pending, ..*self })
    }
}
