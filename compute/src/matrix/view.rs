//! int8 weights as kernels read them: whole bytes, or planes that kernels combine.

use crate::ternary::PANEL_ROWS;
use std::ops::Range;

/// Number of columns in a block.
pub const INT8_BLOCK_COLS: usize = 4;
/// Columns are padded to a multiple of this.
pub const INT8_PAD_COLS: usize = 16;
/// Number of bytes of a block.
pub(super) const BLOCK_BYTES: usize = PANEL_ROWS * INT8_BLOCK_COLS;

/// Packing of int8 values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// One byte per value.
    Whole,
    /// The upper four bits. The lower bits are taken to be the same for all values.
    Upper,
    /// The upper four bits in one plane and the next two in another. The last two bits are zero.
    Six,
    /// The upper four bits in one plane and the lower four in another.
    Split,
}

impl Packing {
    /// Returns the packing in planes for values of this number of bits.
    pub fn in_planes(bits: usize) -> Option<Self> {
        [Self::Upper, Self::Six, Self::Split].into_iter().find(|packing| packing.bits() == bits)
    }

    /// Number of bits of a value that are stored.
    pub fn bits(self) -> usize {
        match self {
            Self::Upper => 4,
            Self::Six => 6,
            Self::Whole | Self::Split => 8,
        }
    }

    /// Returns the smallest packing that keeps the bits in `used`, which some value sets.
    pub(super) fn of_bits(used: u8) -> Self {
        match used & 15 {
            0 => Self::Upper,
            low if low & 3 == 0 => Self::Six,
            _ => Self::Split,
        }
    }

    /// Short name of the packing.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "int8",
            Self::Upper => "int4",
            Self::Six => "int6",
            Self::Split => "int8/4+4",
        }
    }

    /// Middle of the values that the lower four bits can have: of 0, 4, 8, 12 for six bits.
    pub(super) fn fill(self) -> u8 {
        match self {
            Self::Whole | Self::Upper => 0,
            Self::Six => 6,
            Self::Split => 8,
        }
    }

    /// Number of 64-byte lines of a strip, in the plane of the values or their upper bits, and in the
    /// lower plane.
    pub const fn lines(self) -> (usize, usize) {
        match self {
            Self::Whole => (4, 0),
            Self::Upper => (2, 0),
            Self::Six => (2, 1),
            Self::Split => (2, 2),
        }
    }

    /// As [`lines`](Self::lines), in bytes.
    pub(super) fn strip_bytes(self) -> (usize, usize) {
        let (values, low) = self.lines();
        (values * BLOCK_BYTES, low * BLOCK_BYTES)
    }
}

/// The scales of a panel's groups.
#[derive(Clone, Copy, Debug)]
pub enum Int8Scales<'a> {
    /// Little-endian f32, `[group][16 rows]`.
    Float(&'a [[u8; 4 * PANEL_ROWS]]),
    /// Exact products of int8 parts, `[group][16 rows]`, and f32 factors that [`PARTS`] groups of a
    /// row share.
    Parts(&'a [[u8; PANEL_ROWS]], &'a [[u8; 4 * PANEL_ROWS]]),
}

/// Number of groups that share a factor in [`Int8Scales::Parts`].
pub const PARTS: usize = 16;

/// A borrowed int8 matrix in the panel layout of [`super::Int8Matrix`], in whole bytes or in planes.
///
/// Four blocks form a strip of 16 columns. In a plane of four bits, a line of 64 bytes holds two
/// blocks: byte `i` of the first in the lower half of the line's byte `i`, that of the second in its
/// upper half. In a plane of two bits, a line holds a strip: byte `i` of block `k` is in bits 2k and
/// 2k + 1.
#[derive(Clone, Copy, Debug)]
pub struct Int8View<'a> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) group: usize,
    pub(super) packing: Packing,
    /// The values, or the plane of their upper four bits.
    pub(super) values: &'a [u8],
    /// The plane of the lower bits; empty if it is not read.
    pub(super) low: &'a [u8],
    /// Stands for the lower bits if they are not read.
    pub(super) fill: u8,
    /// f32, or int8 if there are factors.
    pub(super) scales: &'a [u8],
    /// See [`Int8Scales::Parts`].
    pub(super) factors: &'a [u8],
}

/// The values of a panel, or of some of its strips.
#[derive(Clone, Copy)]
pub struct Int8Panel<'a> {
    /// The values, or the plane of their upper four bits.
    pub values: &'a [u8],
    /// The plane of the lower bits; empty if it is not read.
    pub low: &'a [u8],
    /// Stands for the lower bits if they are not read.
    pub fill: u8,
}

