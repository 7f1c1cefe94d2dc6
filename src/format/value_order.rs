//! Moves the value heads of linear attention into the order of another file format.

use super::reorder::{columns, rows};
use super::{
    Checkpoint, ExportError, LayerWeights, Linear, LinearAttention, LinearAttentionWeights, Mixer,
    ValueOrder,
};
use crate::matrix::{FloatMatrix, LayoutError, Matrix, Scales};
use bytes::Bytes;

impl Checkpoint {
    /// Puts the value heads of linear attention into another order: Hugging Face groups those that share
    /// a key head ([`ValueOrder::Grouped`]), GGUF does not ([`ValueOrder::Tiled`]). The model computes
    /// the same, except that `o_proj` sums in another order. Models without such layers stay as they are.
    ///
    /// # Errors
    /// When an output projection is rotated or has a scale for columns of several heads.
    pub fn with_value_order(mut self, order: ValueOrder) -> Result<Self, ExportError> {
        let Some(shape) = &self.spec.linear_attention else { return Ok(self) };
        if shape.value_order == order || shape.values_per_key() == 1 {
            let linear_attention = LinearAttention { value_order: order, ..shape.clone() };
            self.spec.linear_attention = Some(linear_attention);
            return Ok(self);
        }
        let moved = Moved::new(shape, order);
        for (i, LayerWeights { mixer, .. }) in self.weights.layers.iter_mut().enumerate() {
            if let Mixer::Linear(w) = mixer {
                moved.layer(w).map_err(|found| {
                    ExportError::unsupported(
                        format!("linear out of layer {i}"),
                        "columns that can be put into another order",
                        found,
                        "keep the order of the file that it comes from",
                    )
                })?;
            }
        }
        self.spec.linear_attention = Some(LinearAttention { value_order: order, ..moved.shape });
        Ok(self)
    }
}

/// New places of the value heads.
struct Moved {
    shape: LinearAttention,
    /// Old index of each value head.
    heads: Vec<usize>,
    /// Old index of each value of all heads.
    values: Vec<usize>,
    /// Old index of each channel: queries and keys stay.
    channels: Vec<usize>,
}

impl Moved {
    fn new(shape: &LinearAttention, order: ValueOrder) -> Self {
        let new = LinearAttention { value_order: order, ..shape.clone() };
        let mut heads = vec![0; shape.value_heads];
        for key in 0..shape.key_heads {
            for n in 0..shape.values_per_key() {
                heads[new.value_head(key, n)] = shape.value_head(key, n);
            }
        }
        let wide = shape.value_dim;
        let values: Vec<usize> =
            heads.iter().flat_map(|head| head * wide..(head + 1) * wide).collect();
        let before = 2 * shape.key_width();
        let channels = (0..before).chain(values.iter().map(|v| before + v)).collect();
        Self { shape: shape.clone(), heads, values, channels }
    }

    fn layer(&self, w: &mut LinearAttentionWeights) -> Result<(), String> {
        match w.out.rotation {
            None => w.out.weight = self.out(&w.out.weight)?,
            // Its columns stay in the grouped order, whatever the order of the heads.
            Some(_) if self.shape.output_grouped => {}
            Some(_) => return Err("a rotated matrix".into()),
        }
        let moved = |linear: &mut Linear, order: &[usize]| -> Result<(), String> {
            linear.weight = rows(&linear.weight, order).map_err(|e| e.to_string())?;
            linear.bias = linear.bias.as_ref().map(|bias| picked(bias, order, 1));
            Ok(())
        };
        moved(&mut w.qkv, &self.channels)?;
        moved(&mut w.z, &self.values)?;
        moved(&mut w.alpha, &self.heads)?;
        moved(&mut w.beta, &self.heads)?;
        w.conv = picked(&w.conv, &self.channels, self.shape.conv_kernel);
        w.a = picked(&w.a, &self.heads, 1);
        w.dt_bias = picked(&w.dt_bias, &self.heads, 1);
        Ok(())
    }

    fn out(&self, matrix: &Matrix) -> Result<Matrix, String> {
        let moved = match matrix {
            Matrix::Ternary(m) if matches!(m.scales(), Scales::Tensor(_)) => {
                columns(m, &self.values).map(Matrix::Ternary)
            }
            Matrix::Float(m) => float_columns(m, &self.values).map(Matrix::Float),
            other => return Err(format!("a matrix of kind {}", other.kind())),
        };
        moved.map_err(|e| e.to_string())
    }
}

/// Reorders items of `size` values each: new item `i` is old item `order[i]`.
fn picked(values: &[f32], order: &[usize], size: usize) -> Vec<f32> {
    order.iter().flat_map(|&i| &values[i * size..(i + 1) * size]).copied().collect()
}

/// Reorders columns: new column `i` is old column `order[i]`.
fn float_columns(m: &FloatMatrix, order: &[usize]) -> Result<FloatMatrix, LayoutError> {
    let size = m.dtype().size();
    let mut data = Vec::with_capacity(m.data().len());
    for row in (0..m.rows()).map(|row| m.row(row)) {
        for &column in order {
            data.extend_from_slice(&row[column * size..(column + 1) * size]);
        }
    }
    FloatMatrix::new(m.rows(), m.cols(), m.dtype(), Bytes::from(data))
}
