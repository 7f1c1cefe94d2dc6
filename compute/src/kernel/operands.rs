//! Operands of kernels, apart from weights: quantized activations, and the inputs of attention.

use super::PageLayout;
use crate::mem::AlignedVec;
use crate::ternary::{BLOCK_COLS, Scales, TernaryMatrix, tight};
use std::ops::Range;

/// Activations as int8 rows, each with a scale.
///
/// With two planes a token has 15-bit activations in two rows: first the high part, whose scale is 256
/// times larger, then the low one. Ternary products process one plane after the other and add the
/// results. int8 products process both at once. Joined values are within ±32,767.
#[derive(Clone, Copy)]
pub struct Quantized<'a> {
    /// Values, `[rows][stride]`; columns past the matrix's are zero.
    pub values: &'a [i8],
    /// Number of columns in memory; see [`Quantized::stride_of`].
    pub stride: usize,
    /// Sum of each row's values, `[rows]`.
    pub sums: &'a [i32],
    /// Scale of each row: the step between two quantized values, `[rows]`.
    pub steps: &'a [f32],
    /// Number of rows per token: 1 or 2.
    pub planes: usize,
    /// Scales of groups of columns, in front of the rows' scales; only with one plane.
    pub groups: Option<GroupSteps<'a>>,
}

/// Scales of groups of columns.
///
/// Products round after each group of a matrix's columns, so an activation group is one or several of
/// those: a power of two times their size.
#[derive(Clone, Copy)]
pub struct GroupSteps<'a> {
    /// Number of columns of a group.
    pub columns: usize,
    /// Scale of each group, `[rows][groups]`.
    pub steps: &'a [f32],
}

/// [`GroupSteps`] by the groups of a matrix.
#[derive(Clone, Copy)]
pub struct MatrixGroupSteps<'a> {
    steps: &'a [f32],
    /// Number of scales of a row.
    stride: usize,
    /// log₂ of the number of the matrix's groups that share a scale.
    shift: u32,
}

impl MatrixGroupSteps<'_> {
    /// Returns the scale of a row in the matrix's group `g`.
    #[inline(always)]
    pub fn of(&self, row: usize, g: usize) -> f32 {
        self.steps[row * self.stride + (g >> self.shift)]
    }
}

/// Number of bytes of a cache line, and of columns that an AMX tile reads at once.
const LINE: usize = 64;

impl<'a> Quantized<'a> {
    /// Returns the stride of rows that have `cols` columns.
    ///
    /// It covers the last block of every layout, in an odd number of whole cache lines. An odd number
    /// keeps the same column of many rows out of the same few cache sets.
    pub fn stride_of(cols: usize) -> usize {
        (cols.next_multiple_of(tight::COLS).div_ceil(LINE) | 1) * LINE
    }

    /// Number of rows, counting all planes.
    pub fn rows(&self) -> usize {
        self.sums.len()
    }

    /// Number of tokens, of one or two rows each.
    pub fn tokens(&self) -> usize {
        self.rows() / self.planes
    }

    /// Returns a token's value in a column, joined from its planes.
    #[inline]
    pub fn joined(&self, token: usize, column: usize) -> i32 {
        let planes =
            (0..self.planes).map(|p| self.values[(token * self.planes + p) * self.stride + column]);
        planes.fold(0, |value, plane| 256 * value + i32::from(plane))
    }

    /// Returns the scale of a token's joined values: that of its last plane.
    #[inline]
    pub fn joined_step(&self, token: usize) -> f32 {
        self.steps[(token + 1) * self.planes - 1]
    }

