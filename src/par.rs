//! The thread team: a leader and helpers that stay awake for a whole forward pass.
//!
//! The leader runs the pass as plain sequential code and posts each heavy step as parts that any
//! member takes; the helpers spin between steps, so a step costs two cache-line hand-overs and no
//! fork-join. What a step may write is split into disjoint parts here, which keeps the code above
//! free of `unsafe`.
//! The only file that names rayon.

use crate::mem::AlignedVec;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// i16 numbers (widened activations, sums).
    pub shorts: AlignedVec<i16>,
    /// i32 numbers again (exact sums of products).
    pub sums: AlignedVec<i32>,
    /// Where in a kernel's tables the values of its weights stand.
    pub places: AlignedVec<u8>,
    /// Activations in the order in which a kernel reads them.
    pub rearranged: AlignedVec<i8>,
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

    /// Runs `lead` with the helpers at hand, or alone when the work is not `worth` waking them.
    ///
    /// A helper that the system starts late, even after the run, finds the board dismissed and
    /// leaves; nobody waits for it.
    pub fn run<R>(&self, worth: bool, lead: impl FnOnce(&mut Crew<'_>) -> R) -> R {
        let board = Arc::new(Board::default());
        let Some(pool) = self.pool.as_ref().filter(|_| worth) else {
            return lead(&mut Crew { board: &board, scratch: &self.scratch[..1] });
        };
        for member in 1..self.threads() {
            let board = Arc::clone(&board);
            pool.spawn(move || board.help(member));
        }
        let _dismiss = Dismiss(&board);
        lead(&mut Crew { board: &board, scratch: &self.scratch })
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
        self.0.over.store(true, Ordering::Release);
    }
}

/// A step as the members see it: called with the member's number, it works until no part of the
/// step is left.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

/// Where the leader posts steps.
///
/// A helper that comes late finds the step closed and has missed nothing: the leader waits only for
/// helpers that are at work on a part, which other programs on their cores can still interrupt.
#[derive(Default)]
struct Board {
    /// `step << STEP_SHIFT | OPEN | helpers at work`: one word, so that entering and closing exclude
    /// each other.
    state: AtomicU64,
    /// No more steps.
    over: AtomicBool,
    /// A helper panicked.
    broken: AtomicBool,
    /// The current step's job, written by the leader while the board is closed and empty.
    job: JobCell,
}

const STEP_SHIFT: u32 = 32;
const OPEN: u64 = 1 << 31;
const AT_WORK: u64 = OPEN - 1;

