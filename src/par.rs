//! The thread team: a leader and helpers that stay awake for a whole forward pass.
//!
//! The leader runs the pass as plain sequential code and hands each heavy step to the crew; the
//! helpers spin between steps, so a step costs two cache-line hand-overs and no fork-join. What a
//! step may write is split into disjoint parts here, which keeps the code above free of `unsafe`.
//! The only file that names rayon.

use crate::mem::AlignedVec;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Turns of the spin loop before a waiting thread offers its core to others (about 20 µs).
const SPINS: u32 = 4_000;

/// Buffers of one member, reused from step to step.
#[derive(Default)]
pub struct Scratch {
    /// f32 numbers (attention scores).
    pub floats: AlignedVec<f32>,
    /// One KV head's queries or keys after norm and RoPE.
    pub heads: AlignedVec<f32>,
    /// i32 numbers (sums of activations).
    pub ints: AlignedVec<i32>,
    /// i16 numbers (widened activations).
    pub shorts: AlignedVec<i16>,
}

/// Threads that compute forward passes together; the caller is one of them.
pub struct Team {
    /// The helpers; `None` for a team of one.
    pool: Option<rayon::ThreadPool>,
    /// One per member, never contended.
    scratch: Vec<Mutex<Scratch>>,
}

/// The threads could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {threads} threads: {reason}")]
pub struct TeamError {
    threads: usize,
    reason: String,
}

impl Team {
    /// A team of `threads` members, at least one; one means the caller alone.
    ///
    /// # Errors
    /// When the system refuses to start the threads.
    pub fn new(threads: usize) -> Result<Self, TeamError> {
        let threads = threads.max(1);
        let pool = match threads {
            1 => None,
            n => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(n - 1)
                    .thread_name(|i| format!("wf-team-{}", i + 1))
                    .build()
                    .map_err(|e| TeamError { threads, reason: e.to_string() })?,
            ),
        };
        let scratch = (0..threads).map(|_| Mutex::default()).collect();
        Ok(Self { pool, scratch })
    }

    /// Members, the caller included.
    pub fn threads(&self) -> usize {
        self.scratch.len()
    }

    /// Wakes the helpers, runs `lead` with them at hand, and lets them sleep again.
    pub fn run<R: Send>(&self, lead: impl FnOnce(&mut Crew<'_>) -> R + Send) -> R {
        let board = Board::default();
        let mut crew = Crew { board: &board, scratch: &self.scratch };
        let Some(pool) = &self.pool else { return lead(&mut crew) };
        pool.in_place_scope(|scope| {
            for member in 1..self.threads() {
                let board = &board;
                scope.spawn(move |_| board.help(member));
            }
            let _dismiss = Dismiss(&board);
            lead(&mut crew)
        })
    }
}

/// A member's scratch; never contended, and worth nothing after a panic, so poison is no matter.
fn lock(scratch: &Mutex<Scratch>) -> MutexGuard<'_, Scratch> {
    scratch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends the helpers home, also when the leader panics.
struct Dismiss<'a>(&'a Board);

impl Drop for Dismiss<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
        self.0.step.fetch_add(1, Ordering::Release);
    }
}

/// A step as the helpers see it: called once per member with the member's number.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

/// Where the leader posts steps.
#[derive(Default)]
struct Board {
    /// Number of the current step; a change means that `job` is new or the run is over.
    step: AtomicUsize,
    /// Helpers still working on the current step.
    busy: AtomicUsize,
    /// No more steps.
    over: AtomicBool,
    /// A helper panicked.
    broken: AtomicBool,
    /// The current step, written by the leader while no helper works.
    job: JobCell,
}

