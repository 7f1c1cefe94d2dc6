//! Kernels over single rows, for vectors of any length. Numbers that fill no vector are computed one by
//! one.

use super::finite::norm_factor;
use super::scalar::{Scalar, row};
use super::simd::Simd;

/// Number of vectors whose integers fill a vector of bytes.
const QUAD: usize = 4;
/// Most independent sums; see [`Simd::CHAINS`].
const MOST_CHAINS: usize = 4;

/// An operation on two numbers of the same place in two rows.
trait Pairwise {
    fn of<S: Simd>(s: S, x: S::Vector, y: S::Vector) -> S::Vector;
}

/// Computes x = f(x, y).
#[inline(always)]
fn update<S: Simd, F: Pairwise>(s: S, x: &mut [f32], y: &[f32]) {
    let whole = x.len() / S::LANES * S::LANES;
    let ((x, x_rest), (y, y_rest)) = (x.split_at_mut(whole), y.split_at(whole));
    update_vectors::<S, F>(s, x, y);
    update_vectors::<Scalar, F>(Scalar, x_rest, y_rest);
}

#[inline(always)]
fn update_vectors<S: Simd, F: Pairwise>(s: S, x: &mut [f32], y: &[f32]) {
    for (x, y) in S::arrays_mut(x).iter_mut().zip(S::arrays(y)) {
        s.store(x, F::of(s, s.load(x), s.load(y)));
    }
}

