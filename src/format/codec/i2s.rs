//! I2_S of BitNet's llama.cpp fork: 128 weights in 32 bytes. Byte p holds elements p, p + 32, p + 64
//! and p + 96, from the high bits down. One f32 scale, padded to 32 bytes, follows all blocks.

use super::RowOrder;
use crate::ternary::expect_bytes;
use crate::ternary::{LayoutError, Scales, TernaryMatrix};

/// Bytes after the blocks: the scale, then padding.
pub const I2S_TRAILER: usize = 32;
const WEIGHTS: usize = 128;
const BYTES: usize = 32;

/// Bytes of a matrix; `None` if it is too large or its rows are not whole blocks, on which writers
/// disagree.
pub(crate) fn size(rows: usize, cols: usize) -> Option<usize> {
    cols.is_multiple_of(WEIGHTS).then_some(())?;
    rows.checked_mul(cols / 4)?.checked_add(I2S_TRAILER)
}

/// Decodes blocks and their scale.
///
/// # Errors
/// When the byte count does not match the shape or the scale is not finite.
pub fn decode_i2s(
    data: &[u8],
    rows: usize,
    cols: usize,
    order: RowOrder,
) -> Result<TernaryMatrix, LayoutError> {
    expect_bytes("I2_S", data, size(rows, cols), rows, cols)?;
    let (blocks, trailer) = data.split_at(data.len() - I2S_TRAILER);
    let scale = f32::from_le_bytes([trailer[0], trailer[1], trailer[2], trailer[3]]);
    let row_bytes = cols / 4;
    TernaryMatrix::pack(rows, cols, Scales::Tensor(scale), |row, codes| {
        let at = order.source(row) * row_bytes;
        let row = blocks[at..at + row_bytes].chunks_exact(BYTES);
        for (c, b) in codes.chunks_exact_mut(WEIGHTS).zip(row) {
            for (n, c) in c.chunks_exact_mut(BYTES).enumerate() {
                for (c, b) in c.iter_mut().zip(b) {
                    *c = b >> (6 - 2 * n) & 3;
                }
            }
        }
    })
}

/// Inverse of [`decode_i2s`], with the rows in the same order. Returns `None` for group scales and for
/// rows that are not whole blocks.
pub fn encode_i2s(matrix: &TernaryMatrix) -> Option<Vec<u8>> {
    let Scales::Tensor(scale) = matrix.scales() else { return None };
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let mut out = vec![0; size(rows, cols)?];
    let mut codes = vec![0; cols];
    let end = out.len() - I2S_TRAILER;
    for (row, bytes) in out[..end].chunks_exact_mut((cols / 4).max(1)).enumerate() {
        matrix.unpack_row(row, &mut codes);
        for (b, c) in bytes.chunks_exact_mut(BYTES).zip(codes.chunks_exact(WEIGHTS)) {
            for (n, c) in c.chunks_exact(BYTES).enumerate() {
                for (c, b) in c.iter().zip(&mut *b) {
                    *b |= c << (6 - 2 * n);
                }
            }
        }
    }
    out[end..end + 4].copy_from_slice(&scale.to_le_bytes());
    Some(out)
}
