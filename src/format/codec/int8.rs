//! Block formats of GGUF with four, six or eight bits a weight, kept as they are: nothing is lost.

use super::RowOrder;
use crate::matrix::{Int8Matrix, Matrix, SplitMatrix};
use crate::ternary::LayoutError;
use crate::ternary::expect_bytes;
use half::f16;

/// A block format, as a value.
#[derive(Clone, Copy, Debug)]
pub struct Int8Blocks {
    /// Its name in GGUF.
    pub name: &'static str,
    /// Weights of a block.
    pub weights: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Bytes of a block → its values.
    values: fn(&[u8], &mut [i8]),
    /// How values are kept, and what they are worth.
    kept: Kept,
}

/// In which matrix.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// Eight bits, with a scale for each block.
    Eight(fn(&[u8]) -> f32),
    /// Four bits, with a scale for each block.
    Four(fn(&[u8]) -> f32),
    /// Six bits, with a factor for each block, and int8 parts of it, which are written, for groups.
    Six(fn(&[u8], &mut [i8]) -> f32),
}

/// Weights of a part of a Q6_K block that have a scale of their own.
const Q6_K_GROUP: usize = 16;

/// 32 weights in 34 bytes: an f16 scale, then the values.
pub const Q8_0: Int8Blocks = Int8Blocks {
    name: "Q8_0",
    weights: 32,
    bytes: 34,
    values: |block, values| {
        for (v, b) in values.iter_mut().zip(&block[2..]) {
            *v = *b as i8;
        }
    },
    kept: Kept::Eight(|block| half_at(block, 0)),
};

/// 32 weights in 18 bytes: an f16 scale, then the values + 8 in four bits, the first half of
/// them in the low ones.
pub const Q4_0: Int8Blocks = Int8Blocks {
    name: "Q4_0",
    weights: 32,
    bytes: 18,
    values: |block, values| {
        let (low, high) = values.split_at_mut(16);
        for ((l, h), b) in low.iter_mut().zip(high).zip(&block[2..]) {
            (*l, *h) = ((b & 15) as i8 - 8, (b >> 4) as i8 - 8);
        }
    },
    kept: Kept::Four(|block| half_at(block, 0)),
};

/// 256 weights in 210 bytes: low four bits in 128, high two bits in 64, int8 scales of 16
/// weights each in 16, an f16 factor of the scales. Values are stored + 32.
pub const Q6_K: Int8Blocks = Int8Blocks {
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
    kept: Kept::Six(|block, parts| {
        parts.iter_mut().zip(&block[192..208]).for_each(|(part, b)| *part = *b as i8);
        half_at(block, 208)
    }),
};

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

impl Int8Blocks {
    /// Bytes of a matrix; `None` when it is too large or its rows are no whole blocks.
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
        match self.kept {
            Kept::Eight(of) => Int8Matrix::pack(rows, cols, self.weights, |row, out, s| {
                values(row, out);
                scales(row, of, s);
            })
            .map(Matrix::Int8),
            Kept::Four(of) => {
                let shape = (rows, cols, self.weights);
                SplitMatrix::pack_four(shape, values, |row, s| scales(row, of, s))
                    .map(Matrix::Split)
            }
            Kept::Six(of) => {
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
