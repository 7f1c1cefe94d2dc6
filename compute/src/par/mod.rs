//! A thread pool that stays awake for a whole forward pass.
//!
//! The calling thread runs the pass as sequential code. It splits each heavy step into parts and
//! dispatches them; the workers and the calling thread take parts until none is left. Workers spin
//! between the steps of a pass, so a step costs two cache-line transfers instead of waking threads.
//! Between passes they sleep. This module also splits what a step writes into disjoint parts, which
//! keeps the code above it free of `unsafe`. No other module starts threads.
//!
//! ```
//! use wrinklefree_compute::par::{Bound, Chunks, ThreadPool};
//!
//! let pool = ThreadPool::new(2)?;
//! let mut squares = [0; 6];
//! pool.run(Bound::Arithmetic, |scope| {
//!     // Six parts of one element each; any worker may compute any of them.
//!     scope.chunks(6, true, Chunks::new(&mut squares, 1), |i, part, _scratch| {
//!         part[0] = i * i;
//!     });
//! });
//! assert_eq!(squares, [0, 1, 4, 9, 16, 25]);
//! # Ok::<(), wrinklefree_compute::par::ThreadPoolError>(())
//! ```

mod core_speeds;
mod fork_join;
mod parts;
mod work_queue;

pub use core_speeds::CoreSpeeds;
pub use parts::{Chunked, Chunks, Columns};

use crate::mem::AlignedVec;
use core_speeds::Shares;
use fork_join::ForkJoin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use work_queue::WorkQueue;

/// Buffers of one worker, which it reuses from step to step.
#[derive(Default)]
pub struct Scratch {
    /// f32 numbers: attention scores, sums of products.
    pub floats: AlignedVec<f32>,
    /// Largest score and sum of weights of each query, `[rows][group]`, as attention leaves them.
    pub softmax: AlignedVec<[f32; 2]>,
    /// Attention to parts of the keys.
    pub parts: AlignedVec<f32>,
    /// Number of keys that each row sees in a part.
    pub part_ends: Vec<usize>,
    /// Decoded keys or values of a page.
    pub page: AlignedVec<f32>,
    /// Queries or keys of one KV head after norm and RoPE.
    pub heads: AlignedVec<f32>,
    /// Page table of the current rows.
    pub table: Vec<u32>,
    /// Page table of the row that follows them.
    pub next_table: Vec<u32>,
    /// Number of keys that each row sees on these pages.
    pub ends: Vec<usize>,
    /// Sums of activations.
    pub ints: AlignedVec<i32>,
    /// i16 numbers: widened activations, sums of products.
    pub shorts: AlignedVec<i16>,
    /// Exact sums of products.
    pub sums: AlignedVec<i32>,
    /// Weights as a kernel decodes them: a byte each, or lookup-table indices.
    pub decoded: AlignedVec<u8>,
    /// Lookup tables.
    pub tables: AlignedVec<i16>,
    /// Activations in the order in which a kernel reads them.
    pub rearranged: AlignedVec<i8>,
    /// Indices of the column blocks whose activations are not all zero.
    pub live: AlignedVec<u32>,
    /// Staging buffer for weights that are being loaded.
    pub staging: AlignedVec<u8>,
}

/// Threads that compute forward passes together. The calling thread is worker 0.
pub struct ThreadPool {
    fork_join: Arc<ForkJoin>,
    /// Column bounds of a step's parts. A caller holds the lock during [`ThreadPool::run`], so a
    /// second caller waits.
    bounds: Mutex<Vec<usize>>,
    /// One per worker, never contended.
    scratch: Vec<Mutex<Scratch>>,
    /// One per worker: the parts of a step that are assigned to it.
    queues: Vec<WorkQueue>,
    /// Each worker's share of a product.
    shares: Shares,
    /// Number of workers for memory-bound work.
    memory_workers: usize,
    /// Number of workers for compute-bound work.
    compute_workers: usize,
}

/// The resource that limits the speed of some work; it decides how many workers take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Too little work to wake a thread for: the calling thread does it alone.
    Small,
    /// Memory bandwidth, as in decoding.
    Memory,
    /// Arithmetic, as in prompts and batches.
    Arithmetic,
}

