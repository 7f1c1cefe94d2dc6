//! int8 matrices: heads, embeddings and other layers that are not ternary.
//!
//! Rows form panels of 16. A 64-byte block holds 16 rows × 4 columns: byte `4·r + j` is row `r`,
//! column `j`. Rows and columns past the edge are zero. There is one f32 scale per row and group of
//! columns, laid out `[panel][group][16 rows]`. A group as wide as the row gives one scale per row.

use super::LayoutError;
use super::view::{BLOCK_BYTES, INT8_BLOCK_COLS, INT8_PAD_COLS, Int8View, Packing};
use crate::loader::WeightLoader;
use crate::mem::WeightVec;
use crate::ternary::{PANEL_ROWS, expect_bytes, expect_finite};
use bytes::Bytes;

/// Largest magnitude of a value.
pub(super) const LARGEST: f32 = 128.0;

/// An int8 matrix of `rows` outputs × `cols` inputs: W = q · scale(row, group).
///
/// ```
/// use wrinklefree_compute::matrix::Int8Matrix;
///
/// // One scale per row: a group is as wide as a row.
/// let (rows, cols) = (2, 3);
/// let w = Int8Matrix::pack(rows, cols, cols, |row, values, scales| {
///     values.copy_from_slice(&[[1, -2, 3], [4, 0, -6]][row]);
///     scales[0] = 0.5;
/// })?;
/// let mut row = [0.0; 3];
/// w.row_f32(1, &mut row);
/// assert_eq!(row, [2.0, 0.0, -3.0]);
/// # Ok::<(), wrinklefree_compute::ternary::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Int8Matrix {
    rows: usize,
    cols: usize,
    group: usize,
    values: Bytes,
    scales: Bytes,
}

impl Int8Matrix {
    /// Number of bytes of the values of a shape; `None` on overflow.
    pub fn value_bytes(rows: usize, cols: usize) -> Option<usize> {
        let blocks = cols.div_ceil(INT8_PAD_COLS) * (INT8_PAD_COLS / INT8_BLOCK_COLS);
        rows.div_ceil(PANEL_ROWS).checked_mul(blocks)?.checked_mul(BLOCK_BYTES)
    }

    /// Takes values and scales in panel layout, without copying.
    ///
    /// `group` is a multiple of 16, or `cols` for one scale per row.
    ///
    /// # Errors
    /// If a byte count does not match the shape, the group size is not supported or a weight is not
    /// finite.
    pub fn from_panels(
        rows: usize,
        cols: usize,
        group: usize,
        values: Bytes,
        scales: Bytes,
    ) -> Result<Self, LayoutError> {
        let groups = groups(cols, group)?;
        expect_bytes("int8 values", &values, Self::value_bytes(rows, cols), rows, cols)?;
        let want = rows.div_ceil(PANEL_ROWS).checked_mul(groups);
        let want = want.and_then(|n| n.checked_mul(PANEL_ROWS * 4));
        expect_bytes("int8 scales", &scales, want, rows, cols)?;
        let floats = scales.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        expect_finite(floats, LARGEST, (groups, group))?;
        Ok(Self { rows, cols, group, values, scales })
    }

    /// Packs a matrix row by row: `fill(row, values, scales)` writes the row's `cols` values and
    /// ⌈cols / group⌉ scales.
    ///
    /// # Errors
    /// As [`Int8Matrix::from_panels`].
    pub fn pack(
        rows: usize,
        cols: usize,
        group: usize,
        mut fill: impl FnMut(usize, &mut [i8], &mut [f32]),
    ) -> Result<Self, LayoutError> {
        let groups = groups(cols, group)?;
        let bytes = Self::value_bytes(rows, cols).ok_or(LayoutError::TooLarge(rows, cols))?;
        let mut values = WeightVec::<i8>::zeroed(bytes);
        let mut scales = WeightVec::<u32>::zeroed(rows.div_ceil(PANEL_ROWS) * groups * PANEL_ROWS);
        let padded = cols.next_multiple_of(INT8_PAD_COLS);
        let mut row_values = vec![0i8; padded];
        let mut row_scales = vec![0f32; groups];
        for row in 0..rows {
            fill(row, &mut row_values[..cols], &mut row_scales);
            let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
            write_row(&row_values, lane, &mut values[panel * padded * PANEL_ROWS..]);
            for (g, s) in row_scales.iter().enumerate() {
                scales[(panel * groups + g) * PANEL_ROWS + lane] = s.to_bits().to_le();
            }
        }
        Self::from_panels(rows, cols, group, values.into_bytes(), scales.into_bytes())
    }

