//! Type ids: the layouts that files have under each. Programs use some ids with different meanings, so
//! the id and the size of a tensor decide together.

use super::types::{self, GgmlType};
use crate::format::DType;
use crate::matrix::FloatType;

/// A layout that files have under a type id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    Read(DType),
    Refused(&'static RefusedLayout),
}

/// A block layout that is known and not supported.
#[derive(Debug, PartialEq)]
pub(super) struct RefusedLayout {
    name: &'static str,
    /// Weights and bytes of a block.
    block: (usize, usize),
    pub(super) advice: &'static str,
}

const NVFP4: RefusedLayout =
    RefusedLayout { name: "NVFP4", block: (64, 36), advice: "a 4-bit type that is not supported" };
const SEQ: RefusedLayout = RefusedLayout {
    name: "Q2_0C",
    block: (512, 130),
    advice: "its four levels ±1 and ±3 are not ternary; download the 1.25-bit file of the same model",
};
const EARLY_Q1_0: RefusedLayout = RefusedLayout {
    name: "early Q1_0",
    block: (32, 6),
    advice: "early Q1_0 with groups of 32; download the current file",
};

impl Meaning {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read(dtype) => dtype.name(),
            Self::Refused(layout) => layout.name,
        }
    }

    /// Bytes of a tensor; `None` if it is too large or its rows are not whole blocks.
    pub(super) fn size(self, rows: usize, cols: usize) -> Option<usize> {
        match self {
            Self::Read(dtype) => types::size(dtype, rows, cols),
            Self::Refused(RefusedLayout { block: (weights, bytes), .. }) => {
                cols.is_multiple_of(*weights).then_some(())?;
                rows.checked_mul(cols / weights)?.checked_mul(*bytes)
            }
        }
    }
}

/// The possible meanings of an id; the tensor's size decides between several.
pub(super) fn candidates(id: u32) -> &'static [Meaning] {
    use DType::{Block, Float, I64};
    use Meaning::{Read, Refused};
    match id {
        0 => &[Read(Float(FloatType::F32))],
        1 => &[Read(Float(FloatType::F16))],
        30 => &[Read(Float(FloatType::Bf16))],
        2 => &[Read(Block(GgmlType::Q4_0))],
        3 => &[Read(Block(GgmlType::Q4_1))],
        6 => &[Read(Block(GgmlType::Q5_0))],
        7 => &[Read(Block(GgmlType::Q5_1))],
        8 => &[Read(Block(GgmlType::Q8_0))],
        10 => &[Read(Block(GgmlType::Q2K))],
        11 => &[Read(Block(GgmlType::Q3K))],
        12 => &[Read(Block(GgmlType::Q4K))],
        13 => &[Read(Block(GgmlType::Q5K))],
        20 => &[Read(Block(GgmlType::Iq4Nl))],
        23 => &[Read(Block(GgmlType::Iq4Xs))],
        27 => &[Read(I64)],
        28 => &[Read(Block(GgmlType::F64))],
        39 => &[Read(Block(GgmlType::Mxfp4))],
        134 => &[Read(Block(GgmlType::Iq1Bn))],
        135 => &[Read(Block(GgmlType::Iq2Bn))],
        14 => &[Read(Block(GgmlType::Q6K))],
        34 => &[Read(Block(GgmlType::Tq1_0))],
        35 => &[Read(Block(GgmlType::Tq2_0))],
        36 => &[Read(Block(GgmlType::I2S))],
        40 => &[Refused(&NVFP4), Refused(&SEQ), Refused(&EARLY_Q1_0)],
        41 => &[Read(Block(GgmlType::Q1_0))],
        // Blocks of 64 in mainline, of 128 in the fork that introduced the id, and Tencent's early numbering.
        42 => &[
            Read(Block(GgmlType::Q2_0)),
            Read(Block(GgmlType::Pq2_0)),
            Read(Block(GgmlType::Stq1_0)),
        ],
        43 => &[Read(Block(GgmlType::Stq1_0))],
        142 => &[Read(Block(GgmlType::Pq2_0))],
        143 => &[Read(Block(GgmlType::Ptq1_0))],
        _ => &[],
    }
}

/// Returns true for ids that other programs use with another meaning. Only an exact size tells them apart.
pub(super) fn ambiguous(id: u32) -> bool {
    matches!(id, 36 | 39..=43 | 134 | 135)
}

/// Names of all types that files have under an id.
pub(super) fn names(id: u32) -> &'static str {
    match id {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        21 => "IQ3_S",
        22 => "IQ2_S",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        29 => "IQ1_M",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        36 => "I2_S or IQ4_NL_4_4",
        37 => "I8_S or IQ4_NL_4_8",
        38 => "TL1 or IQ4_NL_8_8",
        39 => "MXFP4 or TL2",
        40 => "NVFP4, Q2_0C or early Q1_0",
        41 => "Q1_0",
        42 => "Q2_0, PQ2_0 or STQ1_0",
        43 => "STQ1_0",
        134 => "IQ1_BN",
        135 => "IQ2_BN",
        _ => "unknown",
    }
}

/// Advice for a file with tensors of an id without a supported meaning.
pub(super) fn advice(id: u32) -> &'static str {
    match id {
        16..=19 | 21 | 22 | 29 => "codebook types are not supported; convert the original weights",
        _ => "convert the original weights instead",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_of_one_id_never_have_equal_sizes() {
        for id in 0..200 {
            let of = |cols| -> Vec<usize> {
                candidates(id).iter().filter_map(|meaning| meaning.size(3, cols)).collect()
            };
            for cols in (32..4096).step_by(32) {
                let mut sizes = of(cols);
                sizes.sort_unstable();
                assert!(
                    sizes.windows(2).all(|pair| pair[0] < pair[1]),
                    "{id} at {cols}: {sizes:?}"
                );
            }
        }
    }
}