#[derive(Default)]
struct JobCell(std::cell::UnsafeCell<Option<*const Job<'static>>>);

// SAFETY: the leader writes the cell only while the board is closed and nobody is at work; helpers
// read it only after they have entered an open board.
unsafe impl Sync for JobCell {}
// SAFETY: as above; the pointer is only followed while the leader waits in `Board::post`.
unsafe impl Send for JobCell {}

/// Spins, then offers the core to others, until `ready`.
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
    /// Runs `job` on the leader and on every helper that comes before the leader is through;
    /// returns when nobody works on it any more.
    fn post(&self, job: &Job<'_>) {
        // SAFETY: the lifetime is extended only until this function returns: it closes the board
        // and waits until every helper that entered has left, and the cell is read by nobody else.
        let job_ptr: *const Job<'static> =
            unsafe { std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job) };
        // SAFETY: the board is closed and nobody is at work, so no helper reads the cell.
        unsafe { *self.job.0.get() = Some(job_ptr) };
        let step = (self.state.load(Ordering::Relaxed) >> STEP_SHIFT) + 1;
        self.state.store(step << STEP_SHIFT | OPEN, Ordering::Release);
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        self.state.fetch_and(!OPEN, Ordering::Relaxed);
        wait(|| self.state.load(Ordering::Acquire) & AT_WORK == 0);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!self.broken.load(Ordering::Relaxed), "a helper thread panicked");
    }

    /// A helper's life during one run.
    fn help(&self, member: usize) {
        let mut seen = 0;
        loop {
            let news = || {
                let state = self.state.load(Ordering::Relaxed);
                (state & OPEN != 0 && state >> STEP_SHIFT != seen).then_some(state)
            };
            wait(|| news().is_some() || self.over.load(Ordering::Acquire));
            if self.over.load(Ordering::Relaxed) {
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
            // SAFETY: this helper entered while the board was open (Acquire, after the leader's
            // Release), and the leader keeps the job alive until it has left.
            let job = unsafe { &*(*self.job.0.get()).expect("a step was posted") };
            if catch_unwind(AssertUnwindSafe(|| job(member))).is_err() {
                self.broken.store(true, Ordering::Relaxed);
            }
            self.state.fetch_sub(1, Ordering::Release);
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

    /// Runs `job(part, scratch)` once for every `part < count`, in any order, on any member.
    fn parts(&mut self, count: usize, job: &(dyn Fn(usize, &mut Scratch) + Sync)) {
        if count <= 1 || self.members() == 1 {
            let scratch = &mut lock(&self.scratch[0]);
            return (0..count).for_each(|part| job(part, scratch));
        }
        let next = AtomicUsize::new(0);
        self.board.post(&|member| {
            let scratch = &mut lock(&self.scratch[member]);
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= count {
                    return;
                }
                job(part, scratch);
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
        bounds: &[usize],
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
        (rows, columns): (&[usize], &[usize]),
        job: impl Fn((usize, usize), Columns<'_>, &mut Scratch) + Sync,
    ) {
        assert!(rows.is_sorted() && columns.is_sorted(), "bounds ascend");
        let whole = Columns::whole(out, width);
        let across = columns.len().saturating_sub(1);
        self.parts(rows.len().saturating_sub(1) * across, &|part, scratch| {
            let (i, j) = (part / across, part % across);
            let (rows, columns) = (rows[i]..rows[i + 1], columns[j]..columns[j + 1]);
            if !rows.is_empty() && !columns.is_empty() {
                // SAFETY: ascending bounds make the parts disjoint, each part is run once, and
                // `whole` borrows `out` for longer than the step runs.
                job((i, j), unsafe { whole.part(rows, columns) }, scratch);
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

/// Mutable access to some columns of consecutive rows of a row-major f32 matrix.
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

    /// Some rows of this view, and some columns of the matrix.
    ///
    /// # Safety
    /// No two views of one matrix that live at the same time may share an element.
    unsafe fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Columns<'_> {
        let Range { start: first, end } = columns;
        assert!(self.first <= first && first <= end && end <= self.end);
        assert!(rows.start <= rows.end && rows.end <= self.rows);
        // In range where the view has rows; where it has none, nobody follows the pointer.
        let base = self.base.wrapping_add(rows.start * self.width);
        Columns { base, rows: rows.len(), first, end, life: PhantomData, ..*self }
    }

    /// A narrower view, by columns of the whole matrix.
    ///
    /// # Panics
    /// When the range is not within this view.
    pub fn narrow(&mut self, first: usize, end: usize) -> Columns<'_> {
        // SAFETY: `self` is borrowed exclusively as long as the narrower view lives.
        unsafe { self.part(0..self.rows, first..end) }
    }

    /// Rows of this view.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns of the whole matrix that this view holds.
    pub fn range(&self) -> Range<usize> {
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
            team.run(true, |crew| {
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
    fn a_run_that_is_not_worth_it_wakes_nobody() {
        let team = Team::new(3).unwrap();
        assert_eq!(team.run(false, |crew| crew.members()), 1);
        assert_eq!(team.run(true, |crew| crew.members()), 3);
    }

    #[test]
    fn a_pass_does_not_wait_for_helpers_that_never_come() {
        let board = Board::default();
        let scratch = [Mutex::default(), Mutex::default()];
        let mut crew = Crew { board: &board, scratch: &scratch };
        let mut cells = [0u8; 9];
        crew.chunks(9, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] += 1);
        assert_eq!(cells, [1; 9]);
    }

    #[test]
    fn columns_are_disjoint_and_complete() {
        let team = Team::new(3).unwrap();
        let mut out = vec![0f32; 4 * 10];
        team.run(true, |crew| {
            crew.columns(&mut out, 10, &[0, 3, 3, 10], |mut part, _| {
                for r in 0..part.rows() {
                    part.row(r).iter_mut().for_each(|v| *v += 1.0);
                }
            });
        });
        assert!(out.iter().all(|&v| v == 1.0));
    }

    #[test]
    fn tiles_are_disjoint_and_complete() {
        let team = Team::new(3).unwrap();
        let mut out = vec![0f32; 5 * 6];
        let (rows, columns) = ([0, 2, 2, 5], [0, 1, 6]);
        team.run(true, |crew| {
            crew.tiles(&mut out, 6, (&rows, &columns), |(i, j), mut part, _| {
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
        let team = Team::new(2).unwrap();
        let leader = std::thread::current().id();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            // The leader lingers in its part until a helper has taken the other one.
            let taken = AtomicUsize::new(0);
            team.run(true, |crew| {
                crew.parts(2, &|_, _| {
                    taken.fetch_add(1, Ordering::Relaxed);
                    wait(|| taken.load(Ordering::Relaxed) == 2);
                    assert_eq!(std::thread::current().id(), leader);
                });
            });
        }));
        assert!(caught.is_err());
        let mut cells = [0u8; 2];
        team.run(true, |crew| crew.chunks(2, true, Chunks::new(&mut cells, 1), |_, c, _| c[0] = 1));
        assert_eq!(cells, [1, 1], "the team works on after a panic");
    }
}
