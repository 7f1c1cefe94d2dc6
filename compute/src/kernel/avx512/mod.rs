//! AVX-512 with VNNI. Products of float matrices, RoPE, KV codecs and page summaries are those of AVX2.

mod arrange;
pub mod attend;
pub mod int8;
pub mod lanes;
mod limits;
mod row;
mod shared;
pub mod ternary;

use super::avx2::{self, detected};
use super::{Isa, Kernels};

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
pub const KERNELS: Kernels = Kernels {
    isa: Isa::Avx512,
    two_bit: detected!(ternary::ternary::<false>, w, panels, x, y, scratch),
    int8: detected!(int8::int8, w, panels, x, y, scratch),
    quantize8: detected!(row::quantize8, x, values),
    rms_norm: detected!(row::rms_norm, x, weight, eps, out),
    silu_mul: detected!(row::silu_mul, gate, up),
    relu2_mul: detected!(row::relu2_mul, gate, up),
    sigmoid_mul: detected!(shared::sigmoid_mul, gate, x),
    within: detected!(row::within, x, bound),
    add: detected!(row::add, x, y),
    hadamard: detected!(shared::hadamard, x, block),
    delta: detected!(shared::delta, rows, state, out, scratch),
    sum_exp: detected!(row::sum_exp, logits, max),
    weigh: detected!(row::weigh, logits, max, scale),
    attend: detected!(attend::attend, a, out, scratch),
    multiply: detected!(limits::multiply, rounds),
    ..avx2::KERNELS
};

/// [`KERNELS`] with lookup tables for large ternary batches, under the same condition.
pub const BY_TABLE: Kernels =
    Kernels { two_bit: detected!(ternary::ternary::<true>, w, panels, x, y, scratch), ..KERNELS };

/// Returns the table that is faster on this CPU.
pub fn best() -> Kernels {
    if ternary::lookup::is_faster() { BY_TABLE } else { KERNELS }
}

/// Adds the tight layout to a table whose ternary product is that of AVX-512 or calls it, if the CPU has
/// VBMI. Both layouts have the same product.
pub fn tight(table: Kernels) -> Kernels {
    let has_vbmi = is_x86_feature_detected!("avx512vbmi");
    Kernels { tight: has_vbmi.then_some(table.two_bit), ..table }
}
