//! Float matrices, row-major and little endian as files hold them.

use super::LayoutError;
use crate::loader::WeightLoader;
use crate::ternary::expect_bytes;
use bytes::Bytes;
use half::{bf16, f16};

/// Element type of a [`FloatMatrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
}

impl FloatType {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Reads little-endian elements as f32.
    ///
    /// # Panics
    /// When `bytes` does not hold exactly `out.len()` elements.
    pub fn read(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(bytes.len(), out.len() * self.size());
        match self {
            Self::F32 => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
            Self::F16 => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *o = f16::from_le_bytes([b[0], b[1]]).to_f32();
                }
            }
            Self::Bf16 => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *o = bf16::from_le_bytes([b[0], b[1]]).to_f32();
                }
            }
        }
    }
}

/// A float matrix, `[rows][cols]`.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatMatrix {
    rows: usize,
    cols: usize,
    dtype: FloatType,
    data: Bytes,
}

impl FloatMatrix {
    /// Takes row-major little-endian bytes without copying.
    ///
    /// # Errors
    /// When the byte count does not match the shape.
    pub fn new(
        rows: usize,
        cols: usize,
        dtype: FloatType,
        data: Bytes,
    ) -> Result<Self, LayoutError> {
        let want = rows.checked_mul(cols).and_then(|n| n.checked_mul(dtype.size()));
        expect_bytes(dtype.name(), &data, want, rows, cols)?;
        Ok(Self { rows, cols, dtype, data })
    }

    /// The same where it is to stand.
    #[must_use]
    pub fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        Self { data: loader.relocate(&self.data), ..*self }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Element type.
    pub fn dtype(&self) -> FloatType {
        self.dtype
    }

    /// All elements, row-major.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// The bytes of one row.
    ///
    /// # Panics
    /// When `row` is out of range.
    pub fn row(&self, row: usize) -> &[u8] {
        let n = self.cols * self.dtype.size();
        &self.data[row * n..(row + 1) * n]
    }

    /// Writes one row as f32.
    ///
    /// # Panics
    /// When `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.dtype.read(self.row(row), out);
    }
}
