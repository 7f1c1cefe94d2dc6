//! int8 weights as kernels read them: as they stand, or put together from planes of four bits.

use super::int8::{BLOCK_BYTES, INT8_BLOCK_COLS, INT8_PAD_COLS};
use crate::ternary::PANEL_ROWS;
use std::ops::Range;

/// How int8 values are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A byte each.
    Whole,
    /// Their upper four bits; the lower ones are taken to be all alike.
    Upper,
    /// Their upper four bits in one plane and the lower four in another.
    Split,
}

/// A matrix of int8 values and scales, laid out as [`super::Int8Matrix`] says.
///
/// In a plane of four bits a line of 64 bytes holds two blocks: byte `i` of the first one in the lower
/// halves of the bytes, byte `i` of the second in the upper ones.
#[derive(Clone, Copy, Debug)]
pub struct Int8View<'a> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) group: usize,
    pub(super) packing: Packing,
    /// The values, or the plane of their upper halves.
    pub(super) values: &'a [u8],
    /// The plane of the lower halves, where it is read.
    pub(super) low: &'a [u8],
    /// What stands for the lower halves, where they are not read.
    pub(super) fill: u8,
    pub(super) scales: &'a [u8],
}

/// The values of a panel, or of some of its columns.
#[derive(Clone, Copy)]
pub struct Int8Panel<'a> {
    /// The values, two blocks in 128 bytes, or the plane of their upper halves, two blocks in 64.
    pub values: &'a [u8],
    /// The plane of the lower halves, where it is read.
    pub low: &'a [u8],
    /// What stands for the lower halves, where they are not read.
    pub fill: u8,
}

/// Bytes of a line: two blocks of four bits.
const LINE: usize = BLOCK_BYTES;

impl<'a> Int8View<'a> {
    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Columns that share a scale.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Groups in a row.
    pub fn groups(&self) -> usize {
        self.cols.div_ceil(self.group)
    }

    /// How the values are packed.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Pairs of blocks in a panel.
    pub fn pairs(&self) -> usize {
        self.cols.next_multiple_of(INT8_PAD_COLS) / (2 * INT8_BLOCK_COLS)
    }

    /// The scales, f32 little endian, `[panel][group][16 rows]`.
    pub fn scales(&self) -> &'a [u8] {
        self.scales
    }

    /// Some pairs of blocks of a panel.
    #[inline]
    pub fn panel(&self, panel: usize, pairs: Range<usize>) -> Int8Panel<'a> {
        let (from, to) = (panel * self.pairs() + pairs.start, panel * self.pairs() + pairs.end);
        let bytes = if self.packing == Packing::Whole { 2 * BLOCK_BYTES } else { LINE };
        let low =
            if self.packing == Packing::Split { &self.low[from * LINE..to * LINE] } else { &[] };
        Int8Panel { values: &self.values[from * bytes..to * bytes], low, fill: self.fill }
    }

    /// Writes the values of one row.
    ///
    /// # Panics
    /// When `row` is out of range or `out` is not `cols` long.
    pub fn unpack_row(&self, row: usize, out: &mut [i8]) {
        self.unpack(row, out, |value| value);
    }

    /// Writes each value of a row, converted.
    fn unpack<T>(&self, row: usize, out: &mut [T], convert: impl Fn(i8) -> T) {
        assert!(row < self.rows && out.len() == self.cols);
        let panel = self.panel(row / PANEL_ROWS, 0..self.pairs());
        let first = row % PANEL_ROWS * INT8_BLOCK_COLS;
        // Four columns of the row in the `block`-th block.
        let whole = |block: usize, k: usize| panel.values[block * BLOCK_BYTES + first + k];
        let half = |plane: &[u8], block: usize, k: usize| {
            plane[block / 2 * LINE + first + k] >> (4 * (block % 2)) & 15
        };
        for (block, out) in out.chunks_mut(INT8_BLOCK_COLS).enumerate() {
            let value = |k: usize| match self.packing {
                Packing::Whole => whole(block, k),
                Packing::Upper => half(panel.values, block, k) << 4 | panel.fill,
                Packing::Split => half(panel.values, block, k) << 4 | half(panel.low, block, k),
            };
            (0..).zip(out).for_each(|(k, out)| *out = convert(value(k) as i8));
        }
    }

    /// The scale of one row and group.
    pub fn scale(&self, row: usize, group: usize) -> f32 {
        let at = (row / PANEL_ROWS * self.groups() + group) * PANEL_ROWS + row % PANEL_ROWS;
        let b = &self.scales[4 * at..4 * at + 4];
        f32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    /// Writes one row as f32.
    ///
    /// # Panics
    /// When `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.unpack(row, out, f32::from);
        for (group, out) in out.chunks_mut(self.group).enumerate() {
            let scale = self.scale(row, group);
            out.iter_mut().for_each(|w| *w *= scale);
        }
    }
}