/// Error of [`ThreadPool::new`]: the system did not start the threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {threads} threads: {reason}")]
pub struct ThreadPoolError {
    threads: usize,
    reason: String,
}

/// The work of one pool thread, to be run on a thread that the caller has started.
pub struct Worker {
    fork_join: Arc<ForkJoin>,
    index: usize,
}

impl Worker {
    /// Takes part in the pool's steps; returns when the pool is dropped.
    pub fn work(self) {
        self.fork_join.work(self.index);
    }
}

impl ThreadPool {
    /// Starts a pool of `threads` workers, at least one. With one, the calling thread works alone.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    ///
    /// ```
    /// use wrinklefree_compute::par::{Bound, ThreadPool};
    ///
    /// // Two workers for memory-bound work, four for compute-bound work.
    /// let pool = ThreadPool::new(4)?.limited(2, 4);
    /// assert_eq!(pool.workers(Bound::Memory), 2);
    /// assert_eq!(pool.workers(Bound::Arithmetic), 4);
    /// # Ok::<(), wrinklefree_compute::par::ThreadPoolError>(())
    /// ```
    pub fn new(threads: usize) -> Result<Self, ThreadPoolError> {
        Self::with_spawn(threads, |worker| {
            let name = format!("wf-worker-{}", worker.index);
            std::thread::Builder::new().name(name).spawn(|| worker.work()).map(drop)
        })
    }

    /// Makes a pool of threads that the caller starts. `spawn` is called `threads - 1` times and runs
    /// [`Worker::work`] on a thread of its own. This is for hosts where the standard library cannot
    /// start threads, as on WebAssembly, and for threads with settings of their own.
    ///
    /// # Errors
    /// If `spawn` fails.
    pub fn with_spawn(
        threads: usize,
        mut spawn: impl FnMut(Worker) -> std::io::Result<()>,
    ) -> Result<Self, ThreadPoolError> {
        let threads = threads.max(1);
        let pool = Self {
            fork_join: Arc::new(ForkJoin::new(threads - 1)),
            bounds: Mutex::default(),
            scratch: (0..threads).map(|_| Mutex::default()).collect(),
            queues: (0..threads).map(|_| WorkQueue::default()).collect(),
            shares: Shares::new(threads, &CoreSpeeds::Equal),
            memory_workers: threads,
            compute_workers: threads,
        };
        for index in 1..threads {
            spawn(Worker { fork_join: Arc::clone(&pool.fork_join), index })
                .map_err(|e| ThreadPoolError { threads, reason: e.to_string() })?;
        }
        Ok(pool)
    }

    /// Limits the number of workers that take part in memory-bound and in compute-bound work. A part
    /// of the cores may saturate memory already.
    ///
    /// # Panics
    /// If a number is 0 or more than the pool has workers.
    #[must_use]
    pub fn limited(mut self, memory_workers: usize, compute_workers: usize) -> Self {
        let fits = 1..=self.threads();
        assert!(
            fits.contains(&memory_workers) && fits.contains(&compute_workers),
            "a limit must be between 1 and the pool's {} workers",
            self.threads()
        );
        (self.memory_workers, self.compute_workers) = (memory_workers, compute_workers);
        self
    }

    /// Deals work by the speeds of the workers' cores, so that no step waits for a slow one.
    ///
    /// # Panics
    /// If [`CoreSpeeds::Each`] has not a speed above 0 for every worker.
    #[must_use]
    pub fn on_cores(mut self, speeds: &CoreSpeeds) -> Self {
        self.shares = Shares::new(self.threads(), speeds);
        self
    }

    /// Number of workers that take part in work with this bound.
    pub fn workers(&self, bound: Bound) -> usize {
        match bound {
            Bound::Small => 1,
            Bound::Memory => self.memory_workers,
            Bound::Arithmetic => self.compute_workers,
        }
    }

    /// Number of workers, the calling thread included.
    pub fn threads(&self) -> usize {
        self.scratch.len()
    }

