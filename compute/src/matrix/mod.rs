//! Weight matrices in the layouts that kernels read: ternary, int8 or float.
//!
//! Each has `rows` outputs × `cols` inputs. Ternary and int8 matrices are packed in panels of 16 rows,
//! with scales; float matrices are row-major.

mod finite;
mod float;
mod int8;
mod split;
mod view;

use crate::loader::WeightLoader;
use crate::ternary::Layout;
pub use crate::ternary::{GroupScales, LayoutError, Scales, TernaryMatrix};
pub use finite::NotFinite;
pub use float::{FloatMatrix, FloatType};
pub use int8::Int8Matrix;
pub use split::{SplitMatrix, SplitParts};
pub use view::{INT8_BLOCK_COLS, INT8_PAD_COLS, Int8Panel, Int8Scales, Int8View, PARTS, Packing};

/// A weight matrix of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// Two-bit codes, three codes in five bits, or single bits.
    Ternary(TernaryMatrix),
    /// int8 with a scale per row or per group of columns.
    Int8(Int8Matrix),
    /// int4, int6 or int8 in planes of bits.
    Split(SplitMatrix),
    /// f32, f16 or bf16.
    Float(FloatMatrix),
}

impl Matrix {
    /// Loads the matrix in its layout.
    #[must_use]
    pub fn relocate(&self, loader: &mut WeightLoader<'_, '_>) -> Self {
        match self {
            Self::Ternary(m) => Self::Ternary(m.relocate(loader)),
            Self::Int8(m) => Self::Int8(m.relocate(loader)),
            Self::Split(m) => Self::Split(m.relocate(loader)),
            Self::Float(m) => Self::Float(m.relocate(loader)),
        }
    }

    /// Number of rows (outputs).
    pub fn rows(&self) -> usize {
        match self {
            Self::Ternary(m) => m.rows(),
            Self::Int8(m) => m.view().rows(),
            Self::Split(m) => m.view().rows(),
            Self::Float(m) => m.rows(),
        }
    }

    /// Number of columns (inputs).
    pub fn cols(&self) -> usize {
        match self {
            Self::Ternary(m) => m.cols(),
            Self::Int8(m) => m.view().cols(),
            Self::Split(m) => m.view().cols(),
            Self::Float(m) => m.cols(),
        }
    }

    /// Number of bytes that a product with this matrix reads: values and scales.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Ternary(m) => {
                m.codes().len()
                    + match m.scales() {
                        Scales::Tensor(_) => 0,
                        Scales::Groups(g) => g.bytes().len(),
                    }
            }
            Self::Int8(m) => m.values().len() + m.scales().len(),
            Self::Split(m) => m.bytes().1,
            Self::Float(m) => m.data().len(),
        }
    }

    /// Short name of the kind: `ternary`, `ternary/tight`, `ternary/one-bit/g128`, `int8`, `int6/g16`, `bf16`…
    pub fn kind(&self) -> String {
        match self {
            Self::Ternary(m) => {
                let layout = match m.layout() {
                    Layout::TwoBit => "ternary",
                    Layout::Tight => "ternary/tight",
                    Layout::OneBit => "ternary/one-bit",
                };
                match m.scales() {
                    Scales::Tensor(_) => layout.into(),
                    Scales::Groups(g) => format!("{layout}/g{}", g.size()),
                }
            }
            Self::Int8(m) => grouped("int8", m.view()),
            Self::Split(m) => grouped(m.parts().packing.name(), m.view()),
            Self::Float(m) => m.dtype().name().into(),
        }
    }

    /// Writes one row to `out` as f32 (an embedding lookup).
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::Ternary(m) => m.row_f32(row, out),
            Self::Int8(m) => m.row_f32(row, out),
            Self::Split(m) => m.row_f32(row, out),
            Self::Float(m) => m.row_f32(row, out),
        }
    }
}

/// Name of a kind of int8 matrix, with its group size if a row has several groups.
fn grouped(kind: &str, w: Int8View<'_>) -> String {
    if w.groups() <= 1 { kind.into() } else { format!("{kind}/g{}", w.group()) }
}
