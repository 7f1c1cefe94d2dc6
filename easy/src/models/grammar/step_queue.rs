//! Threads that compute the steps of grammars, so that a step that takes long delays no other output.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::Duration;

/// Most threads; half of the cores, so that passes go on.
const THREADS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// Steps that wait for a thread, each with the time that the last step of its output took.
#[derive(Default)]
struct StepQueue {
    jobs: Mutex<Vec<(Duration, Job)>>,
    added: Condvar,
}

/// The queue of this process, and the number of its threads.
static QUEUE: LazyLock<(StepQueue, usize)> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    let start = |_: &usize| {
        let thread = thread::Builder::new().name("grammar-step".into());
        thread.spawn(|| QUEUE.0.run()).is_ok()
    };
    (StepQueue::default(), (0..(cores / 2).clamp(1, THREADS)).filter(start).count())
});

impl StepQueue {
    fn jobs(&self) -> MutexGuard<'_, Vec<(Duration, Job)>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs jobs forever: first those whose output was quick before.
    fn run(&self) {
        let mut jobs = self.jobs();
        loop {
            let Some(quickest) = (0..jobs.len()).min_by_key(|&index| jobs[index].0) else {
                jobs = self.added.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (_, job) = jobs.remove(quickest);
            drop(jobs);
            // Whoever waits for a job that panics sees that its channel is closed.
            let _ = catch_unwind(AssertUnwindSafe(job));
            jobs = self.jobs();
        }
    }
}

/// Computes on another thread, or here if there is none. `last` is the time that the last step of the
/// output took. Returns the receiver of the result, whose channel closes if the work panics.
pub fn compute<T: Send + 'static>(
    last: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    // Nobody may want the result any more.
    let job = move || drop(sender.send(work()));
    match &*QUEUE {
        (_, 0) => job(),
        (queue, _) => {
            queue.jobs().push((last, Box::new(job)));
            queue.added.notify_one();
        }
    }
    receiver
}