    /// Runs `pass` on the calling thread, with as many workers as the bound asks for.
    ///
    /// A worker that the system schedules late delays nothing, even if it comes after the run.
    pub fn run<R>(&self, bound: Bound, pass: impl FnOnce(&mut PoolScope<'_>) -> R) -> R {
        let bounds = &mut *lock(&self.bounds);
        let workers = self.workers(bound);
        let (scratch, queues) = (&self.scratch[..workers], &self.queues[..workers]);
        self.fork_join.rest(false);
        let _rest = RestOnDrop(&self.fork_join);
        let shares = &self.shares;
        pass(&mut PoolScope { fork_join: &self.fork_join, bounds, scratch, queues, shares })
    }
}

/// Lets the workers sleep after a run, also when the calling thread panics.
struct RestOnDrop<'a>(&'a ForkJoin);

impl Drop for RestOnDrop<'_> {
    fn drop(&mut self) {
        self.0.rest(true);
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.fork_join.shutdown();
    }
}

/// Locks a mutex and ignores poison: its contents are scratch, which no panic can spoil.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pool during [`ThreadPool::run`]: dispatches steps to the workers that take part.
pub struct PoolScope<'a> {
    fork_join: &'a ForkJoin,
    bounds: &'a mut Vec<usize>,
    scratch: &'a [Mutex<Scratch>],
    queues: &'a [WorkQueue],
    shares: &'a Shares,
}

impl<'a> PoolScope<'a> {
    /// Number of workers that take part, the calling thread included.
    pub fn workers(&self) -> usize {
        self.scratch.len()
    }

