//! Fork-join: how the calling thread dispatches a step to the workers and waits for them.

use super::lock;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// Iterations of the spin loop before a waiting thread yields its core (some 20 to 50 µs).
const SPINS: u32 = 4_000;
/// Number of yields before a waiting thread parks: longer than a pass leaves workers without work.
/// Where the system cannot yield (WebAssembly) this takes a moment only.
const YIELDS: u32 = 1_000;
/// A step as the workers see it. It is called with the worker's index and returns when no part of
/// the step is left.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

/// Dispatches steps from the calling thread to the workers. Workers park when no step comes.
///
/// A worker that comes late finds the step closed and has missed nothing. The calling thread waits
/// only for workers that are inside a step, never for one to arrive; other programs on a worker's
/// core can still delay a step that it has entered.
pub(super) struct ForkJoin {
    /// `step << STEP_SHIFT | OPEN | workers inside`: one word, so that entering and closing exclude
    /// each other.
    state: AtomicU64,
    /// Number of workers that the step is for, the calling thread included.
    active: AtomicUsize,
    /// True between two runs.
    resting: AtomicBool,
    /// True when no more steps will come.
    shut_down: AtomicBool,
    /// True if a worker panicked.
    panicked: AtomicBool,
    /// The current step's job, written by the calling thread while the step is closed and empty.
    job: JobCell,
    /// Parks the calling thread.
    caller: Parker,
    /// Parks each worker, so that a step wakes only the workers that it is for.
    workers: Box<[Parker]>,
}

const STEP_SHIFT: u32 = 32;
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;

#[derive(Default)]
struct JobCell(std::cell::UnsafeCell<Option<*const Job<'static>>>);

// SAFETY: the calling thread writes the cell only while the step is closed and no worker is inside;
// workers read it only after they have entered an open step.
unsafe impl Sync for JobCell {}
// SAFETY: as above; the pointer is only followed while the caller waits in `ForkJoin::dispatch`.
unsafe impl Send for JobCell {}

/// Lets one thread wait for a condition: it spins, then yields, then sleeps.
#[derive(Default)]
struct Parker {
    parked: AtomicBool,
    lock: Mutex<()>,
    unparked: Condvar,
}

impl Parker {
    /// Waits until `ready`. Sleeps at once when `park_now` is true; otherwise spins and yields first.
    /// The thread that makes `ready` true calls [`Parker::unpark`].
    fn park(&self, ready: impl Fn() -> bool, park_now: impl Fn() -> bool) {
        for turn in 0..SPINS + YIELDS {
            match turn {
                _ if ready() => return,
                _ if park_now() => break,
                ..SPINS => std::hint::spin_loop(),
                _ => std::thread::yield_now(),
            }
        }
        self.parked.store(true, Ordering::Relaxed);
        // Either `ready` sees what was written before the other side looked at `parked`, or that
        // side sees that this thread is parked.
        fence(Ordering::SeqCst);
        let guard = lock(&self.lock);
        let woken = self.unparked.wait_while(guard, |()| !ready());
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.parked.store(false, Ordering::Relaxed);
    }

    /// Wakes the thread if it is parked. The caller has made the change visible with
    /// `fence(SeqCst)`.
    fn unpark(&self) {
        if self.parked.load(Ordering::Relaxed) {
            // Once the lock has been free, the thread is not between checking and sleeping.
            drop(lock(&self.lock));
            self.unparked.notify_one();
        }
    }
}

impl ForkJoin {
    /// Fork-join with this number of workers next to the calling thread.
    pub fn new(workers: usize) -> Self {
        Self {
            state: AtomicU64::default(),
            active: AtomicUsize::default(),
            resting: AtomicBool::default(),
            shut_down: AtomicBool::default(),
            panicked: AtomicBool::default(),
            job: JobCell::default(),
            caller: Parker::default(),
            workers: (0..workers).map(|_| Parker::default()).collect(),
        }
    }

    /// Runs `job` on the calling thread, and on those of the first `workers` workers that arrive
    /// before it is done. Returns when no worker is inside. Callers must not overlap.
    pub fn dispatch(&self, workers: usize, job: &Job<'_>) {
        // SAFETY: the lifetime is extended only until this function returns: it closes the step
        // and waits until every worker that entered has left, and nothing else reads the cell.
        let job_ptr: *const Job<'static> =
            unsafe { std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job) };
        // SAFETY: the step is closed and no worker is inside, so no worker reads the cell.
        unsafe { *self.job.0.get() = Some(job_ptr) };
        self.active.store(workers, Ordering::Relaxed);
        let step = (self.state.load(Ordering::Relaxed) >> STEP_SHIFT) + 1;
        self.state.store(step << STEP_SHIFT | OPEN, Ordering::Release);
        self.unpark(workers);
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        self.state.fetch_and(!OPEN, Ordering::Relaxed);
        self.caller.park(|| self.state.load(Ordering::Acquire) & INSIDE == 0, || false);
        let panicked = self.panicked.swap(false, Ordering::Relaxed);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!panicked, "a worker thread panicked");
    }

    /// Wakes those of the first `workers` workers that are parked.
    fn unpark(&self, workers: usize) {
        fence(Ordering::SeqCst);
        self.workers.iter().take(workers - 1).for_each(Parker::unpark);
    }

    /// The loop of a worker thread: takes part in each step until [`ForkJoin::shutdown`].
    pub fn work(&self, worker: usize) {
        let mut seen = 0;
        loop {
            let new_step = || {
                let state = self.state.load(Ordering::Acquire);
                let fresh = state & OPEN != 0 && state >> STEP_SHIFT != seen;
                // If `active` is the next step's number already, then `state` has changed, and
                // entering fails.
                let called = fresh && worker < self.active.load(Ordering::Relaxed);
                called.then_some(state)
            };
            let shut_down = || self.shut_down.load(Ordering::Relaxed);
            let resting = || self.resting.load(Ordering::Relaxed);
            self.workers[worker - 1].park(|| new_step().is_some() || shut_down(), resting);
            if shut_down() {
                return;
            }
            let Some(state) = new_step() else { continue };
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
            // SAFETY: this worker entered while the step was open (Acquire, after the caller's
            // Release), and the caller keeps the job alive until the worker has left.
            let job = unsafe { &*(*self.job.0.get()).expect("a step was dispatched") };
            if catch_unwind(AssertUnwindSafe(|| job(worker))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.state.fetch_sub(1, Ordering::Release);
            fence(Ordering::SeqCst);
            self.caller.unpark();
        }
    }

    /// Says if workers may park at once because no step comes soon, which frees their cores.
    pub fn rest(&self, resting: bool) {
        self.resting.store(resting, Ordering::Relaxed);
    }

    /// Ends the workers' loops.
    pub fn shutdown(&self) {
        self.shut_down.store(true, Ordering::Release);
        self.unpark(self.workers.len() + 1);
    }
}
