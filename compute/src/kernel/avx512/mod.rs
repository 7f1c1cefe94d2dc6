//! AVX-512 with VNNI. Products of float matrices, RoPE, the cache's types and what looks at pages are
//! AVX2's.

mod arrange;
pub mod attend;
pub mod int8;
pub mod lanes;
mod limits;
mod row;
pub mod ternary;

use super::avx2::{self, detected};
use super::{Isa, Kernels};

/// Whether this CPU has what the kernels need.
pub fn available() -> bool {
    avx2::available()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
}

/// The table. Only `Kernels::for_isa` hands it out, after `available`.
pub const KERNELS: Kernels = Kernels {
    isa: Isa::Avx512,
    two_bit: detected!(ternary::ternary::<false>, w, panels, x, y, scratch),
    int8: detected!(int8::int8, w, panels, x, y, scratch),
    quantize8: detected!(row::quantize8, x, values),
    rms_norm: detected!(row::rms_norm, x, weight, eps, out),
    silu_mul: detected!(row::silu_mul, gate, up),
    relu2_mul: detected!(row::relu2_mul, gate, up),
    add: detected!(row::add, x, y),
    sum_exp: detected!(row::sum_exp, logits, max),
    weigh: detected!(row::weigh, logits, max, scale),
    attend: detected!(attend::attend, a, out, scratch),
    multiply: detected!(limits::multiply, rounds),
    ..avx2::KERNELS
};

/// [`KERNELS`] with large ternary batches by table, under the same condition.
pub const BY_TABLE: Kernels =
    Kernels { two_bit: detected!(ternary::ternary::<true>, w, panels, x, y, scratch), ..KERNELS };

/// The faster of the two on this CPU.
pub fn best() -> Kernels {
    if ternary::lookup::pays() { BY_TABLE } else { KERNELS }
}

/// A table whose ternary product is this set's or builds on it, with the tight layout where the CPU has
/// what that takes: both layouts have the same product.
pub fn tight(table: Kernels) -> Kernels {
    let readable = is_x86_feature_detected!("avx512vbmi");
    Kernels { tight: readable.then_some(table.two_bit), ..table }
}
