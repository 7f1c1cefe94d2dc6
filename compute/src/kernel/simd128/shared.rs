//! The kernels that are written once, with 4 lanes.

use super::lanes;
use crate::kernel::delta::{self, DeltaRows};
use crate::kernel::simd::simd;
use crate::kernel::{hadamard as transform, sigmoid};
use crate::par::{Columns, Scratch};

/// The token of plain SIMD, which a module's target has.
#[derive(Clone, Copy)]
struct Simd128;

simd!(Simd128, 4, lanes::Vector, super::lanes);

/// See [`transform::hadamard`].
pub fn hadamard(x: &mut [f32], block: usize) {
    transform::hadamard(Simd128, x, block);
}

/// See [`sigmoid::sigmoid_mul`].
pub fn sigmoid_mul(gate: &mut [f32], x: &[f32]) {
    sigmoid::sigmoid_mul(Simd128, gate, x);
}

/// See [`delta::delta`].
pub fn delta(a: &DeltaRows<'_>, state: &mut [f32], out: &mut Columns<'_>, scratch: &mut Scratch) {
    delta::delta(Simd128, a, state, out, scratch);
}
