//! The one layout of ternary weights, packing and unpacking. (Master weights are quantised where they
//! are read: `format::codec`.)
//!
//! A weight w ∈ {-1, 0, +1} is stored as the code c = w + 1 in two bits (the fourth code, +2,
//! is legal in some files and survives). Rows stand in panels of 16; a 64-byte block holds
//! 16 rows × 16 columns: byte `4·r + j` has, in its bits `2f..2f+2`, the code of row `r` and
//! column `4·f + j`. A panel is its blocks from left to right, a matrix its panels from top to
//! bottom. Rows and columns past the edge hold code 1 (weight 0). The bytes are the same on
//! every host.

use crate::mem::WeightVec;
use bytes::Bytes;
use half::f16;

/// Rows in a panel.
pub const PANEL_ROWS: usize = 16;
/// Columns in a block.
pub const BLOCK_COLS: usize = 16;
/// Bytes in a block of 16 rows × 16 columns.
pub const BLOCK_BYTES: usize = 64;
/// The code of weight 0, which pads rows and columns past the edge.
pub const ZERO_CODE: u8 = 1;
/// Four padding codes.
const ZERO_BYTE: u8 = 0b01_01_01_01;

/// What one step of a code is worth.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// One factor for the whole matrix: W = (c − 1) · scale.
    Tensor(f32),
    /// A factor per row and group of columns.
    Groups(GroupScales),
}

/// Factors per row and group of `size` columns, f16, laid out `[panel][group][16 rows]`.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupScales {
    size: usize,
    groups: usize,
    values: Bytes,
}

/// Why bytes are not a matrix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LayoutError {
    /// The byte count does not match the shape.
    #[error("{what}: expected {want} bytes for {rows} × {cols}, found {found}")]
    Size {
        /// Which part of the matrix.
        what: &'static str,
        /// Bytes the shape asks for.
        want: usize,
        /// Bytes that were given.
        found: usize,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        cols: usize,
    },
    /// A group size the kernels cannot walk.
    #[error("group size {0}: expected a multiple of {1}")]
    Group(usize, usize),
    /// Rows × columns does not fit in memory.
    #[error("{0} × {1} is too large")]
    TooLarge(usize, usize),
    /// A scale is NaN or infinite.
    #[error("scale {0} is not a finite number")]
    Scale(f32),
}

impl GroupScales {
    /// Takes scales in panel layout, for a matrix of `rows` × `cols`.
    ///
    /// # Errors
    /// When `size` is no positive multiple of [`BLOCK_COLS`], the byte count is wrong or a scale is not finite.
    pub fn from_panels(
        rows: usize,
        cols: usize,
        size: usize,
        values: Bytes,
    ) -> Result<Self, LayoutError> {
        if size == 0 || !size.is_multiple_of(BLOCK_COLS) {
            return Err(LayoutError::Group(size, BLOCK_COLS));
        }
        let groups = cols.div_ceil(size);
        let want = rows
            .div_ceil(PANEL_ROWS)
            .checked_mul(groups)
            .and_then(|n| n.checked_mul(PANEL_ROWS * 2))
            .ok_or(LayoutError::TooLarge(rows, cols))?;
        if values.len() != want {
            return Err(LayoutError::Size {
                what: "group scales",
                want,
                found: values.len(),
                rows,
                cols,
            });
        }
        let bad = values
            .chunks_exact(2)
            .map(|b| f16::from_le_bytes([b[0], b[1]]))
            .find(|s| !s.is_finite());
        match bad {
            Some(s) => Err(LayoutError::Scale(s.to_f32())),
            None => Ok(Self { size, groups, values }),
        }
    }

    /// Collects scales row by row: `fill(row, out)` writes the row's `ceil(cols / size)` factors.
    ///
    /// # Errors
    /// As [`GroupScales::from_panels`].
    pub fn from_rows(
        rows: usize,
        cols: usize,
        size: usize,
        mut fill: impl FnMut(usize, &mut [f16]),
    ) -> Result<Self, LayoutError> {
        if size == 0 {
            return Err(LayoutError::Group(size, BLOCK_COLS));
        }
        let groups = cols.div_ceil(size);
        let mut values = WeightVec::<u16>::zeroed(rows.div_ceil(PANEL_ROWS) * groups * PANEL_ROWS);
        let mut row_scales = vec![f16::ZERO; groups];
        for row in 0..rows {
            fill(row, &mut row_scales);
            let panel = row / PANEL_ROWS * groups * PANEL_ROWS;
            for (g, s) in row_scales.iter().enumerate() {
                values[panel + g * PANEL_ROWS + row % PANEL_ROWS] = s.to_bits().to_le();
            }
        }
        Self::from_panels(rows, cols, size, values.into_bytes())
    }

