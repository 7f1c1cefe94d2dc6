//! Ternary weights: three packed layouts, packing and unpacking.
//!
//! A weight w ∈ {-1, 0, +1} is stored as the code c = w + 1 in two bits. The fourth code, 3 (weight
//! +2), is legal in some files and is kept.
//!
//! Rows form panels of 16. A 64-byte block holds 16 rows × 16 columns: bits `2f..2f+2` of byte
//! `4·r + j` are the code of row `r` and column `4·f + j`. A panel is its blocks from left to right, a
//! matrix its panels from top to bottom. Rows and columns past the edge hold code 1 (weight 0). The
//! bytes are the same on every host.
//!
//! The [`tight`] layout takes a sixth less memory, for products that memory bandwidth limits. The
//! [`one_bit`] layout takes half, and holds no other weights than −1 and +1.
//!
//! ```
//! use wrinklefree_compute::ternary::{Layout, Scales, TernaryMatrix};
//!
//! // Two rows of three weights: (-1, 0, +1) and (+1, +1, -1), times a scale of 0.5.
//! let codes = [[0, 1, 2], [2, 2, 0]];
//! let w = TernaryMatrix::pack(2, 3, Scales::Tensor(0.5), |row, out| out.copy_from_slice(&codes[row]))?;
//!
//! let mut row = [0.0; 3];
//! w.row_f32(0, &mut row);
//! assert_eq!(row, [-0.5, 0.0, 0.5]);
//!
//! let tight = w.in_layout(Layout::Tight).expect("three codes and one scale fit");
//! tight.row_f32(1, &mut row);
//! assert_eq!(row, [0.5, 0.5, -0.5]);
//! # Ok::<(), wrinklefree_compute::ternary::LayoutError>(())
//! ```

pub mod one_bit;
mod repack;
mod scales;
pub mod tight;

pub use repack::repack;
pub use scales::{GroupScales, Scales};

use crate::loader::WeightLoader;
use crate::mem::WeightVec;
use bytes::Bytes;

/// Number of rows in a panel.
pub const PANEL_ROWS: usize = 16;
/// Number of columns in a block.
pub const BLOCK_COLS: usize = 16;
/// Bytes in a block of 16 rows × 16 columns.
pub const BLOCK_BYTES: usize = 64;
/// The code of weight 0, which pads rows and columns past the edge.
pub const ZERO_CODE: u8 = 1;
/// Four padding codes.
const ZERO_BYTE: u8 = 0b01_01_01_01;

/// Layout of a matrix's codes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Two bits per code, which every instruction set reads.
    TwoBit,
    /// Three codes in five bits: [`tight`].
    Tight,
    /// One bit per weight that is −1 or +1: [`one_bit`].
    OneBit,
}

impl Layout {
    /// Name of the layout, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::TwoBit => "two-bit",
            Self::Tight => "tight",
            Self::OneBit => "one-bit",
        }
    }
}

/// Error for bytes that are not a matrix of the expected shape.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LayoutError {
    /// The byte count does not match the shape.
    #[error("{what}: expected {want} bytes for {rows} × {cols}, found {found}")]
    Size {
        /// The part of the matrix.
        what: &'static str,
        /// Number of bytes that the shape needs.
        want: usize,
        /// Number of bytes that were given.
        found: usize,
        /// Number of rows of the matrix.
        rows: usize,
        /// Number of columns of the matrix.
        cols: usize,
    },
    /// A group size that the kernels do not support.
    #[error("group size {0}: expected a multiple of {1}")]
    Group(usize, usize),
    /// Columns or scales that the one-bit layout does not hold.
    #[error(
        "one-bit weights: expected a scale for each {} of {cols} columns, found one for each {found}",
        one_bit::GROUP
    )]
    OneBit {
        /// Number of columns of the matrix.
        cols: usize,
        /// Number of columns that share a scale.
        found: usize,
    },
    /// The size of rows × columns overflows.
    #[error("{0} × {1} is too large")]
    TooLarge(usize, usize),
    /// A scale is NaN or infinite, or weights that it multiplies are.
    #[error(
        "scale {value} of the weights from row {row}, column {col} on is too large or no number"
    )]
    Scale {
        /// The scale.
        value: f32,
        /// First row that it belongs to.
        row: usize,
        /// First column that it belongs to.
        col: usize,
    },
}

/// Checks that scales times `most` are finite. They are laid out `[panel][group][16 rows]`, for groups
/// of `size` columns.
///
/// # Errors
/// [`LayoutError::Scale`] for the first one that is not.
pub(crate) fn expect_finite(
    mut scales: impl Iterator<Item = f32>,
    most: f32,
    (groups, size): (usize, usize),
) -> Result<(), LayoutError> {
    let mut at = 0;
    let bad = scales.find(|scale| {
        at += 1;
        !(scale * most).is_finite()
    });
    let Some(value) = bad else { return Ok(()) };
    let (line, lane) = ((at - 1) / PANEL_ROWS, (at - 1) % PANEL_ROWS);
    let (row, col) = (line / groups * PANEL_ROWS + lane, line % groups * size);
    Err(LayoutError::Scale { value, row, col })
}

