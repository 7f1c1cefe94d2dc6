//! The thread pool: a leader, and workers that stay awake for a whole forward pass.
//!
//! The leader runs the pass as plain sequential code and posts each heavy step as parts that any
//! worker takes; the workers spin between steps, so a step costs two cache-line hand-overs and no
//! fork-join. What a step may write is split into disjoint parts here, which keeps the code above
//! free of `unsafe`.
//! The only floor that starts threads.

mod board;
mod parts;
mod share;

pub use parts::{Chunked, Chunks, Columns};

use crate::mem::AlignedVec;
use board::Board;
use share::Share;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers of one worker, reused from step to step.
#[derive(Default)]
pub struct Scratch {
    /// f32 numbers (attention scores).
    pub floats: AlignedVec<f32>,
    /// A page's keys or values, decoded.
    pub page: AlignedVec<f32>,
    /// One KV head's queries or keys after norm and RoPE.
    pub heads: AlignedVec<f32>,
    /// Pages that some rows read.
    pub table: Vec<u32>,
    /// Pages that the row behind them reads.
    pub next_table: Vec<u32>,
    /// Keys of these pages that each row sees.
    pub ends: Vec<usize>,
    /// i32 numbers (sums of activations).
    pub ints: AlignedVec<i32>,
    /// i16 numbers (widened activations, sums).
    pub shorts: AlignedVec<i16>,
    /// i32 numbers again (exact sums of products).
    pub sums: AlignedVec<i32>,
    /// Where in a kernel's tables the values of its weights stand.
    pub places: AlignedVec<u8>,
    /// Those tables.
    pub tables: AlignedVec<i16>,
    /// Activations in the order in which a kernel reads them.
    pub rearranged: AlignedVec<i8>,
    /// Blocks of columns with activations that are not all zero.
    pub live: AlignedVec<u32>,
    /// Bytes of weights on their way.
    pub bytes: AlignedVec<u8>,
}

/// Threads that compute forward passes together; the caller is one of them.
pub struct ThreadPool {
    /// Where the workers wait.
    board: Arc<Board>,
    /// Where a step's columns begin and end; held by whoever leads, so a second caller waits.
    bounds: Mutex<Vec<usize>>,
    /// One per worker, never contended.
    scratch: Vec<Mutex<Scratch>>,
    /// One per worker: the parts of a step.
    shares: Vec<Share>,
    /// Members for work that memory bounds, and for work that arithmetic bounds.
    streaming: usize,
    computing: usize,
}

/// What bounds a piece of work, which says how many workers it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nothing: it is too small to wake anybody for.
    Small,
    /// Memory, as decoding.
    Memory,
    /// Arithmetic, as prompts and batches.
    Arithmetic,
}

/// The threads could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {threads} threads: {reason}")]
pub struct ThreadPoolError {
    threads: usize,
    reason: String,
}

/// The life of a worker: what a thread does that is started for a thread pool.
pub struct Worker {
    board: Arc<Board>,
    worker: usize,
}

impl Worker {
    /// Helps until the thread pool is dropped.
    pub fn work(self) {
        self.board.help(self.worker);
    }
}

impl ThreadPool {
    /// A thread pool of `threads` workers, at least one; one means the caller alone.
    ///
    /// # Errors
    /// When the system refuses to start the threads.
    pub fn new(threads: usize) -> Result<Self, ThreadPoolError> {
        Self::with(threads, |worker| {
            let name = format!("wf-thread_pool-{}", worker.worker);
            std::thread::Builder::new().name(name).spawn(|| worker.work()).map(drop)
        })
    }

    /// A thread pool whose workers the caller brings threads for: `start` gets `threads - 1` of them. For
    /// hosts where the standard library can start none (WebAssembly, where a thread is a worker of
    /// the page).
    ///
    /// # Errors
    /// What `start` returns.
    pub fn with(
        threads: usize,
        mut start: impl FnMut(Worker) -> std::io::Result<()>,
    ) -> Result<Self, ThreadPoolError> {
        let threads = threads.max(1);
        let thread_pool = Self {
            board: Arc::new(Board::new(threads - 1)),
            bounds: Mutex::default(),
            scratch: (0..threads).map(|_| Mutex::default()).collect(),
            shares: (0..threads).map(|_| Share::default()).collect(),
            streaming: threads,
            computing: threads,
        };
        for worker in 1..threads {
            start(Worker { board: Arc::clone(&thread_pool.board), worker })
                .map_err(|e| ThreadPoolError { threads, reason: e.to_string() })?;
        }
        Ok(thread_pool)
    }

