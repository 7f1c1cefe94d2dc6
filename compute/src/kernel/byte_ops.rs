//! Operations on the bytes of a panel's rows that products of small integers need.

use super::simd::Simd;
use crate::ternary::BLOCK_BYTES;

/// Masks, shifts and products of bytes.
pub trait ByteOps: Simd {
    /// Loads a block of codes.
    fn block(x: &[u8; BLOCK_BYTES]) -> Self::IntPanel;
    /// Returns a vector of equal bytes.
    fn splat_byte(self, x: u8) -> Self::Ints;
    /// Returns a & b.
    fn and(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Shifts 16-bit lanes right by two bits, so a byte may get bits of its neighbor.
    fn right2(self, x: Self::Ints) -> Self::Ints;
    /// Adds the products of bytes, of which those of `w` are not negative, to sums.
    fn add_quads(self, sum: Self::Ints, w: Self::Ints, x: Self::Ints) -> Self::Ints;
    /// Returns each row's sum in 32 bits.
    fn widen(self, sum: Self::Ints) -> Self::Ints;
}

/// Implements [`ByteOps`] by the functions of a module. `unsafe` stands in front of calls, as in
/// [`simd`](super::simd::simd).
#[cfg(not(target_arch = "aarch64"))]
macro_rules! byte_ops {
    ($token:ty, $ops:path $(, $unsafe:tt)?) => {
        impl $crate::kernel::byte_ops::ByteOps for $token {
            #[inline(always)]
            fn block(x: &[u8; $crate::ternary::BLOCK_BYTES]) -> Self::IntPanel {
                bytemuck::must_cast(*x)
            }

            $crate::kernel::simd::simd!(@each [$ops] [$($unsafe)?] {
                splat_byte(x: u8) -> Self::Ints;
                and(a: Self::Ints, b: Self::Ints) -> Self::Ints;
                right2(x: Self::Ints) -> Self::Ints;
                add_quads(sum: Self::Ints, w: Self::Ints, x: Self::Ints) -> Self::Ints;
                widen(sum: Self::Ints) -> Self::Ints;
            });
        }
    };
}
#[cfg(not(target_arch = "aarch64"))]
pub(super) use byte_ops;

/// Adds the products of 16 rows × 4 columns with four activations.
#[inline(always)]
pub fn add_quads<S: ByteOps>(s: S, sums: &mut S::IntPanel, w: &S::IntPanel, x: S::Ints) {
    for (sum, w) in sums.as_mut().iter_mut().zip(w.as_ref()) {
        *sum = s.add_quads(*sum, *w, x);
    }
}