/// Defines a kernel that updates a row from another one.
macro_rules! pairwise {
    ($(#[$doc:meta])* $name:ident, $operation:ident, |$s:ident, $x:ident, $y:ident| $value:expr) => {
        struct $operation;

        impl Pairwise for $operation {
            #[inline(always)]
            fn of<S: Simd>($s: S, $x: S::Vector, $y: S::Vector) -> S::Vector {
                $value
            }
        }

        $(#[$doc])*
        #[inline(always)]
        pub fn $name<S: Simd>(s: S, x: &mut [f32], y: &[f32]) {
            update::<S, $operation>(s, x, y);
        }
    };
}

pairwise! {
    /// Computes x += y.
    add, Add, |s, x, y| s.add(x, y)
}
pairwise! {
    /// Computes gate = gate · σ(gate) · up.
    silu_mul, SiluMul, |s, gate, up| s.mul(s.silu(gate), up)
}
pairwise! {
    /// Computes gate = max(gate, 0)² · up; NaN stays.
    relu2_mul, Relu2Mul, |s, gate, up| {
        let r = s.rectified(gate);
        s.mul(s.mul(r, r), up)
    }
}
pairwise! {
    /// Computes gate = σ(gate) · x.
    sigmoid_mul, SigmoidMul, |s, gate, x| {
        let negative = s.sub(s.splat(0.0), gate);
        s.div(x, s.add(s.splat(1.0), s.exp(negative)))
    }
}

/// Applies the rotary embedding; see the scalar definition.
#[inline(always)]
pub fn rope<S: Simd>(s: S, head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let whole = cos.len() / S::LANES * S::LANES;
    let (a, b) = head.split_at_mut(cos.len());
    let ((a, a_rest), (b, b_rest)) = (a.split_at_mut(whole), b.split_at_mut(whole));
    let ((cos, cos_rest), (sin, sin_rest)) = (cos.split_at(whole), sin.split_at(whole));
    rotate(s, [a, b], [cos, sin]);
    rotate(Scalar, [a_rest, b_rest], [cos_rest, sin_rest]);
}

#[inline(always)]
fn rotate<S: Simd>(s: S, [a, b]: [&mut [f32]; 2], [cos, sin]: [&[f32]; 2]) {
    let (a, b) = (S::arrays_mut(a), S::arrays_mut(b));
    for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(S::arrays(cos)).zip(S::arrays(sin)) {
        let (x, y, cos, sin) = (s.load(a), s.load(b), s.load(cos), s.load(sin));
        // Not fused, so that all instruction sets give the same bits.
        s.store(a, s.sub(s.mul(x, cos), s.mul(y, sin)));
        s.store(b, s.add(s.mul(y, cos), s.mul(x, sin)));
    }
}

/// Computes RMSNorm; see the scalar definition.
#[inline(always)]
pub fn rms_norm<S: Simd>(s: S, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let whole = x.len() / S::LANES * S::LANES;
    let ((x, x_rest), (weight, weight_rest)) = (x.split_at(whole), weight.split_at(whole));
    let rest: f32 = x_rest.iter().map(|v| v * v).sum();
    let squares = s.sum(reduced::<S, Squares>(s, x, 0.0)) + rest;
    let factor = norm_factor(squares, x.len() + x_rest.len(), eps);
    let (out, out_rest) = out.split_at_mut(whole);
    scale(s, x, weight, factor, out);
    scale(Scalar, x_rest, weight_rest, factor, out_rest);
}

/// Computes out = x · factor · weight.
#[inline(always)]
fn scale<S: Simd>(s: S, x: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    let inputs = S::arrays(x).iter().zip(S::arrays(weight));
    for (out, (x, weight)) in S::arrays_mut(out).iter_mut().zip(inputs) {
        s.store(out, s.mul(s.mul(s.load(x), s.splat(factor)), s.load(weight)));
    }
}

/// A reduction of a row's numbers to one.
trait Reduction {
    /// Adds a vector to an accumulator.
    fn step<S: Simd>(s: S, x: S::Vector, chain: S::Vector) -> S::Vector;
    /// Joins two accumulators.
    fn join<S: Simd>(s: S, a: S::Vector, b: S::Vector) -> S::Vector;
}

/// Σ x².
struct Squares;
/// max |x|; NaN is ignored.
struct Magnitudes;

impl Reduction for Squares {
    #[inline(always)]
    fn step<S: Simd>(s: S, x: S::Vector, chain: S::Vector) -> S::Vector {
        s.add_product(x, x, chain)
    }

    #[inline(always)]
    fn join<S: Simd>(s: S, a: S::Vector, b: S::Vector) -> S::Vector {
        s.add(a, b)
    }
}

impl Reduction for Magnitudes {
    #[inline(always)]
    fn step<S: Simd>(s: S, x: S::Vector, chain: S::Vector) -> S::Vector {
        s.larger_magnitude(x, chain)
    }

    #[inline(always)]
    fn join<S: Simd>(s: S, a: S::Vector, b: S::Vector) -> S::Vector {
        s.larger_magnitude(a, b)
    }
}

/// Reduces whole vectors to one.
#[inline(always)]
fn reduced<S: Simd, R: Reduction>(s: S, x: &[f32], start: f32) -> S::Vector {
    let mut chains = [s.splat(start); MOST_CHAINS];
    let groups = S::arrays(x).chunks_exact(S::CHAINS);
    let few = groups.remainder();
    for group in groups {
        for (chain, x) in chains.iter_mut().zip(group) {
            *chain = R::step(s, s.load(x), *chain);
        }
    }
    for (chain, x) in chains.iter_mut().zip(few) {
        *chain = R::step(s, s.load(x), *chain);
    }
    let [a, b, c, d] = chains;
    R::join(s, R::join(s, a, b), R::join(s, c, d))
}

/// Returns max |x|, at least [`row::MIN_MAX`]; NaN is ignored.
#[inline(always)]
fn absmax<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (vectors, rest) = x.split_at(x.len() / S::LANES * S::LANES);
    row::absmax(rest).max(s.max(reduced::<S, Magnitudes>(s, vectors, row::MIN_MAX)))
}

/// Quantizes a row to 8 bits; see the scalar definition.
#[inline(always)]
pub fn quantize8<S: Simd>(s: S, x: &[f32], values: &mut [i8]) -> (i32, f32) {
    let factor = 127.0 / absmax(s, x);
    let whole = x.len() / (QUAD * S::LANES) * (QUAD * S::LANES);
    let ((x, x_rest), (values, values_rest)) = (x.split_at(whole), values.split_at_mut(whole));
    let mut sum = s.splat_int(0);
    for (x, out) in S::arrays(x).as_chunks::<QUAD>().0.iter().zip(S::bytes_mut(values)) {
        let mut ints = [s.splat_int(0); QUAD];
        for (int, x) in ints.iter_mut().zip(x) {
            // The factor keeps every number within ±127.
            *int = s.round(s.mul(s.load(x), s.splat(factor)), -128);
            sum = s.add_ints(sum, *int);
        }
        s.narrow(ints, out);
    }
    let mut sum = s.sum_ints(sum);
    for (x, out) in x_rest.iter().zip(values_rest) {
        *out = row::round_to_i8(x * factor);
        sum += i32::from(*out);
    }
    (sum, 1.0 / factor)
}

/// Quantizes a row to 15 bits in two planes; see the scalar definition.
#[inline(always)]
pub fn quantize16<S: Simd>(s: S, x: &[f32], high: &mut [i8], low: &mut [i8]) -> ([i32; 2], f32) {
    let factor = 32512.0 / absmax(s, x);
    let whole = x.len() / (QUAD * S::LANES) * (QUAD * S::LANES);
    let (x, x_rest) = x.split_at(whole);
    let ((high, high_rest), (low, low_rest)) = (high.split_at_mut(whole), low.split_at_mut(whole));
    let mut sums = [s.splat_int(0); 2];
    let outs = S::bytes_mut(high).iter_mut().zip(S::bytes_mut(low));
    for (x, (high, low)) in S::arrays(x).as_chunks::<QUAD>().0.iter().zip(outs) {
        let (mut highs, mut lows) = ([s.splat_int(0); QUAD], [s.splat_int(0); QUAD]);
        for (i, x) in x.iter().enumerate() {
            let joined = s.round(s.mul(s.load(x), s.splat(factor)), 0);
            highs[i] = s.right8(s.add_ints(joined, s.splat_int(128)));
            lows[i] = s.sub_ints(joined, s.left8(highs[i]));
            sums = [s.add_ints(sums[0], highs[i]), s.add_ints(sums[1], lows[i])];
        }
        s.narrow(highs, high);
        s.narrow(lows, low);
    }
    let mut sums = [s.sum_ints(sums[0]), s.sum_ints(sums[1])];
    for ((x, high), low) in x_rest.iter().zip(high_rest).zip(low_rest) {
        [*high, *low] = row::split(x * factor);
        sums[0] += i32::from(*high);
        sums[1] += i32::from(*low);
    }
    (sums, 1.0 / factor)
}