    /// The same thread pool, of which so many workers take part in work that memory bounds, and so many in
    /// work that arithmetic bounds: memory may be busy with a part of the cores already.
    ///
    /// # Panics
    /// When it has not so many, or one of the numbers is 0.
    #[must_use]
    pub fn limited(mut self, streaming: usize, computing: usize) -> Self {
        let fits = 1..=self.threads();
        assert!(
            fits.contains(&streaming) && fits.contains(&computing),
            "workers of the thread_pool"
        );
        (self.streaming, self.computing) = (streaming, computing);
        self
    }

    /// Members that take part in such work.
    pub fn workers(&self, bound: Bound) -> usize {
        match bound {
            Bound::Small => 1,
            Bound::Memory => self.streaming,
            Bound::Arithmetic => self.computing,
        }
    }

    /// Members, the caller included.
    pub fn threads(&self) -> usize {
        self.scratch.len()
    }

    /// Runs `lead` with the workers that work bound by this is worth, or alone.
    ///
    /// Nobody waits for a worker that the system starts late, even after the run.
    pub fn run<R>(&self, bound: Bound, lead: impl FnOnce(&mut PoolScope<'_>) -> R) -> R {
        let bounds = &mut *lock(&self.bounds);
        let workers = self.workers(bound);
        let (scratch, shares) = (&self.scratch[..workers], &self.shares[..workers]);
        self.board.rest(false);
        let _rest = Rest(&self.board);
        lead(&mut PoolScope { board: &self.board, bounds, scratch, shares })
    }
}

/// Lets the workers rest behind a run, also when the leader panics.
struct Rest<'a>(&'a Board);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.rest(true);
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.board.take_down();
    }
}

/// What is locked here is worth nothing after a panic, so poison is no matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The awake thread pool, as the leader sees it.
pub struct PoolScope<'a> {
    board: &'a Board,
    bounds: &'a mut Vec<usize>,
    scratch: &'a [Mutex<Scratch>],
    shares: &'a [Share],
}