#[derive(Default)]
struct JobCell(std::cell::UnsafeCell<Option<*const Job<'static>>>);

// SAFETY: the leader writes the cell only while `busy` is 0 and no helper reads it before it has
// seen the `step` that was stored (Release) after the write.
unsafe impl Sync for JobCell {}
// SAFETY: as above; the pointer is only followed while the leader waits in `Board::post`.
unsafe impl Send for JobCell {}

/// Spins, then yields, until `ready`.
fn wait(ready: impl Fn() -> bool) {
    let mut spins = 0;
    while !ready() {
        if spins < SPINS {
            spins += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

impl Board {
    /// Runs `job` on every member and returns when all are done.
    fn post(&self, helpers: usize, job: &Job<'_>) {
        // SAFETY: the lifetime is extended only until this function returns: it waits until every
        // helper has finished the call, and the cell is not read again before the next `post`.
        let job_ptr: *const Job<'static> =
            unsafe { std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job) };
        // SAFETY: `busy` is 0, so no helper reads the cell.
        unsafe { *self.job.0.get() = Some(job_ptr) };
        self.busy.store(helpers, Ordering::Relaxed);
        self.step.fetch_add(1, Ordering::Release);
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        wait(|| self.busy.load(Ordering::Acquire) == 0);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!self.broken.load(Ordering::Relaxed), "a helper thread panicked");
    }

    /// A helper's life during one run.
    fn help(&self, member: usize) {
        let mut seen = 0;
        loop {
            wait(|| self.step.load(Ordering::Acquire) != seen);
            seen += 1;
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: `step` was loaded with Acquire after the leader wrote the cell, and the
            // leader keeps the job alive until `busy` reaches 0.
            let job = unsafe { &*(*self.job.0.get()).expect("a step was posted") };
            if catch_unwind(AssertUnwindSafe(|| job(member))).is_err() {
                self.broken.store(true, Ordering::Relaxed);
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }
}

/// The awake team, as the leader sees it.
pub struct Crew<'a> {
    board: &'a Board,
    scratch: &'a [Mutex<Scratch>],
}

impl Crew<'_> {
    /// Members, the leader included.
    pub fn members(&self) -> usize {
        self.scratch.len()
    }

    /// Runs `job(member, scratch)` once on every member.
    fn all(&mut self, job: &(dyn Fn(usize, &mut Scratch) + Sync)) {
        let run = |member: usize| {
            job(member, &mut lock(&self.scratch[member]));
        };
        match self.members() {
            1 => run(0),
            n => self.board.post(n - 1, &run),
        }
    }

    /// Splits the columns of a row-major matrix between the members: member `m` gets the columns
    /// `bounds[m]..bounds[m + 1]` of every row. `out` is `[rows][width]`.
    ///
    /// # Panics
    /// When `bounds` are not ascending within `0..=width`, one more than there are members.
    pub fn columns(
        &mut self,
        out: &mut [f32],
        width: usize,
        bounds: &[usize],
        job: impl Fn(Columns<'_>, &mut Scratch) + Sync,
    ) {
        assert!(bounds.len() == self.members() + 1 && bounds.is_sorted());
        assert!(bounds[self.members()] <= width && out.len().is_multiple_of(width));
        let whole = Columns::whole(out, width);
        self.all(&|member, scratch| {
            let (first, end) = (bounds[member], bounds[member + 1]);
            if first < end {
                // SAFETY: ascending bounds make the members' column ranges disjoint, and `whole`
                // borrows `out` for longer than the step runs.
                job(unsafe { whole.part(first, end) }, scratch);
            }
        });
    }

    /// Runs `job(i, parts, scratch)` for every `i < count`, where `parts` are the `i`-th chunks:
    /// on all members when the work is worth a hand-over, else on the leader alone.
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
        if count == 1 || !worth || self.members() == 1 {
            let scratch = &mut lock(&self.scratch[0]);
            for i in 0..count {
                // SAFETY: each part is taken once, one after the other.
                job(i, unsafe { chunks.part(i) }, scratch);
            }
            return;
        }
        let next = AtomicUsize::new(0);
        self.all(&|_, scratch| {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    break;
                }
                // SAFETY: the counter hands out every `i` once, so parts never overlap.
                job(i, unsafe { chunks.part(i) }, scratch);
            }
        });
    }
}

/// Mutable access to some columns of every row of a row-major f32 matrix.
pub struct Columns<'a> {
    base: *mut f32,
    rows: usize,
    width: usize,
    first: usize,
    end: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: a view is a set of exclusive borrows of f32 slices.
