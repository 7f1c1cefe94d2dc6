//! Element types of GGUF. Ids past 35 mean different things in different forks.

use crate::format::codec::{self, Int8Blocks, TernaryBlocks};
use crate::matrix::FloatType;

/// An element type that this program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgmlType {
    /// f32, f16, bf16.
    Float(FloatType),
    /// int8 blocks of 32.
    Q8_0,
    /// Four-bit blocks of 32.
    Q4_0,
    /// Six-bit blocks of 256.
    Q6K,
    /// Base-3 blocks of 256.
    Tq1_0,
    /// Two-bit blocks of 256.
    Tq2_0,
    /// Two-bit blocks of 64.
    Q2_0,
    /// Two-bit blocks of 128.
    Pq2_0,
    /// Base-3 blocks of 128.
    Ptq1_0,
    /// Two-bit blocks of 128 with one scale for the tensor (BitNet's fork).
    I2S,
}

/// How the weights of a block type are decoded.
pub(super) enum Blocks {
    Float(FloatType),
    Int8(&'static Int8Blocks),
    Ternary(&'static TernaryBlocks),
    I2S,
}

impl GgmlType {
    /// Its name in GGUF.
    pub fn name(self) -> &'static str {
        match self.blocks() {
            Blocks::Float(FloatType::F32) => "F32",
            Blocks::Float(FloatType::F16) => "F16",
            Blocks::Float(FloatType::Bf16) => "BF16",
            Blocks::Int8(b) => b.name,
            Blocks::Ternary(b) => b.name,
            Blocks::I2S => "I2_S",
        }
    }

    pub(super) fn blocks(self) -> Blocks {
        match self {
            Self::Float(t) => Blocks::Float(t),
            Self::Q8_0 => Blocks::Int8(&codec::Q8_0),
            Self::Q4_0 => Blocks::Int8(&codec::Q4_0),
            Self::Q6K => Blocks::Int8(&codec::Q6_K),
            Self::Tq1_0 => Blocks::Ternary(&codec::TQ1_0),
            Self::Tq2_0 => Blocks::Ternary(&codec::TQ2_0),
            Self::Q2_0 => Blocks::Ternary(&codec::Q2_0),
            Self::Pq2_0 => Blocks::Ternary(&codec::PQ2_0),
            Self::Ptq1_0 => Blocks::Ternary(&codec::PTQ1_0),
            Self::I2S => Blocks::I2S,
        }
    }

    /// Bytes of a tensor, `None` when it is too large or its rows are no whole blocks.
    pub(super) fn size(self, rows: usize, cols: usize) -> Option<usize> {
        match self.blocks() {
            Blocks::Float(t) => rows.checked_mul(cols)?.checked_mul(t.size()),
            Blocks::Int8(b) => b.size(rows, cols),
            Blocks::Ternary(b) => b.size(rows, cols),
            Blocks::I2S => codec::i2s_size(rows, cols),
        }
    }

    /// What an id may mean; the tensor's size decides between several.
    pub(super) fn candidates(id: u32) -> &'static [Self] {
        match id {
            0 => &[Self::Float(FloatType::F32)],
            1 => &[Self::Float(FloatType::F16)],
            30 => &[Self::Float(FloatType::Bf16)],
            2 => &[Self::Q4_0],
            8 => &[Self::Q8_0],
            14 => &[Self::Q6K],
            34 => &[Self::Tq1_0],
            35 => &[Self::Tq2_0],
            36 => &[Self::I2S],
            // Mainline has blocks of 64, the fork that had the id first blocks of 128.
            42 => &[Self::Q2_0, Self::Pq2_0],
            142 => &[Self::Pq2_0],
            143 => &[Self::Ptq1_0],
            _ => &[],
        }
    }

    /// What is known by an id that this program does not read.
    pub(super) fn foreign_name(id: u32, bitnet: bool) -> &'static str {
        match (id, bitnet) {
            (3, _) => "Q4_1",
            (6, _) => "Q5_0",
            (7, _) => "Q5_1",
            (9, _) => "Q8_1",
            (10, _) => "Q2_K",
            (11, _) => "Q3_K",
            (12, _) => "Q4_K",
            (13, _) => "Q5_K",
            (15, _) => "Q8_K",
            (16, _) => "IQ2_XXS",
            (17, _) => "IQ2_XS",
            (18, _) => "IQ3_XXS",
            (19, _) => "IQ1_S",
            (20, _) => "IQ4_NL",
            (21, _) => "IQ3_S",
            (22, _) => "IQ2_S",
            (23, _) => "IQ4_XS",
            (24, _) => "I8",
            (25, _) => "I16",
            (26, _) => "I32",
            (27, _) => "I64",
            (28, _) => "F64",
            (29, _) => "IQ1_M",
            (31, _) => "Q4_0_4_4",
            (32, _) => "Q4_0_4_8",
            (33, _) => "Q4_0_8_8",
            (36, _) => "I2_S or IQ4_NL_4_4",
            (37, true) => "I8_S",
            (37, false) => "IQ4_NL_4_8",
            (38, true) => "TL1",
            (38, false) => "IQ4_NL_8_8",
            (39, true) => "TL2",
            (39, false) => "MXFP4",
            (40, _) => "NVFP4",
            (41, _) => "Q1_0",
            _ => "unknown",
        }
    }
}
