//! Quantizes master weights to ternary by absmean, as BitNet's training does in every forward pass
//! (arXiv 2402.17764).

use super::RowOrder;
use crate::matrix::FloatMatrix;
use crate::ternary::{LayoutError, Scales, TernaryMatrix};

/// Sums |w| in eight lanes, which is fast and has the same result on every machine.
fn abs_sum(row: &[f32]) -> f64 {
    let mut lanes = [0f64; 8];
    let (chunks, rest) = row.as_chunks::<8>();
    for chunk in chunks {
        for (l, w) in lanes.iter_mut().zip(chunk) {
            *l += f64::from(w.abs());
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|w| f64::from(w.abs())).sum::<f64>()
}

/// Quantizes a matrix with the scale mean |w| of the whole tensor: round(w / mean |w|), clipped to ±1.
///
/// # Errors
/// When a weight is NaN or infinite.
pub fn quantize_absmean(
    master: &FloatMatrix,
    order: RowOrder,
) -> Result<TernaryMatrix, LayoutError> {
    let (rows, cols) = (master.rows(), master.cols());
    let mut row_f32 = vec![0f32; cols];
    let mut sum = 0f64;
    for row in 0..rows {
        master.row_f32(row, &mut row_f32);
        sum += abs_sum(&row_f32);
    }
    if !sum.is_finite() {
        return Err(LayoutError::Scale { value: sum as f32, row: 0, col: 0 });
    }
    let mean = ((sum / (rows * cols).max(1) as f64) as f32).max(1e-5);
    // The reference divides by the reciprocal of the mean, in f32.
    let inverse = 1.0 / mean;
    TernaryMatrix::pack(rows, cols, Scales::Tensor(1.0 / inverse), |row, codes| {
        master.row_f32(order.source(row), &mut row_f32);
        for (c, w) in codes.iter_mut().zip(&row_f32) {
            // Half to even: exactly ±0.5 becomes 0.
            let t = w * inverse;
            *c = 1 + u8::from(t > 0.5) - u8::from(t < -0.5);
        }
    })
}
