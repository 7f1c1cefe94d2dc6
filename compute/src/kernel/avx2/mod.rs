//! AVX2 + FMA + F16C.
//!
//! The functions here are safe `#[target_feature]` functions. Their one condition is that the CPU has
//! the features; `Kernels::for_isa` checks it before it hands out the table.

mod attend;
mod float;
mod int8;
mod kv;
mod lanes;
mod limits;
mod row;
mod shared;
pub mod ternary;

use super::{Isa, Kernels};

pub use kv::KV;
pub use lanes::{add_product_one, fetch, prefetch, prefetch_stream, total};

/// Returns true if the CPU has the features of these kernels.
pub fn available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// Wraps a function that needs CPU features in a plain function.
macro_rules! detected {
    ($path:path, $($arg:ident),+) => {
        |$($arg),+| {
            // SAFETY: the table is only reached through `Kernels::for_isa`, which has checked that
            // the CPU has the features.
            unsafe { $path($($arg),+) }
        }
    };
}
pub(super) use detected;

/// [`KERNELS`] with a ternary product that does not skip zeros, under the same condition.
pub const DENSE: Kernels =
    Kernels { two_bit: detected!(ternary::ternary::<false>, w, panels, x, y, scratch), ..KERNELS };

/// The kernel table. Only `Kernels::for_isa` hands it out, after `available`.
pub const KERNELS: Kernels = Kernels {
    isa: Isa::Avx2,
    two_bit: detected!(ternary::ternary::<true>, w, panels, x, y, scratch),
    tight: None,
    int8: detected!(int8::int8, w, panels, x, y, scratch),
    float: detected!(float::float, w, rows, x, y),
    quantize8: detected!(row::quantize8, x, values),
    quantize16: detected!(row::quantize16, x, high, low),
    rms_norm: detected!(row::rms_norm, x, weight, eps, out),
    rope: detected!(row::rope, head, cos, sin),
    silu_mul: detected!(row::silu_mul, gate, up),
    relu2_mul: detected!(row::relu2_mul, gate, up),
    sigmoid_mul: detected!(shared::sigmoid_mul, gate, x),
    within: detected!(row::within, x, bound),
    add: detected!(row::add, x, y),
    hadamard: detected!(shared::hadamard, x, block),
    delta: detected!(shared::delta, rows, state, out, scratch),
    attend: detected!(attend::attend, a, out, scratch),
    kv: KV,
    summarize: detected!(kv::summarize, keys, summary),
    estimate: detected!(kv::estimate, queries, scale, summary),
    sum_exp: detected!(row::sum_exp, logits, max),
    weigh: detected!(row::weigh, logits, max, scale),
    read: detected!(limits::read, lines),
    multiply: detected!(limits::multiply, rounds),
};
