//! Formats of converted models.

use clap::ValueEnum;
use serde::Serialize;
use std::path::Path;
use wrinklefree::format::{GgmlType, HeadType};

/// A format that `convert` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// One safetensors file in kernel layout, which loads at once
    Packed,
    /// A GGUF file with tokenizer and chat template
    Gguf,
    /// A directory as `transformers` reads it
    Hf,
}

impl Target {
    /// The format that a name asks for.
    pub fn of(output: &Path) -> Self {
        match output.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("gguf") => Self::Gguf,
            _ => Self::Packed,
        }
    }
}

/// Precision of the output head.
#[derive(Clone, Copy, ValueEnum)]
pub enum Head {
    /// 16-bit floats
    F16,
    /// 8-bit integers: with a scale per row, in GGUF as Q8_0
    Q8,
}

impl From<Head> for HeadType {
    fn from(head: Head) -> Self {
        match head {
            Head::F16 => Self::F16,
            Head::Q8 => Self::Q8,
        }
    }
}

/// Type of ternary matrices in GGUF.
#[derive(Clone, Copy, ValueEnum)]
pub enum TernaryType {
    /// 1.69 bits, blocks of 256
    #[value(name = "TQ1_0")]
    Tq1_0,
    /// 2.06 bits, blocks of 256
    #[value(name = "TQ2_0")]
    Tq2_0,
    /// 2.25 bits, blocks of 64
    #[value(name = "Q2_0")]
    Q2_0,
    /// 2.13 bits, blocks of 128 (Bonsai)
    #[value(name = "PQ2_0")]
    Pq2_0,
    /// 1.75 bits, blocks of 128 (Bonsai)
    #[value(name = "PTQ1_0")]
    Ptq1_0,
    /// 2 bits, one scale for a matrix (bitnet.cpp)
    #[value(name = "I2_S")]
    I2S,
    /// 1.13 bits, blocks of 128 without zeros (one-bit Bonsai)
    #[value(name = "Q1_0")]
    Q1_0,
    /// 1.31 bits, blocks of 256 with one zero in four weights (Hy-MT2)
    #[value(name = "STQ1_0")]
    Stq1_0,
}

impl From<TernaryType> for GgmlType {
    fn from(kind: TernaryType) -> Self {
        match kind {
            TernaryType::Tq1_0 => Self::Tq1_0,
            TernaryType::Tq2_0 => Self::Tq2_0,
            TernaryType::Q2_0 => Self::Q2_0,
            TernaryType::Pq2_0 => Self::Pq2_0,
            TernaryType::Ptq1_0 => Self::Ptq1_0,
            TernaryType::I2S => Self::I2S,
            TernaryType::Q1_0 => Self::Q1_0,
            TernaryType::Stq1_0 => Self::Stq1_0,
        }
    }
}
