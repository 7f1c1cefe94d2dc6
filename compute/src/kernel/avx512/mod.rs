//! AVX-512 with VNNI. Products of float matrices, KV codecs and page summaries are those of AVX2.

mod arrange;
pub mod attend;
pub mod int8;
pub mod lanes;
mod limits;
pub mod ternary;

use super::avx2;
use super::simd::{compiled, detected, kernels, simd};
use super::{Isa, Kernels, Quantized};
use crate::par::{Columns, Scratch};
use crate::ternary::TernaryMatrix;
use std::arch::x86_64::{__m512, __m512i};
use std::ops::Range;

/// Proof that the CPU has these instructions.
#[derive(Clone, Copy)]
pub struct Avx512(());

simd!(Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", [__m512, __m512i; 16], wide: lanes::Wide, chains: 4, registers: 32, lanes, unsafe);

impl Avx512 {
    /// Only functions with these features can call it safely.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    pub fn new() -> Self {
        Self(())
    }
}

/// Proof that the CPU has VBMI, too.
#[derive(Clone, Copy)]
pub struct Vbmi(Avx512);

simd!(Vbmi, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi", [__m512, __m512i; 16], wide: lanes::Wide, chains: 4, registers: 32, lanes, unsafe);

impl Vbmi {
    /// Only functions with these features can call it safely.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    pub fn new() -> Self {
        Self(Avx512::new())
    }

    /// Returns the proof of the set without VBMI.
    pub fn base(self) -> Avx512 {
        self.0
    }
}

/// Proof of the same instructions, for the one-bit layout.
#[derive(Clone, Copy)]
pub struct SingleBits(Avx512);

simd!(SingleBits, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", [__m512, __m512i; 16], wide: lanes::Wide, chains: 4, registers: 32, lanes, unsafe);

impl SingleBits {
    /// Only functions with these features can call it safely.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub fn new() -> Self {
        Self(Avx512::new())
    }
}

/// Builds the pointer to a ternary product, with the instructions of a layout of codes.
macro_rules! ternary_product {
    ($function:path, Avx512) => {
        ternary_product!($function, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", Avx512::new())
    };
    ($function:path, SingleBits) => {
        ternary_product!($function, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", SingleBits::new())
    };
    ($function:path, Vbmi) => {
        ternary_product!($function, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi", Vbmi::new())
    };
    ($function:path, $features:literal, $token:expr) => {
        compiled!($features, [unsafe], $function,
            (w: &TernaryMatrix, panels: Range<usize>, x: &Quantized<'_>, y: &mut Columns<'_>,
             scratch: &mut Scratch) -> (), $token)
    };
}
pub(super) use ternary_product;

/// Returns true if the CPU has the features of these kernels.
pub fn available() -> bool {
    avx2::available()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
}

/// The kernel table. Only `Kernels::for_isa` hands it out, after `available`.
pub const KERNELS: Kernels = kernels!(
    "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c", [unsafe], Avx512::new(), {
    isa: Isa::Avx512,
    two_bit: ternary_product!(ternary::ternary::<Avx512, false>, Avx512),
    tight: Some(ternary_product!(ternary::ternary::<Vbmi, false>, Vbmi)),
    one_bit: Some(ternary_product!(ternary::ternary::<SingleBits, false>, SingleBits)),
    int8: detected!(int8::int8, w, panels, x, y, scratch),
    attend: detected!(attend::attend, a, out, scratch),
    multiply: detected!(limits::multiply, rounds),
    ..avx2::KERNELS
});

/// [`KERNELS`] with lookup tables for large ternary batches, under the same condition.
pub const BY_TABLE: Kernels = Kernels {
    two_bit: ternary_product!(ternary::ternary::<Avx512, true>, Avx512),
    tight: Some(ternary_product!(ternary::ternary::<Vbmi, true>, Vbmi)),
    one_bit: Some(ternary_product!(ternary::ternary::<SingleBits, true>, SingleBits)),
    ..KERNELS
};

/// Returns the table that is faster on this CPU.
pub fn best() -> Kernels {
    if ternary::lookup::is_faster() { BY_TABLE } else { KERNELS }
}

/// Returns a table without the tight layout if the CPU lacks VBMI.
pub fn supported(table: Kernels) -> Kernels {
    let has_vbmi = is_x86_feature_detected!("avx512vbmi");
    Kernels { tight: table.tight.filter(|_| has_vbmi), ..table }
}
