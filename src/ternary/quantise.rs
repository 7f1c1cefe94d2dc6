//! Absmean quantisation of full-precision master weights (BitNet b1.58, arXiv 2402.17764, §2).

/// The scale of a tensor: mean |w|, at least 1e-5.
pub fn absmean_scale(weights: impl Iterator<Item = f32>) -> f32 {
    let (mut sum, mut n) = (0f64, 0u64);
    for w in weights {
        sum += f64::from(w.abs());
        n += 1;
    }
    ((sum / n.max(1) as f64) as f32).max(1e-5)
}

/// The code of one weight: clamp(round(w / scale), −1, 1) + 1, ties to even.
pub fn quantise_absmean(w: f32, scale: f32) -> u8 {
    // transformers multiplies by the reciprocal; the quotient's rounding must be the same.
    let t = (w * (1.0 / scale)).round_ties_even().clamp(-1.0, 1.0);
    (t + 1.0) as u8
}
