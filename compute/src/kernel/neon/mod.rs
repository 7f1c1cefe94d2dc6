//! NEON, and its extensions for products of 8-bit integers.
//!
//! This module is compiled for targets that have NEON. The extensions are detected; a token
//! (`instructions`) proves that the CPU has one.

mod attend;
mod instructions;
mod int8;
mod lanes;
mod limits;
mod multiply;
mod strips;
mod ternary;

use super::simd::{detected, kernels, simd};
use super::{Isa, Kernels, float, kv, scalar};
use crate::matrix::FloatMatrix;
use crate::par::Columns;
use instructions::{DotProd, I8mm};
use scalar::KV;
use std::arch::aarch64::{float32x4_t, int32x4_t};
use std::ops::Range;

/// Returns the kernels with the dot product, if the CPU has it.
pub fn dotprod() -> Option<Kernels> {
    std::arch::is_aarch64_feature_detected!("dotprod").then_some(DOTPROD)
}

/// Returns the kernels with the matrix product, if the CPU has it.
pub fn i8mm() -> Option<Kernels> {
    (dotprod().is_some() && std::arch::is_aarch64_feature_detected!("i8mm")).then_some(I8MM)
}

/// Builds a function pointer to a function that needs NEON and a token.
macro_rules! with {
    ($path:path, $token:expr; $($arg:ident),+) => {
        |$($arg),+| {
            // SAFETY: the target has NEON, and a table with a token is only handed out after the
            // CPU's features have been checked.
            unsafe { $path($token, $($arg),+) }
        }
    };
}

/// The token of NEON, which the target has.
#[derive(Clone, Copy)]
struct Neon;

/// Implements [`Simd`](super::simd::Simd) for a token by the functions of NEON.
macro_rules! neon {
    ($($token:ty),+) => {$(
        simd!($token, "neon", [float32x4_t, int32x4_t; 4], wide: lanes::Wide, chains: 4, registers: 32,
            lanes, unsafe);
    )+};
}
neon!(Neon, DotProd, I8mm);

/// The kernel table of plain NEON. The compiler vectorizes short loops over floats.
pub const KERNELS: Kernels = kernels!("neon", [unsafe], Neon, {
    isa: Isa::Neon,
    two_bit: with!(ternary::ternary, Neon; w, panels, x, y, scratch),
    one_bit: Some(with!(ternary::one_bit, Neon; w, panels, x, y, scratch)),
    tight: None,
    int8: with!(int8::int8, Neon; w, panels, x, y, scratch),
    float: compiled!("neon", [unsafe], float::float,
        (w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) -> (), Neon),
    attend: detected!(attend::attend, a, out, scratch),
    kv: KV,
    summarize: kv::summarize,
    estimate: kv::estimate,
    read: scalar::read,
    multiply: detected!(limits::base, rounds),
});

/// [`KERNELS`] with the dot product.
const DOTPROD: Kernels = Kernels {
    isa: Isa::DotProd,
    two_bit: with!(ternary::ternary, DotProd::new(); w, panels, x, y, scratch),
    one_bit: Some(with!(ternary::one_bit, DotProd::new(); w, panels, x, y, scratch)),
    int8: with!(int8::int8, DotProd::new(); w, panels, x, y, scratch),
    multiply: with!(limits::dotprod, DotProd::new(); rounds),
    ..KERNELS
};

/// [`KERNELS`] with the matrix product.
const I8MM: Kernels = Kernels {
    isa: Isa::I8mm,
    two_bit: with!(ternary::ternary, I8mm::new(); w, panels, x, y, scratch),
    one_bit: Some(with!(ternary::one_bit, I8mm::new(); w, panels, x, y, scratch)),
    int8: with!(int8::int8, I8mm::new(); w, panels, x, y, scratch),
    multiply: with!(limits::i8mm, I8mm::new(); rounds),
    ..KERNELS
};
