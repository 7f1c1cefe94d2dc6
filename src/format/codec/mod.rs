//! Foreign weight layouts ↔ ours, one small file each. Decoding keeps every weight exactly (but
//! for Q4_K, which becomes f16);
//! the encoders exist so that tests can go there and back and compare bytes.

mod absmean;
mod base3;
mod block;
mod hf_packed;
mod i2s;
mod int8;
mod q4_k;
mod two_bit;

pub use absmean::quantize_master;
pub use base3::{PTQ1_0, TQ1_0};
pub use block::TernaryBlocks;
pub use hf_packed::{decode_hf_packed, encode_hf_packed};
pub(super) use i2s::size as i2s_size;
pub use i2s::{I2S_TRAILER, decode_i2s, encode_i2s};
pub use int8::{Int8Blocks, Q4_0, Q6_K, Q8_0};
pub use q4_k::decode_q4_k;
pub(super) use q4_k::size as q4_k_size;
pub use two_bit::{PQ2_0, Q2_0, TQ2_0};

/// Which row of the file becomes row `r` of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// The same.
    Same,
    /// The file pairs neighbors for RoPE (mainline GGUF of the llama family), we pair the first
    /// half of a head with the second.
    Interleaved {
        /// Rows of a head; even.
        head_dim: usize,
    },
}

impl RowOrder {
    /// The row of the file that becomes row `row`.
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
