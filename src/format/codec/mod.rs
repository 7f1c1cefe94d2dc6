//! Converts weight layouts of other programs to and from the kernels' own, one file per layout.
//!
//! Decoding keeps every weight exactly, except for formats with offsets, whose weights become f16.
//! Encoders write the types that `convert --to gguf` offers.
//!
//! ```
//! use wrinklefree::format::codec::{RowOrder, TQ2_0};
//!
//! // One row of 256 weights: 64 bytes of two-bit codes, then an f16 scale of 1.0.
//! let mut block = [0b10_01_00_01; 66];
//! block[64..].copy_from_slice(&0x3c00u16.to_le_bytes());
//! let matrix = TQ2_0.decode(&block, 1, 256, RowOrder::Same)?;
//! assert_eq!(TQ2_0.encode(&matrix).unwrap(), block);
//! # Ok::<(), wrinklefree::matrix::LayoutError>(())
//! ```

mod absmean;
mod base3;
mod block;
mod hf_packed;
mod i2s;
mod int8;
mod one_bit;
mod rounded;
mod row_scaled;
mod two_bit;

pub use absmean::quantize_absmean;
pub use base3::{PTQ1_0, TQ1_0};
pub use block::TernaryBlockFormat;
pub use hf_packed::{decode_hf_packed, encode_hf_packed};
pub(super) use i2s::size as i2s_size;
pub use i2s::{I2S_TRAILER, decode_i2s, encode_i2s};
pub use int8::{IQ4_NL, IQ4_XS, IntBlockFormat, MXFP4, Q3_K, Q4_0, Q5_0, Q6_K, Q8_0};
pub use one_bit::{Q1_0, STQ1_0};
pub use rounded::{Q2_K, Q4_1, Q4_K, Q5_1, Q5_K, RoundedBlockFormat};
pub use row_scaled::{IQ1_BN, IQ2_BN, RowScaledFormat};
pub use two_bit::{PQ2_0, Q2_0, TQ2_0};

/// Bytes of a matrix in blocks of `weights` weights and `bytes` bytes; `None` if it is too large or its
/// rows are not whole blocks.
fn size_in_blocks((weights, bytes): (usize, usize), rows: usize, cols: usize) -> Option<usize> {
    cols.is_multiple_of(weights).then_some(())?;
    rows.checked_mul(cols / weights)?.checked_mul(bytes)
}

/// Order of a matrix's rows in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// The order of the model.
    Same,
    /// RoPE pairs are neighbors, as in mainline GGUF of the llama family. In the model, the first half
    /// of a head pairs with the second.
    Interleaved {
        /// Number of rows of a head; even.
        head_dim: usize,
    },
}

impl RowOrder {
    /// The row of the file that becomes row `row` of the matrix.
    pub fn source(self, row: usize) -> usize {
        match self {
            Self::Same => row,
            Self::Interleaved { head_dim } => {
                let (head, i, half) = (row / head_dim, row % head_dim, head_dim / 2);
                head * head_dim + i % half * 2 + i / half
            }
        }
    }
}

/// Returns the f16 number at a byte.
fn half_at(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
