//! Memory that SIMD likes: buffers aligned to cache lines, and weights on huge pages.

mod weights;

pub use weights::WeightVec;

use bytemuck::{Pod, Zeroable};
use std::ops::{Deref, DerefMut};

/// One cache line; a `Vec` of these is aligned to 64 bytes without any `unsafe`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A fixed-length, zero-initialized buffer of plain numbers, aligned to 64 bytes.
#[derive(Clone)]
pub struct AlignedVec<T> {
    lines: Vec<Line>,
    len: usize,
    kind: std::marker::PhantomData<T>,
}

impl<T: Pod> AlignedVec<T> {
    /// `len` zeroes.
    pub fn zeroed(len: usize) -> Self {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        // Zeroed by the allocator: pages of a large buffer stay untouched until they are used.
        Self { lines: bytemuck::zeroed_vec(lines), len, kind: std::marker::PhantomData }
    }

    /// `len` zeroes, or `None` when there is no memory for them.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let lines = len.checked_mul(size_of::<T>())?.div_ceil(size_of::<Line>());
        let lines = bytemuck::try_zeroed_vec(lines).ok()?;
        Some(Self { lines, len, kind: std::marker::PhantomData })
    }

    /// Grows to at least `len` elements; what was there stays, new elements are zero.
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
    /// Turns the buffer into shared bytes without copying.
    pub fn into_bytes(self) -> bytes::Bytes {
        bytes::Bytes::from_owner(self)
    }
}