    /// Returns one row, including the zeros past the matrix's columns.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [i8] {
        &self.values[row * self.stride..(row + 1) * self.stride]
    }

    /// Returns one row in whole chunks of `N` values.
    #[inline]
    pub fn row_chunks<const N: usize>(&self, row: usize) -> &'a [[i8; N]] {
        self.row(row).as_chunks().0
    }

    /// Returns the scales of groups of columns by the groups of a matrix: `size` of its `cols` columns
    /// share a scale there.
    ///
    /// # Panics
    /// If the sizes of groups do not fit; see [`GroupSteps`].
    #[inline]
    pub(crate) fn matrix_group_steps(
        &self,
        cols: usize,
        size: usize,
    ) -> Option<MatrixGroupSteps<'a>> {
        let GroupSteps { columns, steps } = self.groups?;
        let shared = columns / size;
        let fits = shared.is_power_of_two() && shared * size == columns && self.planes == 1;
        assert!(fits, "scales of {columns} columns for a matrix with groups of {size}");
        let (stride, shift) = (cols.div_ceil(columns), shared.trailing_zeros());
        Some(MatrixGroupSteps { steps, stride, shift })
    }

    /// Returns the number of columns of `w` that share a scale, and the sum of each such group of
    /// activations, `[rows][groups]`. Sums are written to `out` if a row has several groups.
    pub fn scale_groups<'s>(
        &'s self,
        w: &TernaryMatrix,
        out: &'s mut AlignedVec<i32>,
    ) -> (usize, &'s [i32]) {
        match w.scales() {
            Scales::Tensor(_) => (w.cols().next_multiple_of(BLOCK_COLS).max(1), self.sums),
            Scales::Groups(g) => (g.size(), self.group_sums(w.cols(), g.size(), out)),
        }
    }

    /// Writes the sum of each group of `size` columns to `out`, `[rows][groups]`.
    fn group_sums<'s>(&self, cols: usize, size: usize, out: &'s mut AlignedVec<i32>) -> &'s [i32] {
        let groups = cols.div_ceil(size);
        out.grow(self.rows() * groups);
        for row in 0..self.rows() {
            let values = &self.values[row * self.stride..][..cols];
            for (sum, group) in out[row * groups..].iter_mut().zip(values.chunks(size)) {
                *sum = group.iter().map(|&v| i32::from(v)).sum();
            }
        }
        &out[..self.rows() * groups]
    }

    /// Returns the output row of row `row`'s product, and true if it is added to that row.
    #[inline]
    pub fn target(&self, row: usize) -> (usize, bool) {
        // Not a division, which is slow: this runs for every output.
        match self.planes {
            1 => (row, false),
            _ => (row / 2, row % 2 == 1),
        }
    }
}

/// Inputs of attention: consecutive query rows of a sequence, and the keys and values of one KV head
/// in one layer.
pub struct Attention<'a> {
    /// Queries of each row that share the KV head, `[rows][group][head_dim]`.
    pub queries: &'a [f32],
    /// Factor of the scores: 1/√head_dim.
    pub scale: f32,
    /// Layout of a page.
    pub layout: PageLayout,
    /// All pages of this head.
    pub pages: &'a [u8],
    /// Page table: the pages that the rows read, in order of position.
    pub table: &'a [u32],
    /// Number of keys that each row sees on these pages, from the first on, `[rows]`.
    pub ends: &'a [usize],
}

impl<'a> Attention<'a> {
    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.layout.head_dim
    }

    /// Number of queries of a row.
    pub fn group(&self) -> usize {
        self.queries.len() / self.head_dim() / self.ends.len()
    }

    /// Returns the queries of row `row`, `[group][head_dim]`.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [f32] {
        self.rows(row..row + 1)
    }

    /// Returns the queries of some rows, `[rows][group][head_dim]`.
    pub fn rows(&self, rows: Range<usize>) -> &'a [f32] {
        let width = self.group() * self.head_dim();
        &self.queries[rows.start * width..rows.end * width]
    }

    /// Number of pages that at least one row sees.
    pub fn pages(&self) -> usize {
        self.ends.iter().max().map_or(0, |end| end.div_ceil(super::PAGE))
    }

    /// Returns the ranges of consecutive rows that see a key of the `i`-th page.
    pub fn rows_with_page(&self, i: usize) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let sees = move |end: &usize| *end > i * super::PAGE;
        let mut next = 0;
        self.ends.chunk_by(move |a, b| sees(a) == sees(b)).filter_map(move |ends| {
            let rows = next..next + ends.len();
            next = rows.end;
            sees(&ends[0]).then_some(rows)
        })
    }

    /// Returns the `i`-th page.
    #[inline]
    pub fn page(&self, i: usize) -> &'a [u8] {
        let bytes = self.layout.bytes();
        &self.pages[self.table[i] as usize * bytes..][..bytes]
    }
}
