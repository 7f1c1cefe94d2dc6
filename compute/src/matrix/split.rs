//! int8 matrices in two planes of four bits: a product with the upper plane alone reads half of the
//! bytes and comes close; with both it is the int8 matrix's, bit for bit (but for scales near 10⁻³⁸, which
//! cannot be divided exactly).
//!
//! Values are shifted up as far as eight bits allow, and scales down: so the upper plane says as much
//! as it can, and what four bits hold needs no other plane.

use super::int8::{BLOCK_BYTES, Int8Matrix};
use super::view::{Int8View, Packing};
use crate::mem::WeightVec;
use bytes::Bytes;

/// An int8 matrix of `rows` outputs × `cols` inputs, its values in halves: see [`Int8View`].
#[derive(Clone, Debug, PartialEq)]
pub struct SplitMatrix {
    rows: usize,
    cols: usize,
    group: usize,
    high: Bytes,
    /// Empty where all of it would be zero.
    low: Bytes,
    /// The middle of what the lower halves are.
    fill: u8,
    scales: Bytes,
}

impl SplitMatrix {
    /// Splits the values of `w`.
    pub fn new(w: &Int8Matrix) -> Self {
        let shift = spare_bits(w.values());
        let used = w.values().iter().fold(0, |bits, v| bits | v << shift & 15);
        let lines = w.values().len() / (2 * BLOCK_BYTES);
        let mut high = WeightVec::<u8>::zeroed(lines * BLOCK_BYTES);
        let mut low = WeightVec::<u8>::zeroed(if used == 0 { 0 } else { lines * BLOCK_BYTES });
        let pairs = w.values().as_chunks::<{ 2 * BLOCK_BYTES }>().0;
        for (pair, line) in pairs.iter().zip(high.as_chunks_mut::<BLOCK_BYTES>().0) {
            let (first, second) = pair.split_at(BLOCK_BYTES);
            for ((a, b), out) in first.iter().zip(second).zip(line) {
                *out = (a << shift) >> 4 | (b << shift) & 0xf0;
            }
        }
        for (pair, line) in pairs.iter().zip(low.as_chunks_mut::<BLOCK_BYTES>().0) {
            let (first, second) = pair.split_at(BLOCK_BYTES);
            for ((a, b), out) in first.iter().zip(second).zip(line) {
                *out = (a << shift) & 15 | (b << shift) << 4;
            }
        }
        let mut scales = WeightVec::<u32>::zeroed(w.scales().len() / 4);
        for (out, bytes) in scales.iter_mut().zip(w.scales().as_chunks().0) {
            let scale = f32::from_le_bytes(*bytes) / f32::from(1u8 << shift);
            *out = scale.to_bits().to_le();
        }
        // Bits that are never set do not count: of steps of 4, 0 to 12, the middle is 6.
        let fill = if used == 0 { 0 } else { 8 - (1 << used.trailing_zeros()) / 2 };
        let (high, low, scales) = (high.into_bytes(), low.into_bytes(), scales.into_bytes());
        let Int8View { rows, cols, group, .. } = w.view();
        Self { rows, cols, group, high, low, fill, scales }
    }

    /// Bytes that a product with the upper plane reads, and one with both.
    pub fn bytes(&self) -> (usize, usize) {
        let upper = self.high.len() + self.scales.len();
        (upper, upper + self.low.len())
    }

    /// Whether the upper plane says everything.
    pub fn is_exact(&self) -> bool {
        self.low.is_empty()
    }

    /// What it was made of, but for a power of two between values and scales.
    pub fn joined(&self) -> Int8Matrix {
        let view = self.view();
        let fill = |row: usize, values: &mut [i8], scales: &mut [f32]| {
            view.unpack_row(row, values);
            (0..).zip(scales).for_each(|(group, scale)| *scale = view.scale(row, group));
        };
        let joined = Int8Matrix::pack(self.rows, self.cols, self.group, fill);
        joined.expect("a shape and scales that an int8 matrix had")
    }

    /// The matrix with its upper halves alone; exact where there are no lower ones.
    pub fn upper(&self) -> Int8View<'_> {
        let Self { rows, cols, group, fill, .. } = *self;
        let (values, scales) = (&self.high[..], &self.scales[..]);
        Int8View { rows, cols, group, packing: Packing::Upper, values, low: &[], fill, scales }
    }

    /// The whole matrix; its shape, too.
    pub fn view(&self) -> Int8View<'_> {
        if self.low.is_empty() {
            return self.upper();
        }
        Int8View { packing: Packing::Split, low: &self.low, ..self.upper() }
    }

    /// Writes one row as f32.
    ///
    /// # Panics
    /// When `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.view().row_f32(row, out);
    }
}

/// Bits by which all values can be shifted up in eight.
fn spare_bits(values: &[u8]) -> u32 {
    let used = values.iter().fold(0, |bits, &v| bits | v ^ ((v as i8) >> 7) as u8);
    used.leading_zeros().clamp(1, 8) - 1
}
