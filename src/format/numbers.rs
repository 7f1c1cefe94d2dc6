//! Checks of a model's numbers while it is loaded: each is finite, and subnormal ones become zero.

use super::index::{DType, Tensor};
use super::{LoadError, LoadErrorKind as Kind};
use crate::loader::WeightLoader;
use crate::matrix::{FloatMatrix, FloatType, Matrix, NotFinite, Scales};
use bytes::Bytes;

/// Checks the numbers of one model's tensors.
pub(super) struct NumberCheck<'a, 'l, 'c> {
    loader: &'a mut WeightLoader<'l, 'c>,
    /// Number of subnormal numbers that became zero.
    pub(super) flushed: usize,
}

impl<'a, 'l, 'c> NumberCheck<'a, 'l, 'c> {
    /// Checks with the threads of a loader.
    pub(super) fn new(loader: &'a mut WeightLoader<'l, 'c>) -> Self {
        Self { loader, flushed: 0 }
    }

    /// Loads a float matrix that was made from tensor `t`.
    pub(super) fn matrix(&mut self, t: &Tensor, w: &FloatMatrix) -> Result<FloatMatrix, LoadError> {
        let (w, flushed) =
            w.relocate_finite(self.loader).map_err(|number| t.not_finite(&number))?;
        self.flushed += flushed;
        Ok(w)
    }

    /// Reads a vector of `len` floats.
    pub(super) fn vector(&mut self, t: &Tensor, len: usize) -> Result<Vec<f32>, LoadError> {
        self.floats(t, &[len])
    }

    /// Reads floats of this shape, row-major.
    pub(super) fn floats(&mut self, t: &Tensor, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let mut values = t.floats(shape)?;
        for value in values.iter_mut().filter(|value| value.is_subnormal()) {
            *value = 0.0f32.copysign(*value);
            self.flushed += 1;
        }
        Ok(values)
    }

    /// Sets the one scale of a ternary matrix to zero if it is subnormal.
    pub(super) fn scaled(&mut self, w: Matrix) -> Matrix {
        let Matrix::Ternary(ternary) = &w else { return w };
        let Scales::Tensor(scale) = ternary.scales() else { return w };
        if !scale.is_subnormal() {
            return w;
        }
        self.flushed += 1;
        Matrix::Ternary(ternary.with_scale(0.0).expect("zero is finite"))
    }

    /// Loads the f32 scales of a tensor. The bytes of other types are returned as they are.
    pub(super) fn scales(&mut self, t: &Tensor) -> Result<Bytes, LoadError> {
        let DType::Float(dtype @ FloatType::F32) = t.dtype else { return Ok(t.bytes.clone()) };
        let cols = t.shape.last().copied().unwrap_or(1).max(1);
        let rows = t.bytes.len() / dtype.size() / cols;
        let scales = FloatMatrix::new(rows, cols, dtype, t.bytes.clone());
        let scales = scales.map_err(|error| LoadError::layout(&t.file, &t.name, &error))?;
        Ok(self.matrix(t, &scales)?.data().clone())
    }
}

impl Tensor {
    /// The error for a number that is NaN or infinite.
    pub(super) fn not_finite(&self, number: &NotFinite) -> LoadError {
        self.error(Kind::NotFinite, "finite numbers", number.to_string())
            .advice("the file is damaged, or its training or conversion failed")
    }
}