/// Checks that `data` has the byte count of its shape; `want` is `None` if computing it overflowed.
///
/// # Errors
/// [`LayoutError::Size`] or [`LayoutError::TooLarge`].
pub fn expect_bytes(
    what: &'static str,
    data: &[u8],
    want: Option<usize>,
    rows: usize,
    cols: usize,
) -> Result<(), LayoutError> {
    match want {
        None => Err(LayoutError::TooLarge(rows, cols)),
        Some(want) if want == data.len() => Ok(()),
        Some(want) => Err(LayoutError::Size { what, want, found: data.len(), rows, cols }),
    }
}

/// A ternary matrix of `rows` outputs × `cols` inputs, in one of the packed layouts.
#[derive(Clone, Debug, PartialEq)]
pub struct TernaryMatrix {
    rows: usize,
    cols: usize,
    layout: Layout,
    /// `[panel][block][64]`, in the tight layout `[panel][block][40]`.
    codes: Bytes,
    scales: Scales,
}

impl TernaryMatrix {
    /// Number of bytes of the two-bit codes of a shape; `None` on overflow.
    pub fn code_bytes(rows: usize, cols: usize) -> Option<usize> {
        Self::layout_bytes(Layout::TwoBit, (rows, cols), cols)
    }

    /// Number of bytes of the codes of a shape whose scales have groups of `group` columns; `None` on
    /// overflow.
    fn layout_bytes(layout: Layout, (rows, cols): (usize, usize), group: usize) -> Option<usize> {
        let (blocks, bytes) = match layout {
            Layout::TwoBit => (cols.div_ceil(BLOCK_COLS), BLOCK_BYTES),
            Layout::Tight => (
                cols.div_ceil(group.max(1)).checked_mul(group.div_ceil(tight::COLS))?,
                tight::BYTES,
            ),
            Layout::OneBit => (cols.div_ceil(one_bit::COLS), BLOCK_BYTES),
        };
        rows.div_ceil(PANEL_ROWS).checked_mul(blocks)?.checked_mul(bytes)
    }

    /// Takes codes in the two-bit layout, without copying.
    ///
    /// # Errors
    /// If the byte count does not match the shape or the scale is not finite.
    pub fn from_panels(
        rows: usize,
        cols: usize,
        codes: Bytes,
        scales: Scales,
    ) -> Result<Self, LayoutError> {
        Self::new(Layout::TwoBit, (rows, cols), codes, scales)
    }

    /// Takes codes in the tight layout, without copying.
    ///
    /// # Errors
    /// As [`TernaryMatrix::from_panels`], and for more than [`tight::MOST_COLS`] columns.
    pub fn from_tight(
        rows: usize,
        cols: usize,
        codes: Bytes,
        scales: Scales,
    ) -> Result<Self, LayoutError> {
        if cols > tight::MOST_COLS {
            return Err(LayoutError::TooLarge(rows, cols));
        }
        Self::new(Layout::Tight, (rows, cols), codes, scales)
    }

    /// Takes codes in the one-bit layout, without copying.
    ///
    /// # Errors
    /// As [`TernaryMatrix::from_panels`], and unless each [`one_bit::GROUP`] columns have a scale.
    pub fn from_one_bit(
        rows: usize,
        cols: usize,
        codes: Bytes,
        scales: Scales,
    ) -> Result<Self, LayoutError> {
        if !one_bit::takes(cols, &scales) {
            return Err(LayoutError::OneBit { cols, found: scales.group(cols) });
        }
        Self::new(Layout::OneBit, (rows, cols), codes, scales)
    }

    fn new(
        layout: Layout,
        (rows, cols): (usize, usize),
        codes: Bytes,
        scales: Scales,
    ) -> Result<Self, LayoutError> {
        let want = Self::layout_bytes(layout, (rows, cols), scales.group(cols));
        expect_bytes("ternary codes", &codes, want, rows, cols)?;
        match scales {
            Scales::Tensor(value) if !value.is_finite() => {
                Err(LayoutError::Scale { value, row: 0, col: 0 })
            }
            scales => Ok(Self { rows, cols, layout, codes, scales }),
        }
    }

    /// Returns the same weights in `layout`. Weights that are in it already are shared, not copied.
    ///
    /// Returns `None` if memory has no room or the weights do not fit: the tight layout has no fourth code,
    /// and takes more memory where 16 columns share a scale. The one-bit layout has no weight 0 either, and
    /// a scale for each [`one_bit::GROUP`] columns.
    pub fn in_layout(&self, layout: Layout) -> Option<Self> {
        repack(&[self], layout, &mut WeightLoader::alone()).pop().flatten()
    }

    /// Converts the matrix to a layout if it fits; see [`TernaryMatrix::in_layout`].
    pub fn set_layout(&mut self, layout: Layout) {
        if let Some(other) = self.in_layout(layout) {
            *self = other;
        }
    }

