//! Shares the machine between the engines of several models: one computes at a time, and each gets the
//! same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two passes after which an engine was idle. Others may take a turn in shorter pauses, but
/// it catches up.
const IDLE: Duration = Duration::from_millis(50);

/// Time that an engine with more time waits for the one that has just ended a pass: that engine samples and
/// comes back. Without it, engines would take turns whatever their passes take.
const GRACE: Duration = Duration::from_millis(5);

/// Passes of all engines.
#[derive(Debug, Default)]
pub struct ComputeTurns {
    state: Mutex<TurnState>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    /// True if an engine computes.
    busy: bool,
    /// Time that the engines that wait have had, by number.
    waiting: BTreeMap<u64, Duration>,
    /// Time of the engine that computes or was the last to do so.
    clock: Duration,
    /// The engine that ended a pass last, the time that it had, and the end.
    last: Option<(u64, Duration, Instant)>,
    /// Number of engines so far.
    engines: u64,
}

/// The turns of one engine.
#[derive(Debug)]
pub struct EngineTurns {
    turns: Arc<ComputeTurns>,
    number: u64,
    /// Time that it had. An engine that was idle does not catch up.
    used: Duration,
    /// End of its last pass.
    left: Option<Instant>,
}

impl ComputeTurns {
    /// Adds an engine.
    pub fn engine(self: &Arc<Self>) -> EngineTurns {
        let mut state = self.lock();
        state.engines += 1;
        EngineTurns { turns: self.clone(), number: state.engines, used: state.clock, left: None }
    }

    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnState {
    /// Returns true if it is this engine's turn: of those that wait it has had the least time.
    fn is_next(&self, number: u64) -> bool {
        let least = self.waiting.iter().min_by_key(|(number, used)| (**used, **number));
        !self.busy && least.is_some_and(|(least, _)| *least == number)
    }

    /// Returns how long an engine that had `used` waits for the one that ended a pass last.
    fn grace(&self, used: Duration) -> Option<Duration> {
        let (number, had, end) = self.last?;
        let absent = had < used && !self.waiting.contains_key(&number);
        absent.then(|| GRACE.checked_sub(end.elapsed())).flatten()
    }
}

impl EngineTurns {
    /// Returns true if no other engine computes, waits for its turn, or did so a moment ago.
    pub fn is_alone(&self) -> bool {
        let state = self.turns.lock();
        let is_other = |number: u64| number != self.number;
        let recent =
            state.last.is_some_and(|(number, _, end)| is_other(number) && end.elapsed() < IDLE);
        !(state.busy || recent || state.waiting.keys().any(|number| is_other(*number)))
    }

    /// Runs `pass` when it is this engine's turn.
    pub fn run<T>(&mut self, pass: impl FnOnce() -> T) -> T {
        let turns = self.turns.clone();
        let mut state = turns.lock();
        if self.left.is_none_or(|left| left.elapsed() > IDLE) {
            self.used = self.used.max(state.clock);
        }
        state.waiting.insert(self.number, self.used);
        // An engine that waits for this one goes on.
        turns.free.notify_all();
        loop {
            let rest = if state.is_next(self.number) {
                state.grace(self.used)
            } else {
                // The end of the pass wakes all.
                Some(IDLE)
            };
            let Some(rest) = rest else { break };
            let waited = turns.free.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting.remove(&self.number);
        (state.busy, state.clock) = (true, self.used);
        drop(state);
        let begin = Instant::now();
        let turn = Turn(self, begin);
        let result = pass();
        drop(turn);
        result
    }
}

/// A turn since a time, which ends when it is dropped, also by a panic.
struct Turn<'a>(&'a mut EngineTurns, Instant);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Self(engine, begin) = self;
        let end = Instant::now();
        engine.used += end - *begin;
        engine.left = Some(end);
        let mut state = engine.turns.lock();
        (state.busy, state.last) = (false, Some((engine.number, engine.used, end)));
        drop(state);
        engine.turns.free.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn an_engine_with_long_passes_gets_no_more_time() {
        let turns = Arc::new(ComputeTurns::default());
        let computing = AtomicUsize::new(0);
        let end = Instant::now() + Duration::from_millis(600);
        let compute = |milliseconds| {
            let (mut engine, computing) = (turns.engine(), &computing);
            move || {
                while Instant::now() < end {
                    engine.run(|| {
                        assert_eq!(computing.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                        thread::sleep(Duration::from_millis(milliseconds));
                        computing.fetch_sub(1, Ordering::SeqCst);
                    });
                }
                engine.used
            }
        };
        let [long, short] = thread::scope(|scope| {
            let threads = [8, 2].map(|milliseconds| scope.spawn(compute(milliseconds)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        // By turns, long passes would get four times as much.
        assert!(long < 2 * short && short < 2 * long, "{long:?} and {short:?}");
    }

    #[test]
    fn an_engine_that_was_idle_does_not_catch_up() {
        let turns = Arc::new(ComputeTurns::default());
        let (mut busy, mut idle) = (turns.engine(), turns.engine());
        for _ in 0..3 {
            busy.run(|| thread::sleep(Duration::from_millis(5)));
        }
        idle.run(|| ());
        assert!(idle.used >= Duration::from_millis(10), "{:?}", idle.used);
    }
}
