//! AMX: int8 products of batches, and attention over bf16, in tile registers of 16 × 64 bytes. All else
//! is AVX-512's.
//!
//! A block of packed weights decodes to rows of a weight tile as they stand, a row of activations
//! is a row of an activation tile, so nothing is rearranged.

mod attend;
mod int8;
mod kv;
mod limits;
mod meet;
mod product;
mod ternary;
mod tiles;

use super::avx2::detected;
use super::{Isa, Kernels, avx512};

/// Whether this CPU and its system have what the kernels need.
pub fn available() -> bool {
    avx512::available() && tiles::available()
}

/// The table. Only `Kernels::for_isa` hands it out, after `available`.
pub const KERNELS: Kernels = Kernels {
    isa: Isa::Amx,
    two_bit: detected!(ternary::ternary, w, panels, x, y, scratch),
    int8: detected!(int8::int8, w, panels, x, y, scratch),
    attend: detected!(attend::attend, a, out, scratch),
    kv: kv::KV,
    multiply: detected!(limits::multiply, rounds),
    ..avx512::KERNELS
};
