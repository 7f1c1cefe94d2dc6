//! The sigmoid gate.

use super::scalar::Scalar;
use super::simd::Simd;

/// Computes gate = σ(gate) · x.
#[inline(always)]
pub fn sigmoid_mul<S: Simd>(s: S, gate: &mut [f32], x: &[f32]) {
    let whole = gate.len() / S::LANES * S::LANES;
    let ((gate, gate_rest), (x, x_rest)) = (gate.split_at_mut(whole), x.split_at(whole));
    vectors(s, gate, x);
    vectors(Scalar, gate_rest, x_rest);
}

#[inline(always)]
fn vectors<S: Simd>(s: S, gate: &mut [f32], x: &[f32]) {
    for (gate, x) in S::arrays_mut(gate).iter_mut().zip(S::arrays(x)) {
        let negative = s.sub(s.splat(0.0), s.load(gate));
        s.store(gate, s.div(s.load(x), s.add(s.splat(1.0), s.exp(negative))));
    }
}