impl<'a> Int8View<'a> {
    /// Number of rows (outputs).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns (inputs).
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of columns that share a scale.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Number of groups in a row.
    pub fn groups(&self) -> usize {
        self.cols.div_ceil(self.group)
    }

    /// Packing of the values.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Number of strips of a panel.
    pub fn strips(&self) -> usize {
        self.cols.div_ceil(INT8_PAD_COLS)
    }

    /// Number of bytes of a panel's values, in all planes that are read.
    pub fn panel_bytes(&self) -> usize {
        let (values, low) = self.packing.strip_bytes();
        self.strips() * (values + low)
    }

    /// Returns the scales of a panel.
    #[inline]
    pub fn scales(&self, panel: usize) -> Int8Scales<'a> {
        let groups = self.groups();
        if self.factors.is_empty() {
            return Int8Scales::Float(&self.scales.as_chunks().0[panel * groups..][..groups]);
        }
        let spans = groups.div_ceil(PARTS);
        let parts = &self.scales.as_chunks().0[panel * groups..][..groups];
        Int8Scales::Parts(parts, &self.factors.as_chunks().0[panel * spans..][..spans])
    }

    /// Returns some strips of a panel.
    #[inline]
    pub fn panel(&self, panel: usize, strips: Range<usize>) -> Int8Panel<'a> {
        let first = panel * self.strips();
        let (from, to) = (first + strips.start, first + strips.end);
        let (values, low) = self.packing.strip_bytes();
        Int8Panel {
            values: &self.values[from * values..to * values],
            low: &self.low[from * low..to * low],
            fill: self.fill,
        }
    }

    /// Writes the values of one row to `out`.
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn unpack_row(&self, row: usize, out: &mut [i8]) {
        self.unpack(row, out, |value| value);
    }

    /// Writes each value of a row to `out`, converted.
    fn unpack<T>(&self, row: usize, out: &mut [T], convert: impl Fn(i8) -> T) {
        assert!(row < self.rows && out.len() == self.cols);
        let panel = self.panel(row / PANEL_ROWS, 0..self.strips());
        let first = row % PANEL_ROWS * INT8_BLOCK_COLS;
        // Column `k` of the row in the `block`-th block; a line holds `n` blocks.
        let at = |plane: &[u8], n: usize, block: usize, k: usize| {
            let bits = 8 / n;
            plane[block / n * BLOCK_BYTES + first + k] >> (bits * (block % n))
                & (0xff >> (8 - bits))
        };
        for (block, out) in out.chunks_mut(INT8_BLOCK_COLS).enumerate() {
            let upper = |k: usize| at(panel.values, 2, block, k) << 4;
            let value = |k: usize| match self.packing {
                Packing::Whole => at(panel.values, 1, block, k),
                Packing::Upper => upper(k) | panel.fill,
                Packing::Six => upper(k) | at(panel.low, 4, block, k) << 2,
                Packing::Split => upper(k) | at(panel.low, 2, block, k),
            };
            (0..).zip(out).for_each(|(k, out)| *out = convert(value(k) as i8));
        }
    }

    /// Returns the scales of one row as they are stored: f32 for each group, or a factor for each
    /// [`PARTS`] groups and an int8 part for each group.
    pub fn scale_parts(&self, row: usize) -> (Vec<f32>, Vec<i8>) {
        let lane = row % PANEL_ROWS;
        let float = |lanes: &[u8; 4 * PANEL_ROWS]| f32::from_le_bytes(lanes.as_chunks().0[lane]);
        match self.scales(row / PANEL_ROWS) {
            Int8Scales::Float(scales) => (scales.iter().map(float).collect(), Vec::new()),
            Int8Scales::Parts(parts, factors) => {
                let part = |lanes: &[u8; PANEL_ROWS]| lanes[lane] as i8;
                (factors.iter().map(float).collect(), parts.iter().map(part).collect())
            }
        }
    }

    /// Returns the scale of one row and group.
    pub fn scale(&self, row: usize, group: usize) -> f32 {
        let lane = row % PANEL_ROWS;
        let float = |lanes: &[u8; 4 * PANEL_ROWS]| f32::from_le_bytes(lanes.as_chunks().0[lane]);
        match self.scales(row / PANEL_ROWS) {
            Int8Scales::Float(scales) => float(&scales[group]),
            Int8Scales::Parts(parts, factors) => {
                f32::from(parts[group][lane] as i8) * float(&factors[group / PARTS])
            }
        }
    }

    /// Writes one row to `out` as f32.
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.unpack(row, out, f32::from);
        for (group, out) in out.chunks_mut(self.group).enumerate() {
            let scale = self.scale(row, group);
            out.iter_mut().for_each(|w| *w *= scale);
        }
    }
}
