//! Block formats of GGUF with three to eight bits per weight, whose values times scales the kernels
//! multiply. Decoding is lossless.

use super::rounded::five_bits;
use super::{RowOrder, half_at, size_in_blocks};
use crate::matrix::{Int8Matrix, Matrix, SplitMatrix};
use crate::ternary::LayoutError;
use crate::ternary::expect_bytes;

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
    /// Whole int8 values in groups of this size. The function writes a scale for each group.
    Int8(usize, fn(&[u8], &mut [f32])),
    /// One plane of four bits, with a scale for each block.
    Planes4(fn(&[u8]) -> f32),
    /// Planes of four and two bits. The function writes an int8 scale for each group and returns the
    /// block's factor.
    Planes6(fn(&[u8], &mut [i8]) -> f32),
}

/// Number of weights in a Q6_K or Q3_K block that share an int8 scale.
const SIX_BIT_GROUP: usize = 16;

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
    storage: Storage::Int8(32, |block, scales| scales[0] = half_at(block, 0)),
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

/// 32 weights in 22 bytes: an f16 scale, four bytes with the fifth bits of the values + 16, then the other
/// bits as in Q4_0.
pub const Q5_0: IntBlockFormat = IntBlockFormat {
    name: "Q5_0",
    weights: 32,
    bytes: 22,
    values: |block, values| {
        for (i, value) in values.iter_mut().enumerate() {
            *value = five_bits(&block[2..6], &block[6..], i) as i8 - 16;
        }
    },
    storage: Storage::Int8(32, |block, scales| scales[0] = half_at(block, 0)),
};

/// 256 weights in 110 bytes: 32 bytes with the third bits of the values + 4, 64 bytes with the other two
/// bits, 12 bytes with 16 scales of six bits (+ 32), and an f16 factor of the scales.
pub const Q3_K: IntBlockFormat = IntBlockFormat {
    name: "Q3_K",
    weights: 256,
    bytes: 110,
    values: |block, values| {
        for (n, run) in values.chunks_exact_mut(32).enumerate() {
            let low = &block[32 + 32 * (n / 4)..];
            for ((value, low), high) in run.iter_mut().zip(low).zip(&block[..32]) {
                let bits = (low >> (2 * (n % 4)) & 3) | (high >> n & 1) << 2;
                *value = bits as i8 - 4;
            }
        }
    },
    storage: Storage::Planes6(|block, parts| {
        let packed = &block[96..108];
        for (i, part) in parts.iter_mut().enumerate() {
            let low = packed[i % 8] >> (4 * (i / 8)) & 15;
            let high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
            *part = (low | high << 4) as i8 - 32;
        }
        half_at(block, 108)
    }),
};

/// The 16 values of IQ4_NL and IQ4_XS.
const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// 32 weights in 18 bytes: an f16 scale, then numbers of values in a table.
pub const IQ4_NL: IntBlockFormat = IntBlockFormat {
    name: "IQ4_NL",
    weights: 32,
    bytes: 18,
    values: |block, values| looked_up(&IQ4_VALUES, &block[2..], values),
    storage: Storage::Int8(32, |block, scales| scales[0] = half_at(block, 0)),
};

/// 256 weights in 136 bytes: an f16 factor, six bytes with a scale of six bits (+ 32) for each 32 weights,
/// then numbers of IQ4_NL's values.
pub const IQ4_XS: IntBlockFormat = IntBlockFormat {
    name: "IQ4_XS",
    weights: 256,
    bytes: 136,
    values: |block, values| {
        for (values, block) in values.chunks_exact_mut(32).zip(block[8..].chunks_exact(16)) {
            looked_up(&IQ4_VALUES, block, values);
        }
    },
    storage: Storage::Int8(32, |block, scales| {
        let high = u16::from_le_bytes([block[2], block[3]]);
        for (i, scale) in scales.iter_mut().enumerate() {
            let low = block[4 + i / 2] >> (4 * (i % 2)) & 15;
            let step = i16::from(low) | ((high >> (2 * i) & 3) << 4) as i16;
            *scale = half_at(block, 0) * f32::from(step - 32);
        }
    }),
};

/// Twice the values of a four-bit float with two bits of exponent.
const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 weights in 17 bytes: an exponent, then floats of four bits. Open Compute's MX format.
pub const MXFP4: IntBlockFormat = IntBlockFormat {
    name: "MXFP4",
    weights: 32,
    bytes: 17,
    values: |block, values| looked_up(&E2M1_DOUBLED, &block[1..], values),
    // Half of 2^(exponent − 127), because the values are doubled.
    storage: Storage::Int8(32, |block, scales| scales[0] = (f32::from(block[0]) - 128.0).exp2()),
};

/// Looks up 32 values by four-bit numbers. The low bits hold the first 16 numbers.
fn looked_up(table: &[i8; 16], bytes: &[u8], values: &mut [i8]) {
    let (low, high) = values.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        (*low, *high) = (table[usize::from(byte & 15)], table[usize::from(byte >> 4)]);
    }
}

impl IntBlockFormat {
    /// Bytes of a matrix; `None` if it is too large or its rows are not whole blocks.
    pub fn size(&self, rows: usize, cols: usize) -> Option<usize> {
        size_in_blocks((self.weights, self.bytes), rows, cols)
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
            Storage::Int8(group, of) => Int8Matrix::pack(rows, cols, group, |row, out, s| {
                values(row, out);
                let out = s.chunks_exact_mut(self.weights / group);
                blocks(row).zip(out).for_each(|(block, scales)| of(block, scales));
            })
            .map(Matrix::Int8),
            Storage::Planes4(of) => {
                let shape = (rows, cols, self.weights);
                SplitMatrix::pack_four(shape, values, |row, s| scales(row, of, s))
                    .map(Matrix::Split)
            }
            Storage::Planes6(of) => {
                let shape = (rows, cols, SIX_BIT_GROUP);
                SplitMatrix::pack_six(shape, values, |row, parts, factors| {
                    let out = parts.chunks_exact_mut(self.weights / SIX_BIT_GROUP).zip(factors);
                    blocks(row).zip(out).for_each(|(b, (parts, factor))| *factor = of(b, parts));
                })
                .map(Matrix::Split)
            }
        }
    }
}
