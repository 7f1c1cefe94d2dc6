//! Ternary formats of ik_llama.cpp: a row is one scale, then blocks of 64 weights.

use super::RowOrder;
use crate::ternary::{GroupScales, LayoutError, Scales, TernaryMatrix, expect_bytes};
use half::f16;

/// Number of weights in a block.
const WEIGHTS: usize = 64;

/// Description of a ternary format with a scale for each row.
#[derive(Clone, Copy, Debug)]
pub struct RowScaledFormat {
    /// Name of the format in GGUF.
    pub name: &'static str,
    /// Bytes of the scale in front of a row.
    scale_bytes: usize,
    /// Bytes of a block.
    bytes: usize,
    scale: fn(&[u8]) -> f32,
    /// Unpacks the codes of a block.
    codes: fn(&[u8], &mut [u8]),
}

/// An f16 scale; blocks of 13 bytes with five weights each, as base-3 fractions. The last byte has
/// every 16th weight.
pub const IQ1_BN: RowScaledFormat = RowScaledFormat {
    name: "IQ1_BN",
    scale_bytes: 2,
    bytes: 13,
    scale: |row| f16::from_le_bytes([row[0], row[1]]).to_f32(),
    codes: |block, codes| {
        for (quarter, codes) in codes.chunks_exact_mut(16).enumerate() {
            for (i, code) in codes[..15].iter_mut().enumerate() {
                *code = trit(block[3 * quarter + i / 5], i % 5);
            }
            codes[15] = trit(block[12], quarter);
        }
    },
};

/// An f32 scale; blocks of 16 bytes with four weights each, which are 16 columns apart.
pub const IQ2_BN: RowScaledFormat = RowScaledFormat {
    name: "IQ2_BN",
    scale_bytes: 4,
    bytes: 16,
    scale: |row| f32::from_le_bytes([row[0], row[1], row[2], row[3]]),
    codes: |block, codes| {
        for (i, code) in codes.iter_mut().enumerate() {
            *code = block[i % 16] >> (2 * (i / 16)) & 3;
        }
    },
};

/// Digit `n` of a byte that holds a base-3 fraction, the least significant first.
fn trit(byte: u8, n: usize) -> u8 {
    const POWERS: [u8; 5] = [81, 27, 9, 3, 1];
    let shifted = byte.wrapping_mul(POWERS[n]);
    // Three times the fraction, rounded as the format's readers do.
    ((u16::from(shifted) + u16::from(shifted >> 1)) >> 7) as u8
}

impl RowScaledFormat {
    /// Bytes of a matrix; `None` if it is too large or its rows are not whole blocks.
    pub fn size(&self, rows: usize, cols: usize) -> Option<usize> {
        cols.is_multiple_of(WEIGHTS).then_some(())?;
        let row = (cols / WEIGHTS).checked_mul(self.bytes)?.checked_add(self.scale_bytes)?;
        rows.checked_mul(row)
    }

    /// Decodes rows. Where all scales are equal, the matrix gets one scale.
    ///
    /// # Errors
    /// When the byte count does not match the shape, a scale is not finite, or scales differ and one is
    /// not an f16.
    pub fn decode(
        &self,
        data: &[u8],
        rows: usize,
        cols: usize,
        order: RowOrder,
    ) -> Result<TernaryMatrix, LayoutError> {
        expect_bytes(self.name, data, self.size(rows, cols), rows, cols)?;
        let row_bytes = data.len() / rows.max(1);
        let source = |row: usize| &data[order.source(row) * row_bytes..][..row_bytes];
        let scale = |row: usize| (self.scale)(source(row));
        let first = if rows > 0 { scale(0) } else { 0.0 };
        let scales = if (0..rows).all(|row| scale(row).to_bits() == first.to_bits()) {
            Scales::Tensor(first)
        } else {
            let inexact =
                |&row: &usize| f16::from_f32(scale(row)).to_f32().to_bits() != scale(row).to_bits();
            if let Some(row) = (0..rows).find(inexact) {
                return Err(LayoutError::Scale { value: scale(row), row, col: 0 });
            }
            Scales::Groups(GroupScales::from_rows(rows, cols, cols, |row, out| {
                out.fill(f16::from_f32(scale(row)));
            })?)
        };
        TernaryMatrix::pack(rows, cols, scales, |row, codes| {
            let blocks = source(row)[self.scale_bytes..].chunks_exact(self.bytes);
            codes.chunks_exact_mut(WEIGHTS).zip(blocks).for_each(|(codes, block)| {
                (self.codes)(block, codes);
            });
        })
    }
}