    /// Columns that share a factor.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Groups in a row.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// All factors, f16 little endian, `[panel][group][16 rows]`.
    pub fn bytes(&self) -> &Bytes {
        &self.values
    }

    /// The factor of one row and group.
    pub fn get(&self, row: usize, group: usize) -> f16 {
        let at = (row / PANEL_ROWS * self.groups + group) * PANEL_ROWS + row % PANEL_ROWS;
        f16::from_le_bytes([self.values[2 * at], self.values[2 * at + 1]])
    }

    /// The one factor that all of the first `rows` rows share, if they do.
    pub fn uniform(&self, rows: usize) -> Option<f32> {
        if rows == 0 || self.groups == 0 {
            return None;
        }
        let first = self.get(0, 0);
        (0..rows)
            .all(|r| (0..self.groups).all(|g| self.get(r, g).to_bits() == first.to_bits()))
            .then(|| first.to_f32())
    }
}

/// A ternary matrix of `rows` outputs × `cols` inputs in the packed layout.
#[derive(Clone, Debug, PartialEq)]
pub struct TernaryMatrix {
    rows: usize,
    cols: usize,
    /// `[panel][block][64]`.
    codes: Bytes,
    scales: Scales,
}

impl TernaryMatrix {
    /// Bytes of the packed codes for a shape, `None` on overflow.
    pub fn code_bytes(rows: usize, cols: usize) -> Option<usize> {
        rows.div_ceil(PANEL_ROWS).checked_mul(cols.div_ceil(BLOCK_COLS))?.checked_mul(BLOCK_BYTES)
    }

    /// Takes codes that already stand in the packed layout, without copying.
    ///
    /// # Errors
    /// When the byte count does not match the shape or the scale is not finite.
    pub fn from_panels(
        rows: usize,
        cols: usize,
        codes: Bytes,
        scales: Scales,
    ) -> Result<Self, LayoutError> {
        let want = Self::code_bytes(rows, cols).ok_or(LayoutError::TooLarge(rows, cols))?;
        if codes.len() != want {
            return Err(LayoutError::Size {
                what: "ternary codes",
                want,
                found: codes.len(),
                rows,
                cols,
            });
        }
        match scales {
            Scales::Tensor(s) if !s.is_finite() => Err(LayoutError::Scale(s)),
            scales => Ok(Self { rows, cols, codes, scales }),
        }
    }

    /// Packs row by row: `fill(row, codes)` writes the row's `cols` codes, each in 0..=3.
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

    /// Writes the codes of one row, the inverse of [`TernaryMatrix::pack`].
    ///
    /// # Panics
    /// When `row` is out of range or `out` is not `cols` long.
    pub fn unpack_row(&self, row: usize, out: &mut [u8]) {
        assert!(row < self.rows && out.len() == self.cols);
        let blocks = self.cols.div_ceil(BLOCK_COLS);
        let panel = row / PANEL_ROWS * blocks * BLOCK_BYTES;
        for (b, c) in out.chunks_mut(BLOCK_COLS).enumerate() {
            let at = panel + b * BLOCK_BYTES + row % PANEL_ROWS * 4;
            for (k, code) in c.iter_mut().enumerate() {
                *code = self.codes[at + k % 4] >> (2 * (k / 4)) & 3;
            }
        }
    }

    /// Writes the weights of one row as f32: (c − 1) · scale.
    ///
    /// # Panics
    /// When `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        let mut codes = vec![0; self.cols];
        self.unpack_row(row, &mut codes);
        for (k, (w, c)) in out.iter_mut().zip(codes).enumerate() {
            *w = (f32::from(c) - 1.0) * self.scale_at(row, k);
        }
    }

    /// The factor of the weight at `row`, `col`.
    pub fn scale_at(&self, row: usize, col: usize) -> f32 {
        match &self.scales {
            Scales::Tensor(s) => *s,
            Scales::Groups(g) => g.get(row, col / g.size).to_f32(),
        }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The packed codes, `[panel][block][64]`.
    pub fn codes(&self) -> &Bytes {
        &self.codes
    }

    /// What a step of a code is worth.
    pub fn scales(&self) -> &Scales {
        &self.scales
    }
}
