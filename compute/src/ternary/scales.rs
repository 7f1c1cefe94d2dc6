//! What a step of a code is worth.

use super::{BLOCK_COLS, LayoutError, PANEL_ROWS, expect_bytes};
use crate::loader::WeightLoader;
use crate::mem::WeightVec;
use bytes::Bytes;
use half::f16;

/// What one step of a code is worth.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// One factor for the whole matrix: W = (c − 1) · scale.
    Tensor(f32),
    /// A factor per row and group of columns.
    Groups(GroupScales),
}

impl Scales {
    /// The same where they are to stand.
    pub(super) fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        match self {
            Self::Tensor(scale) => Self::Tensor(*scale),
            Self::Groups(g) => {
                Self::Groups(GroupScales { values: loader.relocate(&g.values), ..*g })
            }
        }
    }
}

/// Factors per row and group of `size` columns, f16, laid out `[panel][group][16 rows]`.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupScales {
    size: usize,
    groups: usize,
    values: Bytes,
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
            .and_then(|n| n.checked_mul(PANEL_ROWS * 2));
        expect_bytes("group scales", &values, want, rows, cols)?;
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
