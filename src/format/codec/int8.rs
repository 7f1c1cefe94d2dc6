//! Block formats of GGUF with four, six or eight bits per weight. Decoding is lossless.

use super::RowOrder;
use crate::matrix::{Int8Matrix, Matrix, SplitMatrix};
use crate::ternary::LayoutError;
use crate::ternary::expect_bytes;
use half::f16;

/// Description of an integer block format.
#[derive(Clone, Copy, Debug)]
pub struct IntBlockFormat {
    /// Name of the format in GGUF.
    pub name: &'static str,
    /// Number of weights in a block.
    pub weights: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Unpacks the values of a block.
    values: fn(&[u8], &mut [i8]),
    /// Kind of the decoded matrix, and the scales of a block.
    storage: Storage,
}

/// Kind of the decoded matrix.
#[derive(Clone, Copy, Debug)]
enum Storage {
    /// Whole int8 values, with a scale for each block.
    Int8(fn(&[u8]) -> f32),
    /// One plane of four bits, with a scale for each block.
    Planes4(fn(&[u8]) -> f32),
    /// Planes of four and two bits. The function writes an int8 scale for each group and returns the
    /// block's factor.
    Planes6(fn(&[u8], &mut [i8]) -> f32),
}

/// Number of weights in a Q6_K block that share an int8 scale.
const Q6_K_GROUP: usize = 16;

/// 32 weights in 34 bytes: an f16 scale, then the values.
pub const Q8_0: IntBlockFormat = IntBlockFormat {
    name: "Q8_0",
    weights: 32,
    bytes: 34,
    values: |block, values| {
        for (v, b) in values.iter_mut().zip(&block[2..]) {
            *v = *b as i8;
        }
    },
    storage: Storage::Int8(|block| half_at(block, 0)),
};

/// 32 weights in 18 bytes: an f16 scale, then the values + 8 in four bits. The low bits hold the first
/// 16 values, the high bits the others.
pub const Q4_0: IntBlockFormat = IntBlockFormat {
    name: "Q4_0",
    weights: 32,
    bytes: 18,
    values: |block, values| {
        let (low, high) = values.split_at_mut(16);
        for ((l, h), b) in low.iter_mut().zip(high).zip(&block[2..]) {
            (*l, *h) = ((b & 15) as i8 - 8, (b >> 4) as i8 - 8);
        }
    },
    storage: Storage::Planes4(|block| half_at(block, 0)),
};

/// 256 weights in 210 bytes: 128 bytes of low four bits, 64 bytes of high two bits, 16 int8 scales of
/// 16 weights each, and an f16 factor of the scales. Values are stored with 32 added.
pub const Q6_K: IntBlockFormat = IntBlockFormat {
    name: "Q6_K",
    weights: 256,
    bytes: 210,
    values: |block, values| {
        let (low, rest) = block.split_at(128);
        let high = &rest[..64];
        // Each half of 128 weights: four runs of 32, nibbles of 64 bytes and bit pairs of 32.
        for (n, run) in values.chunks_exact_mut(32).enumerate() {
            let (half, quarter) = (n / 4, n % 4);
            let low = &low[64 * half + 32 * (quarter % 2)..][..32];
            let high = &high[32 * half..][..32];
            for ((v, l), h) in run.iter_mut().zip(low).zip(high) {
                let bits = (l >> (4 * (quarter / 2)) & 15) | (h >> (2 * quarter) & 3) << 4;
                *v = bits as i8 - 32;
            }
        }
    },
    storage: Storage::Planes6(|block, parts| {
        parts.iter_mut().zip(&block[192..208]).for_each(|(part, b)| *part = *b as i8);
        half_at(block, 208)
    }),
};

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

impl IntBlockFormat {
    /// Bytes of a matrix; `None` if it is too large or its rows are not whole blocks.
    pub fn size(&self, rows: usize, cols: usize) -> Option<usize> {
        cols.is_multiple_of(self.weights).then_some(())?;
        rows.checked_mul(cols / self.weights)?.checked_mul(self.bytes)
    }

    /// Decodes rows of blocks.
    ///
    /// # Errors
    /// When the byte count does not match the shape or a scale is not finite.
    pub fn decode(
        &self,
        data: &[u8],
        rows: usize,
        cols: usize,
        order: RowOrder,
    ) -> Result<Matrix, LayoutError> {
        expect_bytes(self.name, data, self.size(rows, cols), rows, cols)?;
        let row_bytes = cols / self.weights * self.bytes;
        let blocks = |row: usize| {
            data[order.source(row) * row_bytes..][..row_bytes].chunks_exact(self.bytes)
        };
        let values = |row: usize, out: &mut [i8]| {
            let out = out.chunks_exact_mut(self.weights);
            blocks(row).zip(out).for_each(|(block, out)| (self.values)(block, out));
        };
        let scales = |row: usize, of: fn(&[u8]) -> f32, out: &mut [f32]| {
            blocks(row).zip(out).for_each(|(block, scale)| *scale = of(block));
        };
        match self.storage {
            Storage::Int8(of) => Int8Matrix::pack(rows, cols, self.weights, |row, out, s| {
                values(row, out);
                scales(row, of, s);
            })
            .map(Matrix::Int8),
            Storage::Planes4(of) => {
                let shape = (rows, cols, self.weights);
                SplitMatrix::pack_four(shape, values, |row, s| scales(row, of, s))
                    .map(Matrix::Split)
            }
            Storage::Planes6(of) => {
                let shape = (rows, cols, Q6_K_GROUP);
                SplitMatrix::pack_six(shape, values, |row, parts, factors| {
                    let out = parts.chunks_exact_mut(self.weights / Q6_K_GROUP).zip(factors);
                    blocks(row).zip(out).for_each(|(b, (parts, factor))| *factor = of(b, parts));
                })
                .map(Matrix::Split)
            }
        }
    }
}
