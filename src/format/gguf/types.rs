//! Element types of GGUF. Forks use ids above 35 with different meanings.

use crate::format::DType;
use crate::format::codec::{self, IntBlockFormat, TernaryBlockFormat};
use crate::matrix::FloatType;

/// A supported block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgmlType {
    /// int8 blocks of 32.
    Q8_0,
    /// Four-bit blocks of 32.
    Q4_0,
    /// Six-bit blocks of 256.
    Q6K,
    /// Four-bit blocks of 256 with minima.
    Q4K,
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

/// Decoder of a block format.
pub(super) enum BlockCodec {
    Int8(&'static IntBlockFormat),
    Ternary(&'static TernaryBlockFormat),
    I2S,
    Q4K,
}

impl GgmlType {
    /// Name of the format in GGUF.
    pub fn name(self) -> &'static str {
        match self.codec() {
            BlockCodec::Int8(b) => b.name,
            BlockCodec::Ternary(b) => b.name,
            BlockCodec::I2S => "I2_S",
            BlockCodec::Q4K => "Q4_K",
        }
    }

    pub(super) fn codec(self) -> BlockCodec {
        match self {
            Self::Q8_0 => BlockCodec::Int8(&codec::Q8_0),
            Self::Q4_0 => BlockCodec::Int8(&codec::Q4_0),
            Self::Q6K => BlockCodec::Int8(&codec::Q6_K),
            Self::Tq1_0 => BlockCodec::Ternary(&codec::TQ1_0),
            Self::Tq2_0 => BlockCodec::Ternary(&codec::TQ2_0),
            Self::Q2_0 => BlockCodec::Ternary(&codec::Q2_0),
            Self::Pq2_0 => BlockCodec::Ternary(&codec::PQ2_0),
            Self::Ptq1_0 => BlockCodec::Ternary(&codec::PTQ1_0),
            Self::I2S => BlockCodec::I2S,
            Self::Q4K => BlockCodec::Q4K,
        }
    }
}

/// Bytes of a tensor; `None` if it is too large or its rows are not whole blocks.
pub(super) fn size(dtype: DType, rows: usize, cols: usize) -> Option<usize> {
    match dtype {
        DType::Float(t) => rows.checked_mul(cols)?.checked_mul(t.size()),
        DType::U8 | DType::I8 => rows.checked_mul(cols),
        DType::Block(t) => match t.codec() {
            BlockCodec::Int8(b) => b.size(rows, cols),
            BlockCodec::Ternary(b) => b.size(rows, cols),
            BlockCodec::I2S => codec::i2s_size(rows, cols),
            BlockCodec::Q4K => codec::q4_k_size(rows, cols),
        },
    }
}

/// The possible types of an id; the tensor's size decides between several.
pub(super) fn candidates(id: u32) -> &'static [DType] {
    use DType::Block;
    match id {
        0 => &[DType::Float(FloatType::F32)],
        1 => &[DType::Float(FloatType::F16)],
        30 => &[DType::Float(FloatType::Bf16)],
        2 => &[Block(GgmlType::Q4_0)],
        8 => &[Block(GgmlType::Q8_0)],
        12 => &[Block(GgmlType::Q4K)],
        14 => &[Block(GgmlType::Q6K)],
        34 => &[Block(GgmlType::Tq1_0)],
        35 => &[Block(GgmlType::Tq2_0)],
        36 => &[Block(GgmlType::I2S)],
        // Blocks of 64 in mainline, blocks of 128 in the fork that introduced the id.
        42 => &[Block(GgmlType::Q2_0), Block(GgmlType::Pq2_0)],
        142 => &[Block(GgmlType::Pq2_0)],
        143 => &[Block(GgmlType::Ptq1_0)],
        _ => &[],
    }
}

/// Name of an unsupported type.
pub(super) fn foreign_name(id: u32, bitnet: bool) -> &'static str {
    match (id, bitnet) {
        (3, _) => "Q4_1",
        (6, _) => "Q5_0",
        (7, _) => "Q5_1",
        (9, _) => "Q8_1",
        (10, _) => "Q2_K",
        (11, _) => "Q3_K",
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
