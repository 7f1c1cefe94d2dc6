//! WebAssembly's 128-bit SIMD, and the ternary product of its relaxed extension.
//!
//! A module with these instructions does not start on an engine without them, so there is nothing to
//! detect at run time. The page that loads a module chooses one that the engine supports.
//!
//! Of the relaxed instructions only the integer dot product is used. Its results are the same on every
//! engine for the operands used here. Relaxed multiply-adds may round once or twice, so a model's tokens
//! would depend on the user's CPU.
//!
//! In a module with relaxed instructions the compiler also generates some by itself: `pmin` and `pmax`,
//! also written as comparison and selection, become `relaxed_min` and `relaxed_max`, whose result for NaN
//! is undefined. Where that matters, integers are compared instead.

mod attend;
mod int8;
mod lanes;
mod limits;
mod ternary;

use super::simd::{kernels, simd};
use super::{Isa, Kernels, float, kv, scalar};
use crate::matrix::FloatMatrix;
use crate::par::Columns;
use scalar::KV;
use std::arch::wasm32::v128;
use std::ops::Range;

/// The token of plain SIMD, which a module's target has.
#[derive(Clone, Copy)]
struct Simd128;

simd!(Simd128, "simd128", [v128, v128; 4], wide: lanes::Wide, chains: 4, registers: 16, lanes);

/// The kernel table of plain SIMD. The compiler vectorizes short loops over floats.
pub const KERNELS: Kernels = kernels!("simd128", [], Simd128, {
    isa: Isa::Simd128,
    two_bit: ternary::ternary,
    tight: None,
    one_bit: Some(ternary::one_bit),
    int8: int8::int8,
    float: compiled!("simd128", [], float::float,
        (w: &FloatMatrix, rows: Range<usize>, x: &[f32], y: &mut Columns<'_>) -> (), Simd128),
    attend: attend::attend,
    kv: KV,
    summarize: kv::summarize,
    estimate: kv::estimate,
    read: scalar::read,
    multiply: limits::multiply,
});

/// The kernel table of relaxed SIMD.
#[cfg(feature = "relaxed-simd")]
pub const RELAXED: Kernels = Kernels {
    isa: Isa::RelaxedSimd,
    two_bit: ternary::relaxed::ternary,
    one_bit: Some(ternary::relaxed::one_bit),
    ..KERNELS
};
