//! Scales of ternary matrices.

use super::{BLOCK_COLS, LayoutError, PANEL_ROWS, expect_bytes, expect_finite};
use crate::loader::WeightLoader;
use crate::mem::WeightVec;
use bytes::Bytes;
use half::f16;

/// The factors that codes are multiplied with.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// One factor for the whole matrix: W = (c − 1) · scale.
    Tensor(f32),
    /// One factor per row and group of columns.
    Groups(GroupScales),
}

impl Scales {
    /// Number of columns that share a factor, in a matrix of `cols` columns.
    pub(super) fn group(&self, cols: usize) -> usize {
        match self {
            Self::Tensor(_) => cols,
            Self::Groups(g) => g.size(),
        }
    }

    /// Loads the scales.
    pub(super) fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        match self {
            Self::Tensor(scale) => Self::Tensor(*scale),
            Self::Groups(g) => {
                Self::Groups(GroupScales { values: loader.relocate(&g.values), ..*g })
            }
        }
    }
}

/// One f16 factor per row and group of `size` columns, laid out `[panel][group][16 rows]`.
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
    /// If `size` is not a positive multiple of [`BLOCK_COLS`], the byte count is wrong or a scale is not finite.
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
        let scales = values.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32());
        expect_finite(scales, 1.0, (groups, size))?;
        Ok(Self { size, groups, values })
    }

    /// Packs scales row by row: `fill(row, out)` writes the row's ⌈cols / size⌉ factors.
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

    /// Number of columns that share a factor.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Number of groups in a row.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// All factors: little-endian f16, `[panel][group][16 rows]`.
    pub fn bytes(&self) -> &Bytes {
        &self.values
    }

    /// Returns the factor of one row and group.
    pub fn get(&self, row: usize, group: usize) -> f16 {
        let at = (row / PANEL_ROWS * self.groups + group) * PANEL_ROWS + row % PANEL_ROWS;
        f16::from_le_bytes([self.values[2 * at], self.values[2 * at + 1]])
    }

    /// Returns the factor of the first `rows` rows if all of them share one.
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