unsafe impl Send for Columns<'_> {}
// SAFETY: sharing a view gives no access to the elements: `row` needs `&mut`.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    /// All columns of `[rows][width]`.
    pub fn whole(out: &'a mut [f32], width: usize) -> Self {
        assert!(width > 0 && out.len().is_multiple_of(width));
        let rows = out.len() / width;
        Self { base: out.as_mut_ptr(), rows, width, first: 0, end: width, life: PhantomData }
    }

    /// The columns `first..end` of the matrix.
    ///
    /// # Safety
    /// No two views of one matrix that live at the same time may share a column.
    unsafe fn part(&self, first: usize, end: usize) -> Columns<'_> {
        assert!(self.first <= first && first <= end && end <= self.end);
        Columns { first, end, life: PhantomData, ..*self }
    }

    /// A narrower view, by columns of the whole matrix.
    ///
    /// # Panics
    /// When the range is not within this view.
    pub fn narrow(&mut self, first: usize, end: usize) -> Columns<'_> {
        // SAFETY: `self` is borrowed exclusively as long as the narrower view lives.
        unsafe { self.part(first, end) }
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns of the whole matrix that this view holds.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.first..self.end
    }

    /// This view's part of one row.
    ///
    /// # Panics
    /// When `row` is out of range.
    #[inline]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows);
        // SAFETY: the row lies within the matrix, the columns within the row (checked when the
        // view was made), and the view holds them exclusively.
        unsafe {
            let start = self.base.add(row * self.width + self.first);
            std::slice::from_raw_parts_mut(start, self.end - self.first)
        }
    }
}

/// Slices cut into equal chunks that members may take in any order, each once.
pub trait Chunked {
    /// What one chunk is.
    type Part;

    /// Whole chunks.
    fn count(&self) -> usize;

    /// The `i`-th chunk.
    ///
    /// # Safety
    /// `i < count()`, and every `i` is taken once.
    unsafe fn part(&self, i: usize) -> Self::Part;
}

/// One slice in chunks of `size`.
pub struct Chunks<'a, T> {
    base: *mut T,
    count: usize,
    size: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are exclusive borrows of disjoint chunks, each handed to one thread.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

impl<'a, T> Chunks<'a, T> {
    /// Cuts `slice` into chunks of `size` elements; a shorter rest is left out. Chunks of size 0
    /// are endless and empty: a buffer that a step does not need.
    pub fn new(slice: &'a mut [T], size: usize) -> Self {
        let count = slice.len().checked_div(size).unwrap_or(usize::MAX);
        Self { base: slice.as_mut_ptr(), count, size, life: PhantomData }
    }
}

impl<'a, T> Chunked for Chunks<'a, T> {
    type Part = &'a mut [T];

    fn count(&self) -> usize {
        self.count
    }

    unsafe fn part(&self, i: usize) -> &'a mut [T] {
        // SAFETY: the caller keeps `i` below the count and unique, so the chunk lies within the
        // slice and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(i * self.size), self.size) }
    }
}

/// No data: for steps that only need the index.
impl Chunked for () {
    type Part = ();

    fn count(&self) -> usize {
        usize::MAX
    }

    unsafe fn part(&self, _: usize) {}
}

macro_rules! chunked_tuple {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Chunked),+> Chunked for ($($name,)+) {
            type Part = ($($name::Part,)+);

            fn count(&self) -> usize {
                usize::MAX$(.min(self.$index.count()))+
            }

            unsafe fn part(&self, i: usize) -> Self::Part {
                // SAFETY: the caller's promise holds for each member of the tuple.
                unsafe { ($(self.$index.part(i),)+) }
            }
        }
    };
}
chunked_tuple!(A 0, B 1);
chunked_tuple!(A 0, B 1, C 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_visited_once_by_any_team() {
        for threads in [1, 2, 3, 5] {
            let team = Team::new(threads).unwrap();
            let mut a = vec![0u32; 7 * 3];
            let mut b = vec![0u8; 7];
            team.run(|crew| {
                for _ in 0..100 {
                    let parts = (Chunks::new(&mut a, 3), Chunks::new(&mut b, 1));
                    crew.chunks(7, true, parts, |i, (x, y), _| {
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
    fn columns_are_disjoint_and_complete() {
        let team = Team::new(3).unwrap();
        let mut out = vec![0f32; 4 * 10];
        team.run(|crew| {
            crew.columns(&mut out, 10, &[0, 3, 3, 10], |mut part, _| {
                for r in 0..part.rows() {
                    part.row(r).iter_mut().for_each(|v| *v += 1.0);
                }
            });
        });
        assert!(out.iter().all(|&v| v == 1.0));
    }

    #[test]
    fn a_panic_in_a_helper_reaches_the_leader() {
        let team = Team::new(2).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            team.run(|crew| crew.all(&|member, _| assert_eq!(member, 0)));
        }));
        assert!(caught.is_err());
        let mut cells = [0u8; 2];
        team.run(|crew| crew.chunks(2, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] = 1));
        assert_eq!(cells, [1, 1], "the team works on after a panic");
    }
}
