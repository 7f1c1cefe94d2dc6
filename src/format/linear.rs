//! Choice of a matrix's activations, and conversion of the output head to another precision.

use super::{Activations, Checkpoint, Linear, LoadError, LoadErrorKind as Kind};
use crate::matrix::{FloatMatrix, FloatType, Int8Matrix, LayoutError, Matrix, Scales};
use bytes::Bytes;
use half::f16;

/// Precision of the output head, and of the embeddings where they are the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadType {
    /// IEEE half precision.
    F16,
    /// int8 with one scale per row.
    Q8,
}

impl Linear {
    /// Most columns of a group that shares a scale of 8-bit activations.
    pub const MOST_GROUP_COLUMNS: usize = 256;

    /// Number of columns that share a scale of the weights, if 8-bit activations can have scales of such
    /// groups too: a power of two, at most [`MOST_GROUP_COLUMNS`](Self::MOST_GROUP_COLUMNS).
    pub fn group_columns(&self) -> Option<usize> {
        let columns = match &self.weight {
            Matrix::Float(_) => return None,
            Matrix::Ternary(m) => match m.scales() {
                Scales::Tensor(_) => return None,
                Scales::Groups(groups) => groups.size(),
            },
            Matrix::Int8(m) => m.view().group(),
            Matrix::Split(m) => m.view().group(),
        };
        (columns.is_power_of_two() && columns <= Self::MOST_GROUP_COLUMNS).then_some(columns)
    }

    /// A layer of a model that was trained with activations in full precision: they get 15 bits.
    pub fn new(weight: Matrix, bias: Option<Vec<f32>>) -> Self {
        Self { weight, bias, activations: Activations::Int16, rotation: None }
    }

    /// A layer of a model that was trained as BitNet b1.58: the inputs of a ternary matrix with one scale
    /// get 8 bits, those of others 15.
    pub fn bitnet(weight: Matrix, bias: Option<Vec<f32>>) -> Self {
        let one_scale =
            matches!(&weight, Matrix::Ternary(m) if matches!(m.scales(), Scales::Tensor(_)));
        let activations = if one_scale { Activations::Int8 } else { Activations::Int16 };
        Self { activations, ..Self::new(weight, bias) }
    }
}

impl Checkpoint {
    /// Converts the output head to another precision. The embeddings stay as they are, unless they
    /// are the head.
    ///
    /// # Errors
    /// When a weight is not finite in the new precision.
    pub fn with_head(mut self, head: HeadType) -> Result<Self, LoadError> {
        let weight = match &mut self.weights.head {
            Some(linear) => &mut linear.weight,
            None => &mut self.weights.embed,
        };
        *weight = convert(weight, head).map_err(|e| {
            let want = format!("finite weights in {head:?}");
            LoadError::new(Kind::NotFinite, "model", want, e.to_string()).tensor("head")
        })?;
        if let Some(linear) = self.weights.head.take() {
            let Linear { weight, bias, rotation, .. } = linear;
            self.weights.head = Some(Linear { rotation, ..Linear::new(weight, bias) });
        }
        Ok(self)
    }
}

fn convert(matrix: &Matrix, head: HeadType) -> Result<Matrix, LayoutError> {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    match (head, matrix) {
        (HeadType::F16, Matrix::Float(m)) if m.dtype() == FloatType::F16 => Ok(matrix.clone()),
        (HeadType::Q8, Matrix::Int8(m)) if m.view().groups() <= 1 => Ok(matrix.clone()),
        (HeadType::Q8, Matrix::Split(m)) if m.view().groups() <= 1 => Ok(matrix.clone()),
        (HeadType::Q8, _) => {
            Int8Matrix::quantize_rows(rows, cols, |r, out| matrix.row_f32(r, out)).map(Matrix::Int8)
        }
        (HeadType::F16, _) => {
            let mut data = Vec::with_capacity(rows * cols * FloatType::F16.size());
            let mut row_f32 = vec![0f32; cols];
            for row in 0..rows {
                matrix.row_f32(row, &mut row_f32);
                for (col, &w) in row_f32.iter().enumerate() {
                    let half = f16::from_f32(w);
                    if !half.is_finite() {
                        return Err(LayoutError::Scale { value: w, row, col });
                    }
                    data.extend_from_slice(&half.to_le_bytes());
                }
            }
            FloatMatrix::new(rows, cols, FloatType::F16, Bytes::from(data)).map(Matrix::Float)
        }
    }
}
