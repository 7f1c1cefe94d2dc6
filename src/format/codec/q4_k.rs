//! Q4_K of llama.cpp, in which its quantizer puts embeddings that are not the head: 256 weights in 144
//! bytes, two f16 factors (of scales and of minima), 16 numbers of six bits in 12 bytes (a scale and a
//! minimum for each 32 weights), values of four bits. w = scale · value − minimum, rounded to f16: such
//! matrices are looked up, hardly multiplied, and f16 is closer than four bits were.

use super::RowOrder;
use crate::matrix::{FloatMatrix, FloatType};
use crate::ternary::{LayoutError, expect_bytes};
use bytes::Bytes;
use half::f16;

const WEIGHTS: usize = 256;
const BYTES: usize = 144;
/// Weights that share a scale and a minimum.
const GROUP: usize = 32;

/// Bytes of a matrix; `None` when it is too large or its rows are no whole blocks.
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
        for weight in blocks.as_chunks().0.iter().flat_map(weights) {
            let half = f16::from_f32(weight);
            if !half.is_finite() {
                return Err(LayoutError::Scale(weight));
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
        // Of each two groups the first stands in the lower halves of 32 bytes.
        let bytes = &block[16 + group / 2 * GROUP..][..GROUP];
        let values = bytes.iter().map(move |byte| byte >> (4 * (group % 2)) & 15);
        values.map(move |value| step * f32::from(value) - offset)
    })
}

/// A group's scale and minimum: the first four of each have the lower six bits of a byte, and the upper two
/// of the next four stand above them.
fn six_bits(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let (low, first, second) = (packed[group + 4], packed[group - 4] >> 6, packed[group] >> 6);
    (low & 15 | first << 4, low >> 4 | second << 4)
}
