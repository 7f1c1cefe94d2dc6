//! Packing of Hugging Face's `bitnet`: bits 2i and 2i + 1 of byte row r hold the code of output row
//! i·(rows/4) + r.

use crate::ternary::expect_bytes;
use crate::ternary::{LayoutError, Scales, TernaryMatrix};

/// Decodes `[rows / 4][cols]` bytes into `rows` × `cols` weights.
///
/// # Errors
/// When the byte count does not match the shape or the scale is not finite.
pub fn decode_hf_packed(
    data: &[u8],
    rows: usize,
    cols: usize,
    scale: f32,
) -> Result<TernaryMatrix, LayoutError> {
    let quarter = rows / 4;
    let want = rows.is_multiple_of(4).then(|| quarter.checked_mul(cols)).flatten();
    expect_bytes("packed codes", data, want, rows, cols)?;
    TernaryMatrix::pack(rows, cols, Scales::Tensor(scale), |row, codes| {
        let (i, r) = (row / quarter, row % quarter);
        for (c, b) in codes.iter_mut().zip(&data[r * cols..(r + 1) * cols]) {
            *c = b >> (2 * i) & 3;
        }
    })
}

/// Inverse of [`decode_hf_packed`]; `None` if the number of rows is not a multiple of four.
pub fn encode_hf_packed(matrix: &TernaryMatrix) -> Option<Vec<u8>> {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    rows.is_multiple_of(4).then_some(())?;
    let quarter = rows / 4;
    let mut out = vec![0; quarter * cols];
    let mut codes = vec![0; cols];
    for row in 0..rows {
        matrix.unpack_row(row, &mut codes);
        let (i, r) = (row / quarter, row % quarter);
        for (b, c) in out[r * cols..(r + 1) * cols].iter_mut().zip(&codes) {
            *b |= c << (2 * i);
        }
    }
    Some(out)
}
