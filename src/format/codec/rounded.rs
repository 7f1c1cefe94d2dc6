//! Block formats of GGUF whose weights become f16.
//!
//! Their weights are scale · value + offset. Kernels have no offsets, so each weight is rounded to f16,
//! by at most 1 part in 2048: far less than the formats' own steps.

use super::{RowOrder, half_at, size_in_blocks};
use crate::matrix::{FloatMatrix, FloatType};
use crate::ternary::{LayoutError, expect_bytes};
use bytes::Bytes;
use half::f16;

/// Description of a block format whose weights become f16.
#[derive(Clone, Copy, Debug)]
pub struct RoundedBlockFormat {
    /// Name of the format in GGUF.
    pub name: &'static str,
    /// Number of weights in a block.
    pub weights: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Unpacks the weights of a block.
    values: fn(&[u8], &mut [f32]),
}

/// 32 weights in 20 bytes: a scale and an offset in f16, then values of four bits. The low bits hold the
/// first 16 values, the high bits the others.
pub const Q4_1: RoundedBlockFormat = RoundedBlockFormat {
    name: "Q4_1",
    weights: 32,
    bytes: 20,
    values: |block, out| {
        let (scale, offset) = (half_at(block, 0), half_at(block, 2));
        let (low, high) = out.split_at_mut(16);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(&block[4..]) {
            *low = scale * f32::from(byte & 15) + offset;
            *high = scale * f32::from(byte >> 4) + offset;
        }
    },
};

/// 32 weights in 24 bytes: as Q4_1, with a fifth bit of each value in four bytes after the offset.
pub const Q5_1: RoundedBlockFormat = RoundedBlockFormat {
    name: "Q5_1",
    weights: 32,
    bytes: 24,
    values: |block, out| {
        let (scale, offset) = (half_at(block, 0), half_at(block, 2));
        for (i, weight) in out.iter_mut().enumerate() {
            *weight = scale * f32::from(five_bits(&block[4..8], &block[8..], i)) + offset;
        }
    },
};

/// 256 weights in 84 bytes: 16 bytes with a scale and a minimum of four bits for each 16 weights, values
/// of two bits, and two f16 factors (of scales and of minima).
pub const Q2_K: RoundedBlockFormat = RoundedBlockFormat {
    name: "Q2_K",
    weights: 256,
    bytes: 84,
    values: |block, out| {
        let (scale, least) = (half_at(block, 80), half_at(block, 82));
        for (group, (weights, parts)) in out.chunks_exact_mut(16).zip(&block[..16]).enumerate() {
            let (step, offset) = (scale * f32::from(parts & 15), least * f32::from(parts >> 4));
            // Eight groups share 32 bytes: two for each pair of bits.
            let bytes = &block[16 + 32 * (group / 8) + 16 * (group % 2)..];
            for (weight, byte) in weights.iter_mut().zip(bytes) {
                *weight = step * f32::from(byte >> (group % 8 / 2 * 2) & 3) - offset;
            }
        }
    },
};

/// 256 weights in 144 bytes: two f16 factors (of scales and of minima), 12 bytes with a scale and a
/// minimum of six bits for each 32 weights, and values of four bits.
pub const Q4_K: RoundedBlockFormat = RoundedBlockFormat {
    name: "Q4_K",
    weights: 256,
    bytes: 144,
    values: |block, out| {
        for (group, weights) in out.chunks_exact_mut(32).enumerate() {
            let (step, offset) = step_and_offset(block, group);
            for (weight, byte) in weights.iter_mut().zip(&block[16 + group / 2 * 32..]) {
                *weight = step * f32::from(byte >> (4 * (group % 2)) & 15) - offset;
            }
        }
    },
};

/// 256 weights in 176 bytes: as Q4_K, with a fifth bit of each value in 32 bytes before the others.
pub const Q5_K: RoundedBlockFormat = RoundedBlockFormat {
    name: "Q5_K",
    weights: 256,
    bytes: 176,
    values: |block, out| {
        for (group, weights) in out.chunks_exact_mut(32).enumerate() {
            let (step, offset) = step_and_offset(block, group);
            let bytes = block[48 + group / 2 * 32..].iter().zip(&block[16..48]);
            for (weight, (low, high)) in weights.iter_mut().zip(bytes) {
                let value = low >> (4 * (group % 2)) & 15 | (high >> group & 1) << 4;
                *weight = step * f32::from(value) - offset;
            }
        }
    },
};

/// A value of five bits: its fifth bit is in `high`.
pub(super) fn five_bits(high: &[u8], low: &[u8], i: usize) -> u8 {
    low[i % 16] >> (4 * (i / 16)) & 15 | (high[i / 8] >> (i % 8) & 1) << 4
}

/// The step and the offset of 32 weights of Q4_K and Q5_K.
fn step_and_offset(block: &[u8], group: usize) -> (f32, f32) {
    let (steps, below) = six_bits(&block[4..16], group);
    (half_at(block, 0) * f32::from(steps), half_at(block, 2) * f32::from(below))
}

/// The scale and minimum of a group. Those of the first four groups are the lower six bits of a byte;
/// the two bits above them are the upper bits of the other four groups.
fn six_bits(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let (low, first, second) = (packed[group + 4], packed[group - 4] >> 6, packed[group] >> 6);
    (low & 15 | first << 4, low >> 4 | second << 4)
}

impl RoundedBlockFormat {
    /// Bytes of a matrix; `None` if it is too large or its rows are not whole blocks.
    pub fn size(&self, rows: usize, cols: usize) -> Option<usize> {
        size_in_blocks((self.weights, self.bytes), rows, cols)
    }

    /// Decodes rows of blocks to f16.
    ///
    /// # Errors
    /// When the byte count does not match the shape or a weight is not finite in f16.
    pub fn decode(
        &self,
        data: &[u8],
        rows: usize,
        cols: usize,
        order: RowOrder,
    ) -> Result<FloatMatrix, LayoutError> {
        expect_bytes(self.name, data, self.size(rows, cols), rows, cols)?;
        let row_bytes = cols / self.weights * self.bytes;
        let mut out = Vec::with_capacity(rows * cols * FloatType::F16.size());
        let mut weights = vec![0.0; self.weights];
        for row in 0..rows {
            let blocks = &data[order.source(row) * row_bytes..][..row_bytes];
            for (block, bytes) in blocks.chunks_exact(self.bytes).enumerate() {
                (self.values)(bytes, &mut weights);
                for (i, &value) in weights.iter().enumerate() {
                    let half = f16::from_f32(value);
                    if !half.is_finite() {
                        let col = block * self.weights + i;
                        return Err(LayoutError::Scale { value, row, col });
                    }
                    out.extend_from_slice(&half.to_le_bytes());
                }
            }
        }
        FloatMatrix::new(rows, cols, FloatType::F16, Bytes::from(out))
    }
}
