//! Memory that the system provides when it is first written.

#[cfg(not(any(unix, windows, target_family = "wasm")))]
use super::AlignedVec;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A zero-initialized buffer of plain numbers, aligned to 64 bytes, whose pages take no memory until they
/// are written.
///
/// An allocator clears aligned memory by writing it. So this maps memory, which is zero already.
///
/// ```
/// use wrinklefree_compute::mem::LazyVec;
///
/// // Far more than the program uses.
/// let mut values = LazyVec::<f32>::try_zeroed(1 << 28).expect("address space");
/// values[1 << 27] = 1.0;
/// assert_eq!((values.len(), values[5], values[1 << 27]), (1 << 28, 0.0, 1.0));
/// ```
pub struct LazyVec<T> {
    /// `None` if the buffer is empty.
    memory: Option<Memory>,
    len: usize,
    kind: PhantomData<T>,
}

#[cfg(any(unix, windows))]
type Memory = memmap2::MmapMut;
#[cfg(target_family = "wasm")]
type Memory = grown::Block;
#[cfg(not(any(unix, windows, target_family = "wasm")))]
type Memory = AlignedVec<u8>;

/// Returns zeros, or `None` if the system has no address space for them.
fn zeroed(bytes: usize) -> Option<Memory> {
    #[cfg(any(unix, windows))]
    return memmap2::MmapMut::map_anon(bytes).ok();
    #[cfg(target_family = "wasm")]
    return grown::Block::zeroed(bytes);
    #[cfg(not(any(unix, windows, target_family = "wasm")))]
    return AlignedVec::try_zeroed(bytes);
}

impl<T: Pod> LazyVec<T> {
    /// Returns `len` zeros, or `None` if there is no address space for them.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let memory = if bytes == 0 { None } else { Some(zeroed(bytes)?) };
        Some(Self { memory, len, kind: PhantomData })
    }
}

impl<T> Default for LazyVec<T> {
    fn default() -> Self {
        Self { memory: None, len: 0, kind: PhantomData }
    }
}

impl<T: Pod> Deref for LazyVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // An empty slice of bytes need not be aligned for numbers.
        let Some(bytes) = self.memory.as_deref() else { return &[] };
        bytemuck::cast_slice(&bytes[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for LazyVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let Some(bytes) = self.memory.as_deref_mut() else { return &mut [] };
        bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
    }
}

/// Blocks that WebAssembly's memory is enlarged by. New pages are zero, and a browser provides them when
/// they are first written. Memory never shrinks, so freed blocks are kept for later ones.
#[cfg(target_family = "wasm")]
mod grown {
    use core::arch::wasm32::memory_grow;
    use std::ops::{Deref, DerefMut};
    use std::sync::{Mutex, PoisonError};

    /// Bytes of a page of WebAssembly's memory.
    const PAGE: usize = 1 << 16;

    /// Start and length of the freed blocks, in order of address; no two of them adjoin.
    static FREE: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

    /// A block of whole pages.
    pub struct Block {
        start: usize,
        len: usize,
    }

    impl Block {
        /// Returns at least `bytes` zeros, or `None` if the memory has reached its limit.
        pub fn zeroed(bytes: usize) -> Option<Self> {
            let len = bytes.checked_next_multiple_of(PAGE)?;
            if let Some(mut block) = Self::freed(len) {
                block.fill(0);
                return Some(block);
            }
            match memory_grow::<0>(len / PAGE) {
                usize::MAX => None,
                page => Some(Self { start: page * PAGE, len }),
            }
        }

        /// Takes `len` bytes of a freed block.
        fn freed(len: usize) -> Option<Self> {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            let i = free.iter().position(|&(_, size)| size >= len)?;
            let (start, size) = free[i];
            match size - len {
                0 => drop(free.remove(i)),
                rest => free[i] = (start + len, rest),
            }
            Some(Self { start, len })
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            let i = free.partition_point(|&(start, _)| start < self.start);
            free.insert(i, (self.start, self.len));
            if free.get(i + 1).is_some_and(|next| self.start + self.len == next.0) {
                free[i].1 += free.remove(i + 1).1;
            }
            if i > 0 && free[i - 1].0 + free[i - 1].1 == self.start {
                free[i - 1].1 += free.remove(i).1;
            }
        }
    }

    impl Deref for Block {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            // SAFETY: `memory_grow` has returned these pages to this module alone, and blocks do not
            // overlap: each is either in use or in `FREE`. Nothing else frees or moves them.
            unsafe { std::slice::from_raw_parts(self.start as *const u8, self.len) }
        }
    }

    impl DerefMut for Block {
        fn deref_mut(&mut self) -> &mut [u8] {
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts_mut(self.start as *mut u8, self.len) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_apart_and_aligned() {
        let mut all: Vec<_> =
            [0, 1, 5, 4096, 70_000].into_iter().map(LazyVec::<f32>::try_zeroed).collect();
        for (i, buffer) in all.iter_mut().enumerate() {
            let buffer = buffer.as_mut().expect("memory");
            assert!(buffer.iter().all(|&x| x == 0.0));
            assert!(buffer.is_empty() || buffer.as_ptr().addr().is_multiple_of(64));
            buffer.fill(i as f32);
        }
        for (i, buffer) in all.iter().enumerate() {
            assert!(buffer.as_ref().expect("memory").iter().all(|&x| x == i as f32));
        }
        assert!(LazyVec::<f32>::try_zeroed(usize::MAX).is_none());
        assert!(LazyVec::<f32>::try_zeroed(usize::MAX / 8).is_none());
    }
}
