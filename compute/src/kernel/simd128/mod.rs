//! WebAssembly's 128-bit SIMD, and the ternary product of its relaxed extension.
//!
//! A module either has these instructions or does not start: there is nothing to detect. What is
//! compiled in is what may run, and whoever loads a module chooses one that the engine takes.
//!
//! Of the relaxed instructions only the integer dot product is used, whose results are the same on
//! every engine for the operands it gets. Relaxed multiply-adds round as the machine pleases, once
//! or twice: a model's tokens would depend on the reader's processor.
//!
//! The compiler writes relaxed instructions of its own accord, in all of a module that has any:
//! `pmin` and `pmax`, also in the form of a comparison and a choice, become `relaxed_min` and
//! `relaxed_max`, which do as they please with NaN. Where that matters, ints are compared.

mod attend;
mod float;
mod int8;
mod lanes;
mod limits;
mod row;
mod ternary;

use super::{Isa, Kernels, exp, kv, scalar};
use scalar::KV;

/// The table of plain SIMD. Short loops over floats are left to the compiler.
pub const KERNELS: Kernels = Kernels {
    isa: Isa::Simd128,
    two_bit: ternary::ternary,
    tight: None,
    int8: int8::int8,
    float: float::float,
    quantize8: row::quantize8,
    quantize16: row::quantize16,
    rms_norm: row::rms_norm,
    rope: scalar::rope,
    silu_mul: row::silu_mul,
    relu2_mul: row::relu2_mul,
    add: scalar::add,
    attend: attend::attend,
    kv: KV,
    summarize: kv::summarize,
    estimate: kv::estimate,
    sum_exp: exp::sum_exp,
    weigh: exp::weigh,
    read: scalar::read,
    multiply: limits::multiply,
};

/// The table of relaxed SIMD.
#[cfg(feature = "relaxed-simd")]
pub const RELAXED: Kernels =
    Kernels { isa: Isa::RelaxedSimd, two_bit: ternary::relaxed::ternary, ..KERNELS };
