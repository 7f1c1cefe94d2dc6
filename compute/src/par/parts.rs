//! Splits the output of a step into disjoint parts.

use std::marker::PhantomData;
use std::ops::Range;

/// Mutable view of some columns of consecutive rows of a row-major f32 matrix.
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
    /// Views all columns of `out`, `[rows][width]`.
    ///
    /// # Panics
    /// If `out` is not whole rows.
    ///
    /// ```
    /// use wrinklefree_compute::par::Columns;
    ///
    /// let mut matrix = [0.0; 6];
    /// let mut view = Columns::whole(&mut matrix, 3);
    /// view.narrow(1, 3).row(1).fill(1.0);
    /// assert_eq!(matrix, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    /// ```
    pub fn whole(out: &'a mut [f32], width: usize) -> Self {
        assert!(width > 0 && out.len().is_multiple_of(width));
        let rows = out.len() / width;
        Self { base: out.as_mut_ptr(), rows, width, first: 0, end: width, life: PhantomData }
    }

    /// Returns a part of this view; `columns` count from the matrix's first.
    ///
    /// # Safety
    /// No two views of one matrix that live at the same time may share an element.
    pub(super) unsafe fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Columns<'_> {
        let Range { start: first, end } = columns;
        assert!(self.first <= first && first <= end && end <= self.end);
        assert!(rows.start <= rows.end && rows.end <= self.rows);
        // In range where the view has rows; where it has none, the pointer is not followed.
        let base = self.base.wrapping_add(rows.start * self.width);
        Columns { base, rows: rows.len(), first, end, life: PhantomData, ..*self }
    }

    /// Returns the columns `first..end` of this view; they count from the matrix's first.
    ///
    /// # Panics
    /// If the range is not within this view.
    pub fn narrow(&mut self, first: usize, end: usize) -> Columns<'_> {
        // SAFETY: `self` is borrowed exclusively as long as the narrower view lives.
        unsafe { self.part(0..self.rows, first..end) }
    }

    /// Returns some rows of this view.
    ///
    /// # Panics
    /// If the view has fewer rows.
    pub fn lines(&mut self, rows: Range<usize>) -> Columns<'_> {
        // SAFETY: `self` is borrowed exclusively as long as the other view lives.
        unsafe { self.part(rows, self.first..self.end) }
    }

    /// Number of rows of this view.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Range of the matrix's columns that this view holds.
    pub fn range(&self) -> Range<usize> {
        self.first..self.end
    }

    /// Returns this view's part of one row.
    ///
    /// # Panics
    /// If `row` is out of range.
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

/// Slices cut into equal chunks, each of which one worker takes.
pub trait Chunked {
    /// Type of one chunk.
    type Part;

    /// Number of whole chunks.
    fn count(&self) -> usize;

    /// Returns the `i`-th chunk.
    ///
    /// # Safety
    /// `i < count()`, and every `i` is taken once.
    unsafe fn part(&self, i: usize) -> Self::Part;
}

/// A slice in chunks of equal size.
pub struct Chunks<'a, T> {
    base: *mut T,
    count: usize,
    size: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are exclusive borrows of disjoint chunks, each handed to one thread.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

impl<'a, T> Chunks<'a, T> {
    /// Cuts `slice` into chunks of `size` elements and leaves out a shorter rest. Size 0 gives any
    /// number of empty chunks, for a buffer that a step does not need.
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
        // slice and is handed out once.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(i * self.size), self.size) }
    }
}

/// No data, for steps that need only the index.
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
chunked_tuple!(A 0, B 1, C 2, D 3);
