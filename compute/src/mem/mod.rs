//! Memory for SIMD kernels: buffers aligned to cache lines, and weights on huge pages.
//!
//! [`AlignedVec`] holds activations and scratch. [`WeightVec`] holds weights, which are written once
//! and then shared as [`bytes::Bytes`]. [`LazyVec`] holds the KV cache, most of which may never be used.

mod lazy;
mod weights;

pub use lazy::LazyVec;
pub use weights::WeightVec;

use bytemuck::{Pod, Zeroable};
use std::ops::{Deref, DerefMut};

/// One cache line. A `Vec` of these is aligned to 64 bytes without `unsafe`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A zero-initialized buffer of plain numbers, aligned to 64 bytes.
///
/// ```
/// use wrinklefree_compute::mem::AlignedVec;
///
/// let mut values = AlignedVec::<f32>::zeroed(3);
/// values[1] = 2.5;
/// values.grow(5);
/// assert_eq!(values[..], [0.0, 2.5, 0.0, 0.0, 0.0]);
/// assert!(values.as_ptr().addr().is_multiple_of(64));
/// ```
#[derive(Clone)]
pub struct AlignedVec<T> {
    lines: Vec<Line>,
    len: usize,
    kind: std::marker::PhantomData<T>,
}

impl<T: Pod> AlignedVec<T> {
    /// Returns `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        // The allocator zeros it, so pages of a large buffer stay untouched until they are used.
        Self { lines: bytemuck::zeroed_vec(lines), len, kind: std::marker::PhantomData }
    }

    /// Returns `len` zeros, or `None` if there is no memory for them.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let lines = len.checked_mul(size_of::<T>())?.div_ceil(size_of::<Line>());
        let lines = bytemuck::try_zeroed_vec(lines).ok()?;
        Some(Self { lines, len, kind: std::marker::PhantomData })
    }

    /// Grows the buffer to at least `len` elements. New elements are zero.
    pub fn grow(&mut self, len: usize) {
        if len > self.len {
            let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
            self.lines.resize(lines, Line::zeroed());
            self.len = len;
        }
    }
}

impl<T: Pod> Default for AlignedVec<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: Pod> Deref for AlignedVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl<T: Pod> DerefMut for AlignedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

impl AsRef<[u8]> for AlignedVec<u8> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AlignedVec<u8> {
    /// Converts the buffer to shared bytes, without copying.
    pub fn into_bytes(self) -> bytes::Bytes {
        bytes::Bytes::from_owner(self)
    }
}
