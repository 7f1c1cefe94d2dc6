//! AVX-512 with VNNI. Integer products are its own; what is bound by memory or small is AVX2's.

mod attend;
pub mod int8;
mod lanes;
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
    ternary: detected!(ternary::ternary, w, panels, x, y, scratch),
    int8: detected!(int8::int8, w, panels, x, y, scratch),
    attend: detected!(attend::attend, a, out, scratch),
    ..avx2::KERNELS
};
