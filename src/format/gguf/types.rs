//! Element types of GGUF. Forks use ids above 35 with different meanings.

use crate::format::DType;
use crate::format::codec::{
    self, IntBlockFormat, RoundedBlockFormat, RowScaledFormat, TernaryBlockFormat,
};

/// A supported block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgmlType {
    /// int8 blocks of 32.
    Q8_0,
    /// Four-bit blocks of 32.
    Q4_0,
    /// Five-bit blocks of 32.
    Q5_0,
    /// Three-bit blocks of 256.
    Q3K,
    /// Six-bit blocks of 256.
    Q6K,
    /// Four-bit blocks of 32, of values in a table.
    Iq4Nl,
    /// Four-bit blocks of 256, of values in a table.
    Iq4Xs,
    /// Four-bit floats in blocks of 32.
    Mxfp4,
    /// Four-bit blocks of 32 with an offset.
    Q4_1,
    /// Five-bit blocks of 32 with an offset.
    Q5_1,
    /// Two-bit blocks of 256 with minima.
    Q2K,
    /// Five-bit blocks of 256 with minima.
    Q5K,
    /// 64-bit floats.
    F64,
    /// Base-3 rows with one scale (ik_llama.cpp).
    Iq1Bn,
    /// Two-bit rows with one scale (ik_llama.cpp).
    Iq2Bn,
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
    /// One-bit blocks of 128: signs.
    Q1_0,
    /// Blocks of 256 with one zero among every four weights (Tencent's Sherry).
    Stq1_0,
}

/// Decoder of a block format.
pub(super) enum BlockCodec {
    Int8(&'static IntBlockFormat),
    Ternary(&'static TernaryBlockFormat),
    I2S,
    Rounded(&'static RoundedBlockFormat),
    RowScaled(&'static RowScaledFormat),
    F64,
}

impl GgmlType {
    /// Name of the format in GGUF.
    pub fn name(self) -> &'static str {
        match self.codec() {
            BlockCodec::Int8(b) => b.name,
            BlockCodec::Ternary(b) => b.name,
            BlockCodec::I2S => "I2_S",
            BlockCodec::Rounded(b) => b.name,
            BlockCodec::RowScaled(b) => b.name,
            BlockCodec::F64 => "F64",
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
            Self::Q1_0 => BlockCodec::Ternary(&codec::Q1_0),
            Self::Stq1_0 => BlockCodec::Ternary(&codec::STQ1_0),
            Self::I2S => BlockCodec::I2S,
            Self::Q5_0 => BlockCodec::Int8(&codec::Q5_0),
            Self::Q3K => BlockCodec::Int8(&codec::Q3_K),
            Self::Iq4Nl => BlockCodec::Int8(&codec::IQ4_NL),
            Self::Iq4Xs => BlockCodec::Int8(&codec::IQ4_XS),
            Self::Mxfp4 => BlockCodec::Int8(&codec::MXFP4),
            Self::Q4_1 => BlockCodec::Rounded(&codec::Q4_1),
            Self::Q5_1 => BlockCodec::Rounded(&codec::Q5_1),
            Self::Q2K => BlockCodec::Rounded(&codec::Q2_K),
            Self::Q4K => BlockCodec::Rounded(&codec::Q4_K),
            Self::Q5K => BlockCodec::Rounded(&codec::Q5_K),
            Self::F64 => BlockCodec::F64,
            Self::Iq1Bn => BlockCodec::RowScaled(&codec::IQ1_BN),
            Self::Iq2Bn => BlockCodec::RowScaled(&codec::IQ2_BN),
        }
    }
}

/// Bytes of a tensor; `None` if it is too large or its rows are not whole blocks.
pub(super) fn size(dtype: DType, rows: usize, cols: usize) -> Option<usize> {
    match dtype {
        DType::Float(t) => rows.checked_mul(cols)?.checked_mul(t.size()),
        DType::U8 | DType::I8 | DType::Bool => rows.checked_mul(cols),
        DType::I64 => rows.checked_mul(cols)?.checked_mul(8),
        DType::Block(t) => match t.codec() {
            BlockCodec::Int8(b) => b.size(rows, cols),
            BlockCodec::Ternary(b) => b.size(rows, cols),
            BlockCodec::I2S => codec::i2s_size(rows, cols),
            BlockCodec::Rounded(b) => b.size(rows, cols),
            BlockCodec::RowScaled(b) => b.size(rows, cols),
            BlockCodec::F64 => rows.checked_mul(cols)?.checked_mul(8),
        },
    }
}
