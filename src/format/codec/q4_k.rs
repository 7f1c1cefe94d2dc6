//! Q4_K of llama.cpp, whose quantizer uses it for embeddings that are not the head.
//!
//! A block holds 256 weights in 144 bytes: two f16 factors (of scales and of minima), 12 bytes with a
//! scale and a minimum of six bits for each 32 weights, and values of four bits. A weight is
//! scale · value − minimum. It is rounded to f16, which loses little: such matrices are mostly looked
//! up, and f16 is more precise than the four bits.

use super::RowOrder;
use crate::matrix::{FloatMatrix, FloatType};
use crate::ternary::{LayoutError, expect_bytes};
use bytes::Bytes;
use half::f16;

const WEIGHTS: usize = 256;
const BYTES: usize = 144;
/// Number of weights that share a scale and a minimum.
const GROUP: usize = 32;

/// Bytes of a matrix; `None` if it is too large or its rows are not whole blocks.
pub(crate) fn size(rows: usize, cols: usize) -> Option<usize> {
    cols.is_multiple_of(WEIGHTS).then_some(())?;
    rows.checked_mul(cols / WEIGHTS)?.checked_mul(BYTES)
}

/// Decodes rows of blocks to f16.
///
/// # Errors
/// When the byte count does not match the shape or a weight is not finite in f16.
pub fn decode_q4_k(
    data: &[u8],
    rows: usize,
    cols: usize,
    order: RowOrder,
) -> Result<FloatMatrix, LayoutError> {
    expect_bytes("Q4_K", data, size(rows, cols), rows, cols)?;
    let row_bytes = cols / WEIGHTS * BYTES;
    let mut out = Vec::with_capacity(rows * cols * FloatType::F16.size());
    for row in 0..rows {
        let blocks = &data[order.source(row) * row_bytes..][..row_bytes];
        for (col, weight) in blocks.as_chunks().0.iter().flat_map(weights).enumerate() {
            let half = f16::from_f32(weight);
            if !half.is_finite() {
                return Err(LayoutError::Scale { value: weight, row, col });
            }
            out.extend_from_slice(&half.to_le_bytes());
        }
    }
    FloatMatrix::new(rows, cols, FloatType::F16, Bytes::from(out))
}

/// The weights of a block.
fn weights(block: &[u8; BYTES]) -> impl Iterator<Item = f32> {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let (scale, least) = (half(0), half(2));
    (0..WEIGHTS / GROUP).flat_map(move |group| {
        let (steps, below) = six_bits(&block[4..16], group);
        let (step, offset) = (scale * f32::from(steps), least * f32::from(below));
        // Two groups share 32 bytes; the first is in the lower halves.
        let bytes = &block[16 + group / 2 * GROUP..][..GROUP];
        let values = bytes.iter().map(move |byte| byte >> (4 * (group % 2)) & 15);
        values.map(move |value| step * f32::from(value) - offset)
    })
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