    /// Cuts `units` into `each` parts for every worker and returns the bounds of the parts. A worker on
    /// a faster core gets larger parts. Where slow cores are among the workers' and the pool does not
    /// know whose, parts are smaller and more.
    ///
    /// ```
    /// use wrinklefree_compute::par::{Bound, CoreSpeeds, ThreadPool};
    ///
    /// let pool = ThreadPool::new(2)?.on_cores(&CoreSpeeds::Each(vec![2, 1]));
    /// let bounds = pool.run(Bound::Arithmetic, |scope| scope.cut(60, 2).collect::<Vec<_>>());
    /// assert_eq!(bounds, [0, 20, 40, 50, 60]);
    /// # Ok::<(), wrinklefree_compute::par::ThreadPoolError>(())
    /// ```
    pub fn cut(&self, units: usize, each: usize) -> impl Iterator<Item = usize> + use<'a> {
        self.shares.cut(units, each, self.workers())
    }

    /// Runs `job(part, scratch)` once for every `part < count`, in any order, on any worker.
    ///
    /// A worker first takes the parts assigned to it, which are the same in every pass, so that its
    /// cache still has the weights and keys. Then it helps with the parts of others.
    fn parts(&mut self, count: usize, job: &(dyn Fn(usize, &mut Scratch) + Sync)) {
        let workers = self.workers();
        if count <= 1 || workers == 1 {
            let scratch = &mut lock(&self.scratch[0]);
            return (0..count).for_each(|part| job(part, scratch));
        }
        for (worker, queue) in self.queues.iter().enumerate() {
            queue.assign(count * worker / workers..count * (worker + 1) / workers);
        }
        self.fork_join.dispatch(workers, &|worker| {
            let scratch = &mut lock(&self.scratch[worker]);
            let (before, own) = self.queues.split_at(worker);
            for queue in own.iter().chain(before) {
                while let Some(part) = queue.next() {
                    job(part, scratch);
                }
            }
        });
    }

    /// Runs `job` on ranges of columns of the row-major matrix `out`, `[rows][width]`. Part `i` gets
    /// the columns `bounds[i]..bounds[i + 1]` of every row.
    ///
    /// # Panics
    /// If `bounds` do not ascend within `0..=width`.
    pub fn columns(
        &mut self,
        out: &mut [f32],
        width: usize,
        bounds: impl IntoIterator<Item = usize>,
        job: impl Fn(Columns<'_>, &mut Scratch) + Sync,
    ) {
        let rows = [0, out.len() / width];
        self.tiles(out, width, &rows, bounds, |_, part, scratch| job(part, scratch));
    }

    /// Runs `job((i, j), part, scratch)` on tiles of the row-major matrix `out`, `[rows][width]`. Part
    /// `(i, j)` gets the columns `columns[j]..columns[j + 1]` of the rows `rows[i]..rows[i + 1]`.
    ///
    /// # Panics
    /// If bounds do not ascend within the matrix.
    pub fn tiles(
        &mut self,
        out: &mut [f32],
        width: usize,
        rows: &[usize],
        columns: impl IntoIterator<Item = usize>,
        job: impl Fn((usize, usize), Columns<'_>, &mut Scratch) + Sync,
    ) {
        // All steps share one buffer, so that a step allocates nothing.
        let mut bounds = std::mem::take(self.bounds);
        bounds.clear();
        bounds.extend(columns);
        let columns = &bounds;
        assert!(rows.is_sorted() && columns.is_sorted(), "bounds ascend");
        let whole = Columns::whole(out, width);
        let (down, across) = (rows.len().saturating_sub(1), columns.len().saturating_sub(1));
        self.parts(down * across, &|part, scratch| {
            // Parts of the same columns follow each other, so that the cache keeps their weights.
            let (i, j) = (part % down, part / down);
            let (rows, columns) = (rows[i]..rows[i + 1], columns[j]..columns[j + 1]);
            if !rows.is_empty() && !columns.is_empty() {
                // SAFETY: ascending bounds make the parts disjoint, each part is run once, and
                // `whole` borrows `out` for longer than the step runs.
                job((i, j), unsafe { whole.part(rows, columns) }, scratch);
            }
        });
        *self.bounds = bounds;
    }

    /// Runs `job(i, part, scratch)` for every `i < count`, where `part` is the `i`-th chunk of each
    /// slice: on all workers if `parallel`, else on the calling thread alone.
    ///
    /// # Panics
    /// If a slice has fewer than `count` chunks.
    pub fn chunks<C: Chunked + Sync>(
        &mut self,
        count: usize,
        parallel: bool,
        chunks: C,
        job: impl Fn(usize, C::Part, &mut Scratch) + Sync,
    ) {
        assert!(chunks.count() >= count, "{count} parts of {} chunks", chunks.count());
        let run = |i: usize, scratch: &mut Scratch| {
            // SAFETY: every part of a step is run once, so chunks never overlap.
            job(i, unsafe { chunks.part(i) }, scratch);
        };
        if parallel {
            return self.parts(count, &run);
        }
        let scratch = &mut lock(&self.scratch[0]);
        (0..count).for_each(|i| run(i, scratch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_chunk_is_visited_once_by_any_pool() {
        for threads in [1, 2, 3, 5] {
            let pool = ThreadPool::new(threads).unwrap();
            let mut a = vec![0u32; 7 * 3];
            let mut b = vec![0u8; 7];
            pool.run(Bound::Arithmetic, |scope| {
                for _ in 0..100 {
                    let parts = (Chunks::new(&mut a, 3), Chunks::new(&mut b, 1));
                    scope.chunks(7, true, parts, |i, (x, y), _| {
                        x.iter_mut().for_each(|v| *v += i as u32);
                        y[0] += 1;
                    });
                }
            });
            assert!(b.iter().all(|&n| n == 100));
            assert!(a.iter().enumerate().all(|(k, &v)| v == 100 * (k / 3) as u32));
        }
    }

    #[test]
    fn a_small_run_wakes_no_worker() {
        let pool = ThreadPool::new(3).unwrap();
        assert_eq!(pool.run(Bound::Small, |scope| scope.workers()), 1);
        assert_eq!(pool.run(Bound::Arithmetic, |scope| scope.workers()), 3);
    }

    #[test]
    fn work_gets_the_workers_of_its_bound() {
        let pool = ThreadPool::new(4).unwrap().limited(2, 3);
        let workers = |bound| pool.run(bound, |scope| scope.workers());
        let bounds = [Bound::Small, Bound::Memory, Bound::Arithmetic];
        assert_eq!(bounds.map(workers), [1, 2, 3]);
    }

    #[test]
    fn a_pass_does_not_wait_for_workers_that_never_come() {
        let fork_join = ForkJoin::new(1);
        let (scratch, queues) =
            ([Mutex::default(), Mutex::default()], [(); 2].map(|()| WorkQueue::default()));
        let bounds = &mut Vec::new();
        let shares = &Shares::new(2, &CoreSpeeds::Equal);
        let (fork_join, scratch, queues) = (&fork_join, &scratch, &queues);
        let mut scope = PoolScope { fork_join, bounds, scratch, queues, shares };
        let mut cells = [0u8; 9];
        scope.chunks(9, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] += 1);
        assert_eq!(cells, [1; 9]);
    }

    #[test]
    fn sleeping_workers_are_woken() {
        let pool = ThreadPool::new(2).unwrap();
        let mut cells = [0u32; 64];
        pool.run(Bound::Arithmetic, |scope| {
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                scope.chunks(64, true, Chunks::new(&mut cells, 1), |_, c, _| {
                    std::thread::sleep(std::time::Duration::from_micros(20));
                    c[0] += 1;
                });
            }
        });
        assert_eq!(cells, [20; 64]);
    }

    #[test]
    fn the_caller_may_start_the_threads() {
        let mut threads = Vec::new();
        let pool = ThreadPool::with_spawn(3, |worker| {
            threads.push(std::thread::spawn(|| worker.work()));
            Ok(())
        });
        let mut cells = [0u8; 50];
        let pool = pool.unwrap();
        pool.run(Bound::Arithmetic, |scope| {
            scope.chunks(50, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] += 1);
        });
        assert_eq!(cells, [1; 50]);
        drop(pool);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    fn columns_are_disjoint_and_complete() {
        let pool = ThreadPool::new(3).unwrap();
        let mut out = vec![0f32; 4 * 10];
        pool.run(Bound::Arithmetic, |scope| {
            scope.columns(&mut out, 10, [0, 3, 3, 10], |mut part, _| {
                for r in 0..part.rows() {
                    part.row(r).iter_mut().for_each(|v| *v += 1.0);
                }
            });
        });
        assert!(out.iter().all(|&v| v == 1.0));
    }

    #[test]
    fn tiles_are_disjoint_and_complete() {
        let pool = ThreadPool::new(3).unwrap();
        let mut out = vec![0f32; 5 * 6];
        let (rows, columns) = ([0, 2, 2, 5], [0, 1, 6]);
        pool.run(Bound::Arithmetic, |scope| {
            scope.tiles(&mut out, 6, &rows, columns, |(i, j), mut part, _| {
                assert_eq!(
                    (part.rows(), part.range()),
                    (rows[i + 1] - rows[i], columns[j]..columns[j + 1])
                );
                for r in 0..part.rows() {
                    part.row(r).iter_mut().for_each(|v| *v += (10 * i + j) as f32);
                }
            });
        });
        let want =
            |r: usize, c: usize| (10 * if r < 2 { 0 } else { 2 } + usize::from(c > 0)) as f32;
        assert!(out.iter().enumerate().all(|(k, &v)| v == want(k / 6, k % 6)));
    }

    #[test]
    fn a_panic_in_a_worker_reaches_the_caller() {
        let pool = ThreadPool::new(2).unwrap();
        let caller = std::thread::current().id();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            // The caller stays in its part until a worker has taken the other one.
            let taken = AtomicUsize::new(0);
            pool.run(Bound::Arithmetic, |scope| {
                scope.parts(2, &|_, _| {
                    taken.fetch_add(1, Ordering::Relaxed);
                    while taken.load(Ordering::Relaxed) < 2 {}
                    assert_eq!(std::thread::current().id(), caller);
                });
            });
        }));
        assert!(caught.is_err());
        let mut cells = [0u8; 2];
        pool.run(Bound::Arithmetic, |scope| {
            scope.chunks(2, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] = 1)
        });
        assert_eq!(cells, [1, 1], "the pool still works after a panic");
    }
}
