//! AMX: int8 products of batches, and attention over bf16, in tile registers of 16 × 64 bytes. All other
//! kernels are those of AVX-512.
//!
//! A block of packed weights decodes to the rows of a weight tile, and a row of activations is a row of
//! an activation tile. So nothing has to be rearranged.

mod attend;
mod bf16_product;
mod int8;
mod kv;
mod limits;
mod product;
mod ternary;
mod tiles;

use super::avx512::{self, Avx512, SingleBits, Vbmi, ternary_product};
use super::simd::{compiled, detected};
use super::{Isa, Kernels, Quantized};
use crate::par::{Columns, Scratch};
use crate::ternary::TernaryMatrix;
use std::ops::Range;

/// Returns true if the CPU and the operating system support these kernels.
pub fn available() -> bool {
    avx512::available() && tiles::available()
}

/// The kernel table. Only `Kernels::for_isa` hands it out, after `available`.
pub const KERNELS: Kernels = Kernels {
    isa: Isa::Amx,
    two_bit: ternary_product!(ternary::ternary::<Avx512>, Avx512),
    tight: Some(ternary_product!(ternary::ternary::<Vbmi>, Vbmi)),
    one_bit: Some(ternary_product!(ternary::ternary::<SingleBits>, SingleBits)),
    int8: detected!(int8::int8, w, panels, x, y, scratch),
    attend: detected!(attend::attend, a, out, scratch),
    kv: kv::KV,
    multiply: detected!(limits::multiply, rounds),
    ..avx512::KERNELS
};
