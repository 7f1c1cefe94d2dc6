//! Memory for weights: on huge pages where the system has them.
//!
//! Decoding reads every weight once per token, in order, and a huge page saves 511 of 512 walks
//! through the page table. A matrix rarely fills whole huge pages, so matrices share large mappings
//! and stand in them side by side.

use super::AlignedVec;
use bytemuck::Pod;
use bytes::Bytes;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A zero-initialized buffer of plain numbers that is filled once and then shared as [`Bytes`];
/// aligned to 64 bytes.
pub struct WeightVec<T> {
    home: Home,
    len: usize,
    kind: PhantomData<T>,
}

/// Where the bytes stand.
enum Home {
    Heap(AlignedVec<u8>),
    #[cfg(unix)]
    Shared(shared::Piece),
}

impl Home {
    /// `None` when there is no memory for so many.
    fn try_zeroed(bytes: usize) -> Option<Self> {
        #[cfg(unix)]
        if bytes >= shared::LARGE
            && let Some(piece) = shared::Piece::zeroed(bytes)
        {
            return Some(Self::Shared(piece));
        }
        AlignedVec::try_zeroed(bytes).map(Self::Heap)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            #[cfg(unix)]
            Self::Shared(piece) => piece.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            #[cfg(unix)]
            Self::Shared(piece) => piece.bytes_mut(),
        }
    }
}

impl AsRef<[u8]> for Home {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl<T: Pod> WeightVec<T> {
    /// `len` zeroes.
    ///
    /// # Panics
    /// When there is no memory for them.
    pub fn zeroed(len: usize) -> Self {
        let what = size_of::<T>();
        Self::try_zeroed(len).unwrap_or_else(|| panic!("no memory for {len} times {what} bytes"))
    }

    /// `len` zeroes, or `None` when there is no memory for them.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let home = Home::try_zeroed(len.checked_mul(size_of::<T>())?)?;
        Some(Self { home, len, kind: PhantomData })
    }

    /// Turns the buffer into shared bytes without copying.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self.home)
    }
}

impl<T: Pod> Deref for WeightVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(self.home.bytes())[..self.len]
    }
}

impl<T: Pod> DerefMut for WeightVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(self.home.bytes_mut())[..self.len]
    }
}

#[cfg(unix)]
mod shared {
    use memmap2::MmapMut;
    use std::sync::{Arc, Mutex, PoisonError, Weak};

    /// Smaller buffers come from the heap: a small model should not touch a huge page.
    pub const LARGE: usize = 128 << 10;
    /// Bytes of a mapping that several buffers share; larger buffers have one of their own.
    const MAPPING: usize = 64 << 20;
    /// Buffers begin at multiples of this.
    const ALIGN: usize = 64;

    /// Anonymous memory; its pages exist once they are written.
    struct Mapping {
        base: *mut u8,
        /// Unmaps the memory when the last piece is gone.
        _memory: MmapMut,
    }

    // SAFETY: the pointer is only followed through pieces, which do not overlap.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        fn new(len: usize) -> Option<Arc<Self>> {
            let mut memory = MmapMut::map_anon(len).ok()?;
            // A wish: small pages do as well, only slower.
            #[cfg(target_os = "linux")]
            let _ = memory.advise(memmap2::Advice::HugePage);
            Some(Arc::new(Self { base: memory.as_mut_ptr(), _memory: memory }))
        }
    }

    /// The mapping that the next buffers go to, and how much of it is given away.
    static CURRENT: Mutex<(Weak<Mapping>, usize)> = Mutex::new((Weak::new(), 0));

    /// Part of a mapping, nobody else's.
    pub struct Piece {
        mapping: Arc<Mapping>,
        start: usize,
        len: usize,
    }

    impl Piece {
        /// `len` zeroes, or `None` when the system has no memory for them.
        pub fn zeroed(len: usize) -> Option<Self> {
            if len > MAPPING {
                return Some(Self { mapping: Mapping::new(len)?, start: 0, len });
            }
            let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
            let open = current.0.upgrade().filter(|_| current.1 + len <= MAPPING);
            let (mapping, start) = match open {
                Some(mapping) => (mapping, current.1),
                None => (Mapping::new(MAPPING)?, 0),
            };
            *current = (Arc::downgrade(&mapping), (start + len).next_multiple_of(ALIGN));
            Some(Self { mapping, start, len })
        }

        pub fn bytes(&self) -> &[u8] {
            // SAFETY: the piece lies within the mapping, which lives as long as the piece.
            unsafe { std::slice::from_raw_parts(self.mapping.base.add(self.start), self.len) }
        }

        pub fn bytes_mut(&mut self) -> &mut [u8] {
            // SAFETY: as above, and pieces do not overlap: each begins behind the one before it.
            unsafe { std::slice::from_raw_parts_mut(self.mapping.base.add(self.start), self.len) }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::WeightVec;
    use super::shared::LARGE;

    #[test]
    fn buffers_are_zero_apart_and_aligned() {
        let sizes = [0, 5, LARGE - 1, LARGE, LARGE + 77, 40 << 20, 40 << 20, 70 << 20];
        let mut all: Vec<_> = sizes.iter().map(|&len| WeightVec::<u8>::zeroed(len)).collect();
        for (i, buffer) in all.iter_mut().enumerate() {
            assert_eq!(buffer.len(), sizes[i]);
            assert!(buffer.iter().all(|&b| b == 0), "buffer {i} is somebody's");
            assert_eq!(buffer.as_ptr().addr() % 64, 0);
            buffer.fill(i as u8 + 1);
        }
        for (i, buffer) in all.into_iter().enumerate() {
            let bytes = buffer.into_bytes();
            assert!(bytes.iter().all(|&b| b == i as u8 + 1), "buffer {i} was written to");
        }
    }
}