    /// Returns the same codes with one scale for all.
    ///
    /// # Errors
    /// If the scale is not finite, or the layout is the one-bit one.
    pub fn with_scale(&self, scale: f32) -> Result<Self, LayoutError> {
        let (rows, cols, codes) = (self.rows, self.cols, self.codes.clone());
        match self.layout {
            Layout::OneBit => Self::from_one_bit(rows, cols, codes, Scales::Tensor(scale)),
            layout => Self::new(layout, (rows, cols), codes, Scales::Tensor(scale)),
        }
    }

    /// Packs a matrix row by row: `fill(row, codes)` writes the row's `cols` codes, each in 0..=3.
    ///
    /// # Errors
    /// As [`TernaryMatrix::from_panels`].
    pub fn pack(
        rows: usize,
        cols: usize,
        scales: Scales,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<Self, LayoutError> {
        let bytes = Self::code_bytes(rows, cols).ok_or(LayoutError::TooLarge(rows, cols))?;
        let mut codes = WeightVec::<u8>::zeroed(bytes);
        codes.fill(ZERO_BYTE);
        let blocks = cols.div_ceil(BLOCK_COLS);
        let mut row_codes = vec![ZERO_CODE; blocks * BLOCK_COLS];
        for row in 0..rows {
            fill(row, &mut row_codes[..cols]);
            let panel = row / PANEL_ROWS * blocks * BLOCK_BYTES;
            for (b, c) in row_codes.chunks_exact(BLOCK_COLS).enumerate() {
                let at = panel + b * BLOCK_BYTES + row % PANEL_ROWS * 4;
                for j in 0..4 {
                    codes[at + j] =
                        c[j] & 3 | (c[j + 4] & 3) << 2 | (c[j + 8] & 3) << 4 | (c[j + 12] & 3) << 6;
                }
            }
        }
        Self::from_panels(rows, cols, codes.into_bytes(), scales)
    }

    /// Writes the codes of one row to `out`; the inverse of [`TernaryMatrix::pack`].
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn unpack_row(&self, row: usize, out: &mut [u8]) {
        self.unpack(row, out, |code| code);
    }

    /// Writes each code of a row to `out`, converted.
    fn unpack<T>(&self, row: usize, out: &mut [T], convert: impl Fn(u8) -> T) {
        assert!(row < self.rows && out.len() == self.cols);
        let panel = self.panel_bytes();
        let codes = &self.codes[row / PANEL_ROWS * panel..][..panel];
        let row = row % PANEL_ROWS;
        match self.layout {
            Layout::TwoBit => {
                let blocks = codes.as_chunks::<BLOCK_BYTES>().0;
                for (block, out) in blocks.iter().zip(out.chunks_mut(BLOCK_COLS)) {
                    for (k, code) in out.iter_mut().enumerate() {
                        *code = convert(block[4 * row + k % 4] >> (2 * (k / 4)) & 3);
                    }
                }
            }
            Layout::Tight => {
                let blocks = codes.as_chunks::<{ tight::BYTES }>().0;
                let groups = blocks.chunks(self.group_blocks(Layout::Tight));
                for (blocks, out) in groups.zip(out.chunks_mut(self.group_cols())) {
                    for (block, out) in blocks.iter().zip(out.chunks_mut(tight::COLS)) {
                        for (k, code) in out.iter_mut().enumerate() {
                            *code = convert(tight::code(block, row, k));
                        }
                    }
                }
            }
            Layout::OneBit => {
                let blocks = codes.as_chunks().0;
                for span in one_bit::spans(self.cols, 0) {
                    for (column, code) in span.clone().zip(&mut out[span.clone()]) {
                        *code = convert(one_bit::code(blocks, &span, row, column));
                    }
                }
            }
        }
    }

    /// Writes the weights of one row to `out` as f32: (c − 1) · scale.
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.unpack(row, out, |code| f32::from(code) - 1.0);
        for (k, w) in out.iter_mut().enumerate() {
            *w *= self.scale_at(row, k);
        }
    }

    /// Returns the scale of the weight at `row`, `col`.
    pub fn scale_at(&self, row: usize, col: usize) -> f32 {
        match &self.scales {
            Scales::Tensor(s) => *s,
            Scales::Groups(g) => g.get(row, col / g.size()).to_f32(),
        }
    }

    /// Number of columns that share a scale, at least one.
    fn group_cols(&self) -> usize {
        self.scales.group(self.cols).max(1)
    }

    /// Number of blocks in which a layout holds a panel's part of a group; at least one.
    pub(crate) fn group_blocks(&self, layout: Layout) -> usize {
        self.group_cols().div_ceil(match layout {
            Layout::TwoBit => BLOCK_COLS,
            Layout::Tight => tight::COLS,
            Layout::OneBit => one_bit::COLS,
        })
    }

    /// Number of rows (outputs).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns (inputs).
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Layout of the codes.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The packed codes: `[panel][block][64]`, in the tight layout `[panel][block][40]`.
    pub fn codes(&self) -> &Bytes {
        &self.codes
    }

    /// Number of bytes of a panel's codes.
    pub fn panel_bytes(&self) -> usize {
        self.codes.len() / self.rows.div_ceil(PANEL_ROWS).max(1)
    }

    /// The scales that codes are multiplied with.
    pub fn scales(&self) -> &Scales {
        &self.scales
    }
}