    /// Quantizes float rows with one scale per row. `row_f32(row, out)` writes a row.
    ///
    /// If all values of a row are multiples of a power of two that eight bits can hold, that power is
    /// the scale and nothing is lost. Otherwise the scale is max |w| / 127, rounding half to even.
    ///
    /// # Errors
    /// As [`Int8Matrix::from_panels`]; a row with a NaN or infinity has no finite scale.
    pub fn quantize_rows(
        rows: usize,
        cols: usize,
        mut row_f32: impl FnMut(usize, &mut [f32]),
    ) -> Result<Self, LayoutError> {
        let mut row = vec![0f32; cols];
        Self::pack(rows, cols, cols.max(1), |r, values, scales| {
            row_f32(r, &mut row);
            let finite = row.iter().all(|w| w.is_finite());
            let max = row.iter().fold(0f32, |m, w| m.max(w.abs()));
            let mut inverse = if max > 0.0 { 127.0 / max } else { 0.0 };
            scales[0] = if finite { max / 127.0 } else { f32::NAN };
            if let Some(unit) = common_unit(&row).filter(|unit| max <= 127.0 * unit) {
                (scales[0], inverse) = (unit, 1.0 / unit);
            }
            for (q, w) in values.iter_mut().zip(&row) {
                *q = (w * inverse).round_ties_even() as i8;
            }
        })
    }

    /// Loads the matrix.
    #[must_use]
    pub fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        let (values, scales) = (loader.relocate(&self.values), loader.relocate(&self.scales));
        Self { values, scales, ..*self }
    }

    /// The values, `[panel][block][16 rows][4 columns]`.
    pub fn values(&self) -> &Bytes {
        &self.values
    }

    /// The scales: little-endian f32, `[panel][group][16 rows]`.
    pub fn scales(&self) -> &Bytes {
        &self.scales
    }

    /// Returns the matrix as kernels read it; the view also has its shape.
    pub fn view(&self) -> Int8View<'_> {
        let Self { rows, cols, group, .. } = *self;
        let Self { ref values, ref scales, .. } = *self;
        let (packing, low, factors) = (Packing::Whole, &[], &[]);
        Int8View { rows, cols, group, packing, values, low, fill: 0, scales, factors }
    }

    /// Writes the values of one row to `out`.
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn unpack_row(&self, row: usize, out: &mut [i8]) {
        self.view().unpack_row(row, out);
    }

    /// Returns the scale of one row and group.
    pub fn scale(&self, row: usize, group: usize) -> f32 {
        self.view().scale(row, group)
    }

    /// Writes one row to `out` as f32.
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.view().row_f32(row, out);
    }
}

/// Number of groups of a row.
///
/// # Errors
/// If `group` is neither a multiple of 16 nor `cols`.
pub(super) fn groups(cols: usize, group: usize) -> Result<usize, LayoutError> {
    if group == 0 || (group != cols && !group.is_multiple_of(INT8_PAD_COLS)) {
        return Err(LayoutError::Group(group, INT8_PAD_COLS));
    }
    Ok(cols.div_ceil(group))
}

/// Writes a padded row to its lane of a panel.
pub(super) fn write_row(values: &[i8], lane: usize, panel: &mut [i8]) {
    let blocks = panel.as_chunks_mut::<BLOCK_BYTES>().0;
    for (v, block) in values.as_chunks::<INT8_BLOCK_COLS>().0.iter().zip(blocks) {
        block.as_chunks_mut().0[lane] = *v;
    }
}

/// Returns the largest power of two that all values are multiples of. Returns `None` if a value is
/// subnormal or not finite, or all are zero.
fn common_unit(row: &[f32]) -> Option<f32> {
    const MANTISSA: u32 = 23;
    let mut least = None::<i32>;
    for w in row.iter().filter(|&&w| w != 0.0) {
        let bits = w.to_bits() & 0x7fff_ffff;
        if !w.is_normal() {
            return None;
        }
        let last = (bits | 1 << MANTISSA).trailing_zeros() as i32 - MANTISSA as i32;
        let exponent = (bits >> MANTISSA) as i32 - 127 + last;
        least = Some(least.map_or(exponent, |l| l.min(exponent)));
    }
    least.map(|exponent| 2f32.powi(exponent)).filter(|unit| unit.is_normal())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_eight_bits_hold_are_exact() {
        let rows = [
            [1.0, -127.0, 64.0, 0.0].map(|q: f32| q * 2f32.powi(-9)),
            [2.0, -6.0, 4.0, 254.0],
            [0.0; 4],
            [0.3, -1.0, 0.7, 1e-30],
        ];
        let w = Int8Matrix::quantize_rows(4, 4, |r, out| out.copy_from_slice(&rows[r])).unwrap();
        let mut back = [0f32; 4];
        for (r, row) in rows.iter().enumerate().take(3) {
            w.row_f32(r, &mut back);
            assert_eq!(&back, row);
        }
        assert_eq!(w.scale(3, 0), 1.0 / 127.0);
        let bad = Int8Matrix::quantize_rows(1, 4, |_, out| out.fill(f32::INFINITY));
        assert!(bad.is_err());
    }

    #[test]
    fn a_unit_divides_all_values() {
        assert_eq!(common_unit(&[0.75, -2.0, 0.0]), Some(0.25));
        assert_eq!(common_unit(&[f32::MAX]), Some(2f32.powi(104)));
        assert_eq!(common_unit(&[1.0, f32::NAN]), None);
        assert_eq!(common_unit(&[1e-40]), None);
        assert_eq!(common_unit(&[0.0]), None);
    }
}
