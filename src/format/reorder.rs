//! Reorders the intermediate columns of the feed-forward blocks. The model stays the same, except for
//! the order in which a sub-norm sums its squares.

use super::{Checkpoint, LayerWeights, Linear};
use crate::matrix::{
    FloatMatrix, GroupScales, Int8Matrix, LayoutError, Matrix, Scales, SplitMatrix,
};
use crate::ternary::TernaryMatrix;
use bytes::Bytes;
use half::f16;

/// The columns of a model cannot be reordered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReorderError {
    /// `down` is not a ternary matrix with one scale. Columns that share a scale must stay together,
    /// and only ternary products skip zeros.
    #[error(
        "the columns of down_proj in layer {layer} ({kind}) cannot be reordered: \
         it must be a ternary matrix with one scale"
    )]
    Down {
        /// Index of the layer.
        layer: usize,
        /// Kind of the matrix.
        kind: String,
    },
    /// The inputs of `down` are rotated: a rotation mixes columns that stand together.
    #[error(
        "the columns of down_proj in layer {layer} cannot be reordered: its inputs are rotated"
    )]
    Rotated {
        /// Index of the layer.
        layer: usize,
    },
    /// A reordered matrix could not be built.
    #[error("layer {layer}: {source}")]
    Layout {
        /// Index of the layer.
        layer: usize,
        /// The cause.
        source: LayoutError,
    },
}

impl Checkpoint {
    /// Reorders the intermediate columns of each layer: new column `i` is old column
    /// `orders[layer][i]`. This moves the columns of `down`, the rows and biases of `gate` and `up`,
    /// and the sub-norm between them.
    ///
    /// # Errors
    /// When a `down` is rotated or not ternary with one scale; the error names the layer.
    ///
    /// # Panics
    /// When there is not one order per layer, or an order has the wrong length or an index out of
    /// range.
    pub fn with_ffn_orders(mut self, orders: &[Vec<usize>]) -> Result<Self, ReorderError> {
        assert_eq!(self.weights.layers.len(), orders.len(), "an order for each layer");
        for (layer, (weights, order)) in self.weights.layers.iter_mut().zip(orders).enumerate() {
            assert_eq!(weights.down.weight.cols(), order.len(), "an index for each column");
            match &weights.down.weight {
                _ if weights.down.rotation.is_some() => {
                    return Err(ReorderError::Rotated { layer });
                }
                Matrix::Ternary(m) if matches!(m.scales(), Scales::Tensor(_)) => {}
                other => return Err(ReorderError::Down { layer, kind: other.kind() }),
            }
            reorder(weights, order).map_err(|source| ReorderError::Layout { layer, source })?;
        }
        Ok(self)
    }
}

fn reorder(layer: &mut LayerWeights, order: &[usize]) -> Result<(), LayoutError> {
    let moved = |values: &Vec<f32>| order.iter().map(|&i| values[i]).collect();
    for linear in [&mut layer.gate, &mut layer.up] {
        let Linear { weight, bias, .. } = linear;
        *weight = rows(weight, order)?;
        *bias = bias.as_ref().map(moved);
    }
    layer.ffn_sub_norm = layer.ffn_sub_norm.as_ref().map(moved);
    if let Matrix::Ternary(down) = &mut layer.down.weight {
        *down = columns(down, order)?;
    }
    Ok(())
}

/// Reorders rows: new row `i` is old row `order[i]`.
pub(super) fn rows(matrix: &Matrix, order: &[usize]) -> Result<Matrix, LayoutError> {
    let (count, cols) = (matrix.rows(), matrix.cols());
    match matrix {
        Matrix::Ternary(m) => {
            let scales = match m.scales() {
                Scales::Tensor(scale) => Scales::Tensor(*scale),
                Scales::Groups(g) => {
                    let of = |row: usize, out: &mut [f16]| {
                        (0..).zip(out).for_each(|(i, s)| *s = g.get(order[row], i));
                    };
                    Scales::Groups(GroupScales::from_rows(count, cols, g.size(), of)?)
                }
            };
            let codes = |row: usize, out: &mut [u8]| m.unpack_row(order[row], out);
            TernaryMatrix::pack(count, cols, scales, codes).map(Matrix::Ternary)
        }
        Matrix::Int8(m) => int8_rows(m, order).map(Matrix::Int8),
        Matrix::Split(m) => {
            int8_rows(&m.joined(), order).map(|m| Matrix::Split(SplitMatrix::new(&m)))
        }
        Matrix::Float(m) => {
            let data: Vec<u8> = order.iter().flat_map(|&row| m.row(row)).copied().collect();
            FloatMatrix::new(count, cols, m.dtype(), Bytes::from(data)).map(Matrix::Float)
        }
    }
}

/// As [`rows`], of an int8 matrix.
fn int8_rows(m: &Int8Matrix, order: &[usize]) -> Result<Int8Matrix, LayoutError> {
    let fill = |row: usize, values: &mut [i8], scales: &mut [f32]| {
        m.unpack_row(order[row], values);
        (0..).zip(scales).for_each(|(i, s)| *s = m.scale(order[row], i));
    };
    Int8Matrix::pack(m.view().rows(), m.view().cols(), m.view().group(), fill)
}

/// Reorders columns: new column `i` is old column `order[i]`.
pub(super) fn columns(m: &TernaryMatrix, order: &[usize]) -> Result<TernaryMatrix, LayoutError> {
    let mut codes = vec![0; m.cols()];
    TernaryMatrix::pack(m.rows(), m.cols(), m.scales().clone(), |row, out| {
        m.unpack_row(row, &mut codes);
        out.iter_mut().zip(order).for_each(|(o, &i)| *o = codes[i]);
    })
}
