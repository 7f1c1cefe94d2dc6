//! Float matrices, row-major and little-endian as in files.

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
    /// Number of bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Name of the type: `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Converts little-endian elements to f32.
    ///
    /// # Panics
    /// If `bytes` does not hold exactly `out.len()` elements.
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
///
/// ```
/// use wrinklefree_compute::matrix::{FloatMatrix, FloatType};
///
/// let bytes = [1.0f32, -2.0, 0.5, 4.0].map(f32::to_le_bytes).concat();
/// let w = FloatMatrix::new(2, 2, FloatType::F32, bytes.into())?;
/// let mut row = [0.0; 2];
/// w.row_f32(1, &mut row);
/// assert_eq!(row, [0.5, 4.0]);
/// # Ok::<(), wrinklefree_compute::ternary::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FloatMatrix {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) dtype: FloatType,
    pub(super) data: Bytes,
}

impl FloatMatrix {
    /// Takes row-major little-endian bytes without copying.
    ///
    /// # Errors
    /// If the byte count does not match the shape.
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

    /// Loads the matrix.
    #[must_use]
    pub fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        Self { data: loader.relocate(&self.data), ..*self }
    }

    /// Number of rows (outputs).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns (inputs).
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

    /// Returns the bytes of one row.
    ///
    /// # Panics
    /// If `row` is out of range.
    pub fn row(&self, row: usize) -> &[u8] {
        let n = self.cols * self.dtype.size();
        &self.data[row * n..(row + 1) * n]
    }

    /// Writes one row to `out` as f32.
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        self.dtype.read(self.row(row), out);
    }
}
