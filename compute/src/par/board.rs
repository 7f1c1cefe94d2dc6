//! Where the leader posts steps, and how workers wait for each other.

use super::lock;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// Turns of the spin loop before a waiting thread offers its core to others (some 20 to 50 µs).
const SPINS: u32 = 4_000;
/// How often it offers it before it sleeps: for longer than a pass leaves workers without work.
/// Where the system cannot take the offer (WebAssembly) this is a moment.
const OFFERS: u32 = 1_000;
/// A step as the workers see it: called with the worker's number, it works until no part of the
/// step is left.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

/// Where the leader posts steps. Helpers stay at it for as long as the thread pool lives, and sleep when
/// nothing comes.
///
/// A worker that comes late finds the step closed and has missed nothing: the leader waits only for
/// workers that are at work on a part, which other programs on their cores can still interrupt.
pub(super) struct Board {
    /// `step << STEP_SHIFT | OPEN | workers at work`: one word, so that entering and closing exclude
    /// each other.
    state: AtomicU64,
    /// Workers that the step is for, the leader included.
    active: AtomicUsize,
    /// Between two runs.
    resting: AtomicBool,
    /// No more steps.
    over: AtomicBool,
    /// A worker panicked.
    broken: AtomicBool,
    /// The current step's job, written by the leader while the board is closed and empty.
    job: JobCell,
    /// Where the leader waits.
    leader: Bell,
    /// Where each worker waits: one whom steps are not for sleeps on.
    workers: Box<[Bell]>,
}

const STEP_SHIFT: u32 = 32;
const OPEN: u64 = 1 << 31;
const AT_WORK: u64 = OPEN - 1;

#[derive(Default)]
struct JobCell(std::cell::UnsafeCell<Option<*const Job<'static>>>);

// SAFETY: the leader writes the cell only while the board is closed and nobody is at work; workers
// read it only after they have entered an open board.
unsafe impl Sync for JobCell {}
// SAFETY: as above; the pointer is only followed while the leader waits in `Board::post`.
unsafe impl Send for JobCell {}

/// Wakes the one who waits here, if that took so long that it fell asleep.
#[derive(Default)]
struct Bell {
    asleep: AtomicBool,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    /// Spins, then offers the core to others, then sleeps, until `ready`; sleeps at once when it `may`.
    /// Whoever makes it ready rings.
    fn wait(&self, ready: impl Fn() -> bool, may: impl Fn() -> bool) {
        for turn in 0..SPINS + OFFERS {
            match turn {
                _ if ready() => return,
                _ if may() => break,
                ..SPINS => std::hint::spin_loop(),
                _ => std::thread::yield_now(),
            }
        }
        self.asleep.store(true, Ordering::Relaxed);
        // Either `ready` sees what was written before the other side looked for sleepers, or that
        // side sees this one asleep.
        fence(Ordering::SeqCst);
        let guard = lock(&self.lock);
        let woken = self.rung.wait_while(guard, |()| !ready());
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Says that something has changed, which the caller has made visible with `fence(SeqCst)`.
    fn ring(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            // Nobody is between looking and sleeping once the lock has been free.
            drop(lock(&self.lock));
            self.rung.notify_one();
        }
    }
}

impl Board {
    /// A board for so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            state: AtomicU64::default(),
            active: AtomicUsize::default(),
            resting: AtomicBool::default(),
            over: AtomicBool::default(),
            broken: AtomicBool::default(),
            job: JobCell::default(),
            leader: Bell::default(),
            workers: (0..workers).map(|_| Bell::default()).collect(),
        }
    }

    /// Runs `job` on the leader and on those of the first `workers` workers who come before the
    /// leader is through; returns when nobody works on it any more. One leader at a time.
    pub fn post(&self, workers: usize, job: &Job<'_>) {
        // SAFETY: the lifetime is extended only until this function returns: it closes the board
        // and waits until every worker that entered has left, and the cell is read by nobody else.
        let job_ptr: *const Job<'static> =
            unsafe { std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job) };
        // SAFETY: the board is closed and nobody is at work, so no worker reads the cell.
        unsafe { *self.job.0.get() = Some(job_ptr) };
        self.active.store(workers, Ordering::Relaxed);
        let step = (self.state.load(Ordering::Relaxed) >> STEP_SHIFT) + 1;
        self.state.store(step << STEP_SHIFT | OPEN, Ordering::Release);
        self.ring(workers);
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        self.state.fetch_and(!OPEN, Ordering::Relaxed);
        self.leader.wait(|| self.state.load(Ordering::Acquire) & AT_WORK == 0, || false);
        let broken = self.broken.swap(false, Ordering::Relaxed);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!broken, "a worker thread panicked");
    }

    /// Wakes those of the first `workers` workers who sleep.
    fn ring(&self, workers: usize) {
        fence(Ordering::SeqCst);
        self.workers.iter().take(workers - 1).for_each(Bell::ring);
    }

    /// The life of a worker: it works on what is posted until the board is taken down.
    pub fn help(&self, worker: usize) {
        let mut seen = 0;
        loop {
            let news = || {
                let state = self.state.load(Ordering::Acquire);
                let fresh = state & OPEN != 0 && state >> STEP_SHIFT != seen;
                // Should this be the next step's number already, then `state` is no more, and
                // entering fails.
                let called = fresh && worker < self.active.load(Ordering::Relaxed);
                called.then_some(state)
            };
            let over = || self.over.load(Ordering::Relaxed);
            let resting = || self.resting.load(Ordering::Relaxed);
            self.workers[worker - 1].wait(|| news().is_some() || over(), resting);
            if over() {
                return;
            }
            let Some(state) = news() else { continue };
            let enter = self.state.compare_exchange_weak(
                state,
                state + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if enter.is_err() {
                continue;
            }
            seen = state >> STEP_SHIFT;
            // SAFETY: this worker entered while the board was open (Acquire, after the leader's
            // Release), and the leader keeps the job alive until it has left.
            let job = unsafe { &*(*self.job.0.get()).expect("a step was posted") };
            if catch_unwind(AssertUnwindSafe(|| job(worker))).is_err() {
                self.broken.store(true, Ordering::Relaxed);
            }
            self.state.fetch_sub(1, Ordering::Release);
            fence(Ordering::SeqCst);
            self.leader.ring();
        }
    }

    /// Whether no step comes soon: workers then sleep, and leave their cores to who has work for them.
    pub fn rest(&self, resting: bool) {
        self.resting.store(resting, Ordering::Relaxed);
    }

    /// Sends the workers home.
    pub fn take_down(&self) {
        self.over.store(true, Ordering::Release);
        self.ring(self.workers.len() + 1);
    }
}
