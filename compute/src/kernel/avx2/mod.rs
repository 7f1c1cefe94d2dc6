//! AVX2 + FMA + F16C.
//!
//! The functions here are safe `#[target_feature]` functions. Their one condition is that the CPU has
//! the features; `Kernels::for_isa` checks it before it hands out the table.

mod attend;
mod int8;
pub mod lanes;
mod limits;
pub mod ternary;
pub mod vnni;

use super::kv::{self, codecs};
use super::simd::{compiled, detected, kernels, simd};
use super::{Isa, Kernels, KvCodec, KvType, float};
use crate::matrix::FloatMatrix;
use crate::par::Columns;
use std::arch::x86_64::{__m256, __m256i};
use std::ops::Range;

pub use lanes::{add_product_one, fetch, prefetch, prefetch_second, prefetch_stream, total};

/// Proof that the CPU has these instructions.
#[derive(Clone, Copy)]
pub struct Avx2(());

simd!(Avx2, "avx2,fma,f16c", [__m256, __m256i; 8], wide: lanes::Wide, chains: 2, registers: 16, lanes, unsafe);

impl Avx2 {
    /// Only functions with these features can call it safely.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn new() -> Self {
        Self(())
    }
}

/// Returns true if the CPU has the features of these kernels.
pub fn available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// [`KERNELS`] with a ternary product that does not skip zeros, under the same condition.
pub const DENSE: Kernels =
    Kernels { two_bit: detected!(ternary::ternary::<false>, w, panels, x, y, scratch), ..KERNELS };

macro_rules! codec {
    ($element:ident) => {
        KvCodec {
            write_key: compiled!("avx2,fma,f16c", [unsafe], kv::write_key::<$element>,
                (x: &[f32], codes: &mut [u8], slot: usize) -> f32),
            write_value: compiled!("avx2,fma,f16c", [unsafe], kv::write_value::<$element>,
                (x: &[f32], codes: &mut [u8], slot: usize) -> f32),
            keys: compiled!("avx2,fma,f16c", [unsafe], kv::keys::<$element>,
                (codes: &[u8], scales: &[f32], out: &mut [f32]) -> ()),
            values: compiled!("avx2,fma,f16c", [unsafe], kv::values::<$element>,
                (codes: &[u8], scales: &[f32], out: &mut [f32]) -> ()),
            plain: true,
        }
    };
}

/// See [`KvCodec`].
pub const KV: [KvCodec; KvType::COUNT] = codecs!(codec);

/// The kernel table. Only `Kernels::for_isa` hands it out, after `available`.
pub const KERNELS: Kernels = kernels!("avx2,fma,f16c", [unsafe], Avx2::new(), {
    isa: Isa::Avx2,
    two_bit: detected!(ternary::ternary::<true>, w, panels, x, y, scratch),
    tight: None,
    one_bit: Some(detected!(ternary::ternary::<false>, w, panels, x, y, scratch)),
    int8: detected!(int8::int8, w, panels, x, y, scratch),
    float: compiled!("avx2,fma,f16c", [unsafe], float::float,
        (w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) -> (), Avx2::new()),
    attend: detected!(attend::attend, a, out, scratch),
    kv: KV,
    summarize: compiled!("avx2,fma,f16c", [unsafe], kv::summarize,
        (keys: &[f32], summary: &mut [f32]) -> ()),
    estimate: compiled!("avx2,fma,f16c", [unsafe], kv::estimate,
        (queries: &[f32], scale: f32, summary: &[f32]) -> f32),
    read: detected!(limits::read, lines),
    multiply: detected!(limits::multiply, rounds),
});
