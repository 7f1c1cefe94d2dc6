//! Numbers that are not finite: each kernel passes them on to its output, or refuses them here.

/// See [`Kernels::within`](crate::kernel::Kernels::within).
#[inline(always)]
pub fn within(x: &[f32], bound: f32) -> bool {
    // Magnitudes compare like their bits, and NaN is the largest.
    let largest = |most: i32, x: &f32| most.max((x.to_bits() & 0x7FFF_FFFF).cast_signed());
    x.iter().fold(0, largest) < bound.to_bits().cast_signed()
}

/// Returns the factor of RMSNorm. If the sum of squares is not finite it is NaN: its reciprocal would be
/// zero.
#[inline(always)]
pub fn norm_factor(squares: f32, len: usize, eps: f32) -> f32 {
    let factor = 1.0 / (squares / len as f32 + eps).sqrt();
    if squares.is_finite() { factor } else { f32::NAN }
}