impl PoolScope<'_> {
    /// Members, the leader included.
    pub fn workers(&self) -> usize {
        self.scratch.len()
    }

    /// Runs `job(part, scratch)` once for every `part < count`, in any order, on any worker.
    ///
    /// A worker first takes its share of neighbors, the same in every pass, so that weights and keys
    /// that it has read before are in its own cache; then what others have not come to.
    fn parts(&mut self, count: usize, job: &(dyn Fn(usize, &mut Scratch) + Sync)) {
        let workers = self.workers();
        if count <= 1 || workers == 1 {
            let scratch = &mut lock(&self.scratch[0]);
            return (0..count).for_each(|part| job(part, scratch));
        }
        for (worker, share) in self.shares.iter().enumerate() {
            share.deal(count * worker / workers..count * (worker + 1) / workers);
        }
        self.board.post(workers, &|worker| {
            let scratch = &mut lock(&self.scratch[worker]);
            let (before, own) = self.shares.split_at(worker);
            for share in own.iter().chain(before) {
                while let Some(part) = share.take() {
                    job(part, scratch);
                }
            }
        });
    }

    /// Splits the columns of a row-major matrix: part `i` of the step gets the columns
    /// `bounds[i]..bounds[i + 1]` of every row. `out` is `[rows][width]`.
    ///
    /// # Panics
    /// When `bounds` are not ascending within `0..=width`.
    pub fn columns(
        &mut self,
        out: &mut [f32],
        width: usize,
        bounds: impl IntoIterator<Item = usize>,
        job: impl Fn(Columns<'_>, &mut Scratch) + Sync,
    ) {
        let rows = [0, out.len() / width];
        self.tiles(out, width, (&rows, bounds), |_, part, scratch| job(part, scratch));
    }

    /// Splits a row-major matrix both ways: part `(i, j)` of the step, which `job` is told, gets the
    /// columns `columns[j]..columns[j + 1]` of the rows `rows[i]..rows[i + 1]`. `out` is
    /// `[rows][width]`.
    ///
    /// # Panics
    /// When bounds are not ascending within the matrix.
    pub fn tiles(
        &mut self,
        out: &mut [f32],
        width: usize,
        (rows, columns): (&[usize], impl IntoIterator<Item = usize>),
        job: impl Fn((usize, usize), Columns<'_>, &mut Scratch) + Sync,
    ) {
        // Steps share one buffer, so that none allocates.
        let mut bounds = std::mem::take(self.bounds);
        bounds.clear();
        bounds.extend(columns);
        let columns = &bounds;
        assert!(rows.is_sorted() && columns.is_sorted(), "bounds ascend");
        let whole = Columns::whole(out, width);
        let (down, across) = (rows.len().saturating_sub(1), columns.len().saturating_sub(1));
        self.parts(down * across, &|part, scratch| {
            // One after the other down the columns: what they read stays.
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

    /// Runs `job(i, parts, scratch)` for every `i < count`, where `parts` are the `i`-th chunks:
    /// on all workers when the work is worth a hand-over, else on the leader alone.
    ///
    /// # Panics
    /// When a slice has fewer than `count` chunks.
    pub fn chunks<C: Chunked + Sync>(
        &mut self,
        count: usize,
        worth: bool,
        chunks: C,
        job: impl Fn(usize, C::Part, &mut Scratch) + Sync,
    ) {
        assert!(chunks.count() >= count, "{count} parts asked of {}", chunks.count());
        let run = |i: usize, scratch: &mut Scratch| {
            // SAFETY: every part of a step is run once, so chunks never overlap.
            job(i, unsafe { chunks.part(i) }, scratch);
        };
        if worth {
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
    fn every_chunk_is_visited_once_by_any_team() {
        for threads in [1, 2, 3, 5] {
            let thread_pool = ThreadPool::new(threads).unwrap();
            let mut a = vec![0u32; 7 * 3];
            let mut b = vec![0u8; 7];
            thread_pool.run(Bound::Arithmetic, |scope| {
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
    fn a_run_that_is_not_worth_it_wakes_nobody() {
        let thread_pool = ThreadPool::new(3).unwrap();
        assert_eq!(thread_pool.run(Bound::Small, |scope| scope.workers()), 1);
        assert_eq!(thread_pool.run(Bound::Arithmetic, |scope| scope.workers()), 3);
    }

    #[test]
    fn work_gets_the_members_that_it_is_worth() {
        let thread_pool = ThreadPool::new(4).unwrap().limited(2, 3);
        let workers = |bound| thread_pool.run(bound, |scope| scope.workers());
        let bounds = [Bound::Small, Bound::Memory, Bound::Arithmetic];
        assert_eq!(bounds.map(workers), [1, 2, 3]);
    }

    #[test]
    fn a_pass_does_not_wait_for_helpers_that_never_come() {
        let board = Board::new(1);
        let (scratch, shares) =
            ([Mutex::default(), Mutex::default()], [(); 2].map(|()| Share::default()));
        let bounds = &mut Vec::new();
        let mut scope = PoolScope { board: &board, bounds, scratch: &scratch, shares: &shares };
        let mut cells = [0u8; 9];
        scope.chunks(9, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] += 1);
        assert_eq!(cells, [1; 9]);
    }

    #[test]
    fn helpers_that_fell_asleep_are_woken() {
        let thread_pool = ThreadPool::new(2).unwrap();
        let mut cells = [0u32; 64];
        thread_pool.run(Bound::Arithmetic, |scope| {
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
    fn threads_may_come_from_elsewhere() {
        let mut threads = Vec::new();
        let thread_pool = ThreadPool::with(3, |worker| {
            threads.push(std::thread::spawn(|| worker.work()));
            Ok(())
        });
        let mut cells = [0u8; 50];
        let thread_pool = thread_pool.unwrap();
        thread_pool.run(Bound::Arithmetic, |scope| {
            scope.chunks(50, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] += 1);
        });
        assert_eq!(cells, [1; 50]);
        drop(thread_pool);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    fn columns_are_disjoint_and_complete() {
        let thread_pool = ThreadPool::new(3).unwrap();
        let mut out = vec![0f32; 4 * 10];
        thread_pool.run(Bound::Arithmetic, |scope| {
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
        let thread_pool = ThreadPool::new(3).unwrap();
        let mut out = vec![0f32; 5 * 6];
        let (rows, columns) = ([0, 2, 2, 5], [0, 1, 6]);
        thread_pool.run(Bound::Arithmetic, |scope| {
            scope.tiles(&mut out, 6, (&rows, columns), |(i, j), mut part, _| {
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
    fn a_panic_in_a_helper_reaches_the_leader() {
        let thread_pool = ThreadPool::new(2).unwrap();
        let leader = std::thread::current().id();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            // The leader lingers in its part until a worker has taken the other one.
            let taken = AtomicUsize::new(0);
            thread_pool.run(Bound::Arithmetic, |scope| {
                scope.parts(2, &|_, _| {
                    taken.fetch_add(1, Ordering::Relaxed);
                    while taken.load(Ordering::Relaxed) < 2 {}
                    assert_eq!(std::thread::current().id(), leader);
                });
            });
        }));
        assert!(caught.is_err());
        let mut cells = [0u8; 2];
        thread_pool.run(Bound::Arithmetic, |scope| {
            scope.chunks(2, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] = 1)
        });
        assert_eq!(cells, [1, 1], "the thread_pool works on after a panic");
    }
}
