//! Block formats of GGUF that fit int8 exactly: their values and f32 scales lose nothing.

use super::RowOrder;
use crate::matrix::Int8Matrix;
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
    /// Weights that share a scale.
    group: usize,
    /// Bytes of a block → values and scales.
    unpack: fn(&[u8], &mut [i8], &mut [f32]),
}

/// 32 weights in 34 bytes: an f16 scale, then the values.
pub const Q8_0: Int8Blocks = Int8Blocks {
    name: "Q8_0",
    weights: 32,
    bytes: 34,
    group: 32,
    unpack: |block, values, scales| {
        scales[0] = half_at(block, 0);
        for (v, b) in values.iter_mut().zip(&block[2..]) {
            *v = *b as i8;
        }
    },
};

/// 32 weights in 18 bytes: an f16 scale, then the values + 8 in four bits, the first half of
/// them in the low ones.
pub const Q4_0: Int8Blocks = Int8Blocks {
    name: "Q4_0",
    weights: 32,
    bytes: 18,
    group: 32,
    unpack: |block, values, scales| {
        scales[0] = half_at(block, 0);
        let (low, high) = values.split_at_mut(16);
        for ((l, h), b) in low.iter_mut().zip(high).zip(&block[2..]) {
            (*l, *h) = ((b & 15) as i8 - 8, (b >> 4) as i8 - 8);
        }
    },
};

/// 256 weights in 210 bytes: low four bits in 128, high two bits in 64, int8 scales of 16
/// weights each in 16, an f16 factor of the scales. Values are stored + 32.
pub const Q6_K: Int8Blocks = Int8Blocks {
    name: "Q6_K",
    weights: 256,
    bytes: 210,
    group: 16,
    unpack: |block, values, scales| {
        let (low, rest) = block.split_at(128);
        let (high, rest) = rest.split_at(64);
        let factor = half_at(rest, 16);
        for (s, b) in scales.iter_mut().zip(&rest[..16]) {
            *s = factor * f32::from(*b as i8);
        }
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
    ) -> Result<Int8Matrix, LayoutError> {
        expect_bytes(self.name, data, self.size(rows, cols), rows, cols)?;
        let row_bytes = cols / self.weights * self.bytes;
        let groups = self.weights / self.group;
        Int8Matrix::pack(rows, cols, self.group, |row, values, scales| {
            let at = order.source(row) * row_bytes;
            let blocks = data[at..at + row_bytes].chunks_exact(self.bytes);
            let out = values.chunks_exact_mut(self.weights).zip(scales.chunks_exact_mut(groups));
            for (block, (v, s)) in blocks.zip(out) {
                (self.unpack)(block, v, s);
            }
        })
    }
}
