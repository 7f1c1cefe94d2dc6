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
mod float;
mod int8;
mod lanes;
mod limits;
mod row;
mod shared;
mod ternary;

use super::{Isa, Kernels, exp, finite, kv, scalar};
use scalar::KV;

/// The kernel table of plain SIMD. The compiler vectorizes short loops over floats.
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
    sigmoid_mul: shared::sigmoid_mul,
    within: finite::within,
    add: scalar::add,
    hadamard: shared::hadamard,
    delta: shared::delta,
    attend: attend::attend,
    kv: KV,
    summarize: kv::summarize,
    estimate: kv::estimate,
    sum_exp: exp::sum_exp,
    weigh: exp::weigh,
    read: scalar::read,
    multiply: limits::multiply,
};

/// The kernel table of relaxed SIMD.
#[cfg(feature = "relaxed-simd")]
pub const RELAXED: Kernels =
    Kernels { isa: Isa::RelaxedSimd, two_bit: ternary::relaxed::ternary, ..KERNELS };
