//! The state of llguidance in one output.

use super::slashes::SlashMatcher;
use super::step_queue::compute;
use llguidance::api::StopReason;
use std::fmt;
use std::mem;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wrinklefree::decode::{Constraint, Next};

/// Time that [`Constraint::poll`] waits for a step that was late before.
const LATE: Duration = Duration::from_micros(500);

/// The state of llguidance in one output. What takes long happens on other threads, also where the output
/// is rewound. Only [`Constraint::next`] and copies wait for a step: engines call them before a request
/// runs, when nothing has to be computed.
pub struct Guided {
    matcher: Mutex<State>,
    vocab: usize,
    /// Tokens to remove from the matcher, then tokens for it to consume: both are as expensive as a mask,
    /// so they belong to the next step.
    removed: usize,
    pending: Vec<u32>,
    /// Tokens allowed at the beginning, until a token is accepted. Copies need not compute it again.
    known: Option<Next>,
    /// Time that the last step took.
    time: Duration,
}

enum State {
    Ready(Box<SlashMatcher>),
    /// A thread computes the next step. If it is `stale`, tokens were removed since, and only its
    /// matcher is of use.
    Computing {
        step: Receiver<Step>,
        stale: bool,
    },
    /// The thread panicked.
    Lost,
}

/// A step that is computed: the matcher after it, what may follow, and the time that it took.
struct Step {
    matcher: Box<SlashMatcher>,
    next: Next,
    time: Duration,
}

impl Guided {
    /// Makes the state at the beginning of an output of a model with `vocab` tokens.
    pub fn new(matcher: SlashMatcher, vocab: usize) -> Self {
        let matcher = Mutex::new(State::Ready(Box::new(matcher)));
        Self { matcher, vocab, removed: 0, pending: Vec::new(), known: None, time: Duration::ZERO }
    }

    fn state(&mut self) -> &mut State {
        self.matcher.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next step on another thread, unless one runs. Returns the time for which it is waited.
    fn start(&mut self, budget: Duration) -> Duration {
        match mem::replace(self.state(), State::Lost) {
            State::Ready(matcher) => {
                let (vocab, time, removed) = (self.vocab, self.time, mem::take(&mut self.removed));
                let pending = mem::take(&mut self.pending);
                let step = compute(time, move || step(matcher, removed, &pending, vocab));
                *self.state() = State::Computing { step, stale: false };
                budget
            }
            other => {
                *self.state() = other;
                LATE.min(budget)
            }
        }
    }

    /// Waits until the step that a thread computes is there, for at most `time`.
    fn receive(&mut self, time: Duration) -> Option<Next> {
        let State::Computing { step, stale } = self.state() else { return Some(lost()) };
        let stale = *stale;
        match step.recv_timeout(time) {
            Ok(Step { matcher, next, time }) => {
                *self.state() = State::Ready(matcher);
                self.time = time;
                (!stale).then_some(next)
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
    /// Returns the matcher, after the step that a thread computes.
    fn matcher(&mut self) -> Option<&mut SlashMatcher> {
        if let Self::Computing { step, .. } = self {
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

/// Removes tokens, consumes others, and computes which may follow.
fn step(mut matcher: Box<SlashMatcher>, removed: usize, pending: &[u32], vocab: usize) -> Step {
    let begin = Instant::now();
    let next = next(&mut matcher, removed, pending, vocab);
    Step { matcher, next, time: begin.elapsed() }
}

fn next(matcher: &mut SlashMatcher, removed: usize, pending: &[u32], vocab: usize) -> Next {
    matcher.remove(removed);
    matcher.read(pending);
    match matcher.stop_reason() {
        StopReason::NotStopped => {}
        StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence => {
            return Next::End;
        }
        other => {
            let why = matcher.error().unwrap_or_else(|| format!("{other:?}"));
            return Next::Unknown(why);
        }
    }
    match matcher.mask() {
        Ok(set) if (0..vocab as u32).any(|token| set.is_allowed(token)) => {
            Next::Tokens(set.as_slice().to_vec())
        }
        Ok(_) => Next::End,
        Err(error) => Next::Unknown(error),
    }
}

impl fmt::Debug for Guided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guided").finish_non_exhaustive()
    }
}

impl Constraint for Guided {
    fn next(&mut self) -> Next {
        if let Some(known) = &self.known {
            return known.clone();
        }
        let (removed, vocab) = (mem::take(&mut self.removed), self.vocab);
        let pending = mem::take(&mut self.pending);
        let computed = match self.state().matcher() {
            Some(matcher) => next(matcher, removed, &pending, vocab),
            None => lost(),
        };
        self.known.insert(computed).clone()
    }

    fn poll(&mut self, budget: &mut Duration) -> Option<Next> {
        if let Some(known) = &self.known {
            return Some(known.clone());
        }
        let begin = Instant::now();
        let wait = self.start(*budget);
        let next = self.receive(wait);
        *budget = budget.saturating_sub(begin.elapsed());
        next
    }

    fn accept(&mut self, token: u32) {
        self.known = None;
        self.pending.push(token);
    }

    fn rewind(&mut self, tokens: usize) {
        if tokens == 0 {
            return;
        }
        self.known = None;
        let pending = tokens.min(self.pending.len());
        self.pending.truncate(self.pending.len() - pending);
        self.removed += tokens - pending;
        if let State::Computing { stale, .. } = self.state() {
            *stale = true;
        }
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        let mut state = self.matcher.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = state.matcher().map_or(State::Lost, |m| State::Ready(Box::new(m.deep_clone())));
        let (matcher, pending) = (Mutex::new(copy), self.pending.clone());
        Box::new(Self { matcher, pending, known: self.known.clone(), ..*self })
    }
}
