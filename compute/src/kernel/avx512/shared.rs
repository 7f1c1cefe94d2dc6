//! The kernels that are written once, with 16 lanes.

use super::lanes;
use crate::kernel::delta::{self, DeltaRows};
use crate::kernel::simd::simd;
use crate::kernel::{hadamard as transform, sigmoid};
use crate::par::{Columns, Scratch};

/// Proof that the CPU has these instructions.
#[derive(Clone, Copy)]
pub struct Avx512(());

simd!(Avx512, 16, lanes::Vector, super::lanes, unsafe);

impl Avx512 {
    /// Only functions with these features can call it safely.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    fn new() -> Self {
        Self(())
    }
}

/// See [`transform::hadamard`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub fn hadamard(x: &mut [f32], block: usize) {
    transform::hadamard(Avx512::new(), x, block);
}

/// See [`sigmoid::sigmoid_mul`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub fn sigmoid_mul(gate: &mut [f32], x: &[f32]) {
    sigmoid::sigmoid_mul(Avx512::new(), gate, x);
}

/// See [`delta::delta`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub fn delta(a: &DeltaRows<'_>, state: &mut [f32], out: &mut Columns<'_>, scratch: &mut Scratch) {
    delta::delta(Avx512::new(), a, state, out, scratch);
}
