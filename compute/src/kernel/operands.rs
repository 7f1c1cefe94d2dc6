//! What kernels work on, apart from weights.

use super::PageLayout;
use crate::mem::AlignedVec;
use crate::ternary::{BLOCK_COLS, Scales, TernaryMatrix, tight};
use std::ops::Range;

/// Activations as int8 rows with a scale each.
///
/// With two planes a token is two rows, first the high part (scale 256 times larger), then the
/// low one: 15-bit activations. Ternary products take one plane after the other, the second adds to
/// the first; int8 products take both at once. Joined, values are within ±32,767.
#[derive(Clone, Copy)]
pub struct Quantized<'a> {
    /// `[rows][stride]`; columns past the matrix's are zero.
    pub values: &'a [i8],
    /// Columns in memory: see [`Quantized::stride_of`].
    pub stride: usize,
    /// Σ of each row's values, `[rows]`.
    pub sums: &'a [i32],
    /// What a step of each row is worth, `[rows]`.
    pub steps: &'a [f32],
    /// Rows per token: 1 or 2.
    pub planes: usize,
}

/// Bytes in a cache line, and columns that an AMX tile reads at once.
const LINE: usize = 64;

impl<'a> Quantized<'a> {
    /// Columns in memory of rows that have `cols`: all that the last block of any layout covers, in
    /// whole cache lines, and an odd number of them, so that the same column of many rows does not fall
    /// into the same few sets of a cache.
    pub fn stride_of(cols: usize) -> usize {
        (cols.next_multiple_of(tight::COLS).div_ceil(LINE) | 1) * LINE
    }

    /// Rows, all planes counted.
    pub fn rows(&self) -> usize {
        self.sums.len()
    }

    /// Tokens, each a row or two.
    pub fn tokens(&self) -> usize {
        self.rows() / self.planes
    }

    /// A token's value in some column, of all its planes.
    #[inline]
    pub fn joined(&self, token: usize, column: usize) -> i32 {
        let planes =
            (0..self.planes).map(|p| self.values[(token * self.planes + p) * self.stride + column]);
        planes.fold(0, |value, plane| 256 * value + i32::from(plane))
    }

    /// What a step of a token's joined values is worth: the low plane's.
    #[inline]
    pub fn joined_step(&self, token: usize) -> f32 {
        self.steps[(token + 1) * self.planes - 1]
    }

    /// One row, with what it has past the matrix's columns.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [i8] {
        &self.values[row * self.stride..(row + 1) * self.stride]
    }

    /// One row in whole chunks of `N` values.
    #[inline]
    pub fn row_chunks<const N: usize>(&self, row: usize) -> &'a [[i8; N]] {
        self.row(row).as_chunks().0
    }

    /// How many columns of `w` share a scale, and Σ of each such group, `[rows][groups]`, in `out`
    /// where a row has several.
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

    /// Σ of each group of `size` of the first `cols` columns, `[rows][groups]`, in `out`.
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

    /// Where row `row`'s product goes, and whether it adds to what is there.
    #[inline]
    pub fn target(&self, row: usize) -> (usize, bool) {
        // There are one or two: every output comes here, and a division is slow.
        match self.planes {
            1 => (row, false),
            _ => (row / 2, row % 2 == 1),
        }
    }
}

/// Attention of consecutive query rows of a sequence over the keys and values of one KV head in one
/// layer.
pub struct Attention<'a> {
    /// Each row's queries that share the KV head, `[rows][group][head_dim]`.
    pub queries: &'a [f32],
    /// Multiplies the scores: 1/√head_dim.
    pub scale: f32,
    /// How a page is laid out.
    pub layout: PageLayout,
    /// All pages of this head.
    pub pages: &'a [u8],
    /// The pages that the rows read, in order of position.
    pub table: &'a [u32],
    /// Each row sees the keys `0..end` of these pages, `[rows]`.
    pub ends: &'a [usize],
}

impl<'a> Attention<'a> {
    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.layout.head_dim
    }

    /// Queries of a row.
    pub fn group(&self) -> usize {
        self.queries.len() / self.head_dim() / self.ends.len()
    }

    /// The queries of row `row`, `[group][head_dim]`.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [f32] {
        self.rows(row..row + 1)
    }

    /// The queries of some rows, `[rows][group][head_dim]`.
    pub fn rows(&self, rows: Range<usize>) -> &'a [f32] {
        let width = self.group() * self.head_dim();
        &self.queries[rows.start * width..rows.end * width]
    }

    /// Pages that the rows see between them.
    pub fn pages(&self) -> usize {
        self.ends.iter().max().map_or(0, |end| end.div_ceil(super::PAGE))
    }

    /// Rows that see something of the `i`-th page, neighbors together.
    pub fn rows_with_page(&self, i: usize) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let sees = move |end: &usize| *end > i * super::PAGE;
        let mut next = 0;
        self.ends.chunk_by(move |a, b| sees(a) == sees(b)).filter_map(move |ends| {
            let rows = next..next + ends.len();
            next = rows.end;
            sees(&ends[0]).then_some(rows)
        })
    }

    /// The `i`-th page.
    #[inline]
    pub fn page(&self, i: usize) -> &'a [u8] {
        let bytes = self.layout.bytes();
        &self.pages[self.table[i] as usize * bytes..][..bytes]
    }
}
