//! The exponential for sampling, with the same bits on every platform.
//!
//! Sampling computes it for every token of the vocabulary, and block diffusion for every masked row.
//! It takes at most a tenth of the 15 ns of `libm`'s function, because compilers vectorize it. It uses
//! only operations that IEEE 754 defines to the last bit, so one source, compiled for each instruction
//! set, gives the same bits everywhere.

/// Returns e^x for x ≤ 0, within 2 units in the last place. Returns 0 for x < −87, where the range of
/// f32 ends, and for NaN.
///
/// ```
/// use wrinklefree_compute::kernel::exp;
///
/// assert!((exp(-1.0) - 0.367_879_44).abs() < 1e-6);
/// assert_eq!(exp(f32::NEG_INFINITY), 0.0);
/// ```
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts: n · HIGH is exact.
    const HIGH: f32 = 0.693_359_4;
    const LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * HIGH) - n * LOW;
    // Minimax on [−ln 2 / 2, ln 2 / 2], as in Cephes.
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5e-1;
    let mantissa = p * r * r + r + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    let result = mantissa * f32::from_bits(exponent);
    if x >= -87.0 { result } else { 0.0 }
}

/// Number of weights that [`sum_exp`] computes before it adds them.
const BATCH: usize = 64;

/// See [`Kernels::sum_exp`](crate::kernel::Kernels::sum_exp). The order of the sum is fixed: eight sums
/// of every eighth element, then their sum from the first to the last.
#[inline(always)]
pub fn sum_exp(logits: &[f32], max: f32) -> f64 {
    let mut sums = [0.0f64; 8];
    for logits in logits.chunks(BATCH) {
        // A loop instead of `map`, whose callees would not be compiled for the CPU's features.
        let mut weights = [0.0f32; BATCH];
        for (weight, &x) in weights.iter_mut().zip(logits) {
            *weight = exp(x - max);
        }
        for eight in weights.as_chunks::<8>().0 {
            for (sum, &weight) in sums.iter_mut().zip(eight) {
                *sum += f64::from(weight);
            }
        }
    }
    sums.iter().sum()
}

/// See [`Kernels::weigh`](crate::kernel::Kernels::weigh).
#[inline(always)]
pub fn weigh(logits: &mut [f32], max: f32, scale: f32) {
    for x in logits {
        // The comparison also handles infinity.
        *x = if *x == max { 1.0 } else { exp((*x - max) * scale) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_libm_everywhere() {
        let mut bits = 0f32.to_bits();
        while f32::from_bits(bits) < 87.0 {
            let x = -f32::from_bits(bits);
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got - want).abs() <= 2.4e-7 * want, "{x}: {got} {want}");
            bits += 997;
        }
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
        for x in [-87.1, -1e3, -1e30, f32::MIN, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(exp(x), 0.0, "{x}");
        }
    }

    #[test]
    fn sums() {
        let logits: Vec<f32> = (0..1003).map(|i| -((i * 31 % 97) as f32) / 8.0).collect();
        let want: f64 = logits.iter().map(|&x| f64::from(x - 1.0).exp()).sum();
        assert!((sum_exp(&logits, 1.0) - want).abs() < 1e-6 * want);
        assert_eq!(sum_exp(&[f32::NAN, f32::NEG_INFINITY, 2.0], 2.0), 1.0);
        assert_eq!(sum_exp(&[], 0.0), 0.0);
    }

    #[test]
    fn weights() {
        let mut x = [2.0, f32::NAN, 1.0, f32::NEG_INFINITY];
        weigh(&mut x, 2.0, 3.0);
        assert_eq!(x, [1.0, 0.0, exp(-3.0), 0.0]);
        let mut x = [f32::INFINITY, 1.0, f32::MAX, f32::NAN];
        weigh(&mut x, f32::INFINITY, 0.5);
        assert_eq!(x, [1.0, 0.0, 0.0, 0.0]);
    }
}
