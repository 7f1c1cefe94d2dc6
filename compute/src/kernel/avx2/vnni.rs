//! AVX2 with AVX-VNNI: products of int8 that are added in 32 bits by one instruction, where AVX2 takes two
//! or three. Everything else is AVX2.
//!
//! The cargo feature `evex-vnni` encodes these instructions as AVX-512 VL does. It exists to time the
//! kernels on a CPU that has AVX-512 and no AVX-VNNI.

use super::int8::{Strip, chain, fetch, half, pair_dot};
use super::lanes::{self, and, right2, splat_byte};
use super::ternary::{AHEAD, BatchDot};
use super::{Avx2, detected, int8, ternary};
use crate::kernel::Quantized;
use crate::kernel::byte_dot::byte_dot;
use crate::kernel::one_bit::OneBitDot;
use crate::kernel::simd::simd;
use crate::kernel::{Isa, Kernels};
use crate::matrix::{Int8Panel, Int8View};
use crate::par::{Columns, Scratch};
use crate::ternary::TernaryMatrix;
use std::arch::x86_64::*;
use std::hint::black_box;
use std::ops::Range;

/// Defines functions with the features of these kernels; generic parameters stand in brackets.
macro_rules! vnni {
    ($($(#[$doc:meta])* fn $name:ident[$($generic:tt)*]($($args:tt)*) -> $out:ty $body:block)*) => {$(
        $(#[$doc])*
        #[inline]
        #[cfg_attr(not(feature = "evex-vnni"), target_feature(enable = "avx2,fma,f16c,avxvnni"))]
        #[cfg_attr(
            feature = "evex-vnni",
            target_feature(enable = "avx2,fma,f16c,avx512vnni,avx512vl")
        )]
        fn $name<$($generic)*>($($args)*) -> $out $body
    )*};
}

/// Proof that the CPU has these instructions.
#[derive(Clone, Copy)]
pub struct AvxVnni(Avx2);

#[cfg(not(feature = "evex-vnni"))]
simd!(AvxVnni, "avx2,fma,f16c,avxvnni", [__m256, __m256i; 8], wide: lanes::Wide, chains: 2, registers: 16, lanes, unsafe);
#[cfg(feature = "evex-vnni")]
simd!(AvxVnni, "avx2,fma,f16c,avx512vnni,avx512vl", [__m256, __m256i; 8], wide: lanes::Wide, chains: 2, registers: 16, lanes, unsafe);

impl AvxVnni {
    vnni! {
        /// Only functions with these features can call it safely.
        fn new[]() -> Self {
            Self(Avx2::new())
        }
    }
}

/// Returns true if the CPU has the features of these kernels.
pub fn available() -> bool {
    let vnni = if cfg!(feature = "evex-vnni") {
        is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl")
    } else {
        is_x86_feature_detected!("avxvnni")
    };
    super::available() && vnni
}

/// [`KERNELS`] with a ternary product that does not skip zeros, under the same condition.
pub const DENSE: Kernels =
    Kernels { two_bit: detected!(ternary_product::<false>, w, panels, x, y, scratch), ..KERNELS };

/// The kernel table. Only `Kernels::for_isa` hands it out, after `available`.
pub const KERNELS: Kernels = Kernels {
    isa: Isa::AvxVnni,
    two_bit: detected!(ternary_product::<true>, w, panels, x, y, scratch),
    one_bit: Some(detected!(ternary_product::<false>, w, panels, x, y, scratch)),
    int8: detected!(product, w, panels, x, y, scratch),
    multiply: detected!(multiply, rounds),
    ..super::KERNELS
};

vnni! {
    /// As AVX2's function.
    fn ternary_product[const SKIPS: bool](
        w: &TernaryMatrix,
        panels: Range<usize>,
        x: &Quantized<'_>,
        y: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) -> () {
        ternary::product::<_, SKIPS>(AvxVnni::new(), w, panels, (x, y), scratch);
    }

    /// See the scalar definition.
    fn product[](
        w: Int8View<'_>,
        panels: Range<usize>,
        x: &Quantized<'_>,
        y: &mut Columns<'_>,
        scratch: &mut Scratch,
    ) -> () {
        int8::product(AvxVnni::new(), w, panels, (x, y), scratch);
    }

    /// Adds the products of four bytes of `a`, which are not negative, and `b` to each sum.
    fn add_quads[](sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        #[cfg(not(feature = "evex-vnni"))]
        return _mm256_dpbusd_avx_epi32(sum, a, b);
        #[cfg(feature = "evex-vnni")]
        return _mm256_dpbusd_epi32(sum, a, b);
    }

    /// Adds the products of pairs of 16-bit numbers to sums.
    fn add_pairs[](sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        #[cfg(not(feature = "evex-vnni"))]
        return _mm256_dpwssd_avx_epi32(sum, a, b);
        #[cfg(feature = "evex-vnni")]
        return _mm256_dpwssd_epi32(sum, a, b);
    }

    fn widen[](sum: __m256i) -> __m256i {
        sum
    }

    /// Computes `rounds` times twelve vectors of 32 int8 products.
    fn multiply[](rounds: usize) -> u64 {
        let (weights, x) = black_box((_mm256_set1_epi8(1), _mm256_set1_epi8(3)));
        let mut sums = [_mm256_setzero_si256(); 12];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = add_quads(*sum, weights, x);
            }
        }
        black_box(sums);
        12 * 32 * rounds as u64
    }
}

impl BatchDot for AvxVnni {
    // A product by multiplication takes half of the time that it takes in AVX2.
    const LOOKUP_FROM: usize = 28;

    #[inline(always)]
    fn base(self) -> Avx2 {
        self.0
    }
}

impl OneBitDot for AvxVnni {
    // Of 4 columns · 128 · 8 · 32 blocks, 32-bit sums hold all.
    const STEPS: usize = 32;
    const BITS: [usize; 5] = [4, 4, 2, 2, 1];
    const PANELS: usize = 1;
    const AHEAD: usize = AHEAD;
}

// Sums of 16 columns · 3 · 128 fit 32 bits for 349,525 blocks.
byte_dot!(AvxVnni, crate::kernel::avx2::vnni, chunk: 1 << 18, ahead: AHEAD, chains: [1; 9], unsafe);

#[cfg(not(feature = "evex-vnni"))]
pair_dot!(AvxVnni, "avx2,fma,f16c,avxvnni", add_pairs, chains: 4);
#[cfg(feature = "evex-vnni")]
pair_dot!(AvxVnni, "avx2,fma,f16c,avx512vnni,avx512vl", add_pairs, chains: 4);
