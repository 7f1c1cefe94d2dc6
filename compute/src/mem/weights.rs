//! Memory for weights, on huge pages where the system has them.
//!
//! Decoding reads every weight once per token, in order, and a huge page saves 511 of 512 page-table
//! walks. A matrix rarely fills whole huge pages, so matrices share large mappings.

use super::AlignedVec;
use bytemuck::Pod;
use bytes::Bytes;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A zero-initialized buffer of plain numbers, aligned to 64 bytes, that is filled once and then
/// shared as [`Bytes`].
///
/// ```
/// use wrinklefree_compute::mem::WeightVec;
///
/// let mut weights = WeightVec::<u16>::zeroed(4);
/// weights.fill(0x0102);
/// assert_eq!(weights.into_bytes().len(), 8);
/// ```
pub struct WeightVec<T> {
    storage: Storage,
    len: usize,
    kind: PhantomData<T>,
}

/// The memory of a [`WeightVec`].
enum Storage {
    Heap(AlignedVec<u8>),
    #[cfg(unix)]
    Shared(shared::Slice),
}

impl Storage {
    /// Returns zeros, or `None` if there is no memory for them.
    fn try_zeroed(bytes: usize) -> Option<Self> {
        #[cfg(unix)]
        if bytes >= shared::LARGE
            && let Some(slice) = shared::Slice::zeroed(bytes)
        {
            return Some(Self::Shared(slice));
        }
        AlignedVec::try_zeroed(bytes).map(Self::Heap)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            #[cfg(unix)]
            Self::Shared(slice) => slice.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            #[cfg(unix)]
            Self::Shared(slice) => slice.bytes_mut(),
        }
    }
}

impl AsRef<[u8]> for Storage {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl<T: Pod> WeightVec<T> {
    /// Returns `len` zeros.
    ///
    /// # Panics
    /// If there is no memory for them.
    pub fn zeroed(len: usize) -> Self {
        let size = size_of::<T>();
        Self::try_zeroed(len)
            .unwrap_or_else(|| panic!("out of memory: cannot allocate {len} × {size} bytes"))
    }

    /// Returns `len` zeros, or `None` if there is no memory for them.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let storage = Storage::try_zeroed(len.checked_mul(size_of::<T>())?)?;
        Some(Self { storage, len, kind: PhantomData })
    }

    /// Converts the buffer to shared bytes, without copying.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self.storage)
    }
}

impl<T: Pod> Deref for WeightVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(self.storage.bytes())[..self.len]
    }
}

impl<T: Pod> DerefMut for WeightVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(self.storage.bytes_mut())[..self.len]
    }
}

#[cfg(unix)]
mod shared {
    use memmap2::MmapMut;
    use std::sync::{Arc, Mutex, PoisonError, Weak};

    /// Buffers from this size on use mappings. A small model should not take a huge page.
    pub const LARGE: usize = 128 << 10;
    /// Bytes of a shared mapping. A larger buffer gets a mapping of its own.
    const MAPPING: usize = 64 << 20;
    /// Alignment of buffers.
    const ALIGN: usize = 64;

    /// Anonymous memory. The system provides its pages when they are first written.
    struct Mapping {
        base: *mut u8,
        /// Unmaps the memory when the last slice is dropped.
        _memory: MmapMut,
    }

    // SAFETY: the pointer is only followed through slices, which do not overlap.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        fn new(len: usize) -> Option<Arc<Self>> {
            let mut memory = MmapMut::map_anon(len).ok()?;
            // Only a hint: small pages work too, but slower.
            #[cfg(target_os = "linux")]
            let _ = memory.advise(memmap2::Advice::HugePage);
            Some(Arc::new(Self { base: memory.as_mut_ptr(), _memory: memory }))
        }
    }

    /// The mapping that the next buffers go to, and the number of its bytes that are in use.
    static CURRENT: Mutex<(Weak<Mapping>, usize)> = Mutex::new((Weak::new(), 0));

    /// A part of a mapping that belongs to one buffer.
    pub struct Slice {
        mapping: Arc<Mapping>,
        start: usize,
        len: usize,
    }

    impl Slice {
        /// Returns `len` zeros, or `None` if the system has no memory for them.
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
            // SAFETY: the slice lies within the mapping, which lives as long as the slice.
            unsafe { std::slice::from_raw_parts(self.mapping.base.add(self.start), self.len) }
        }

        pub fn bytes_mut(&mut self) -> &mut [u8] {
            // SAFETY: as above, and slices do not overlap: each begins after the one before it.
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
            assert!(buffer.iter().all(|&b| b == 0), "buffer {i} is in use already");
            assert_eq!(buffer.as_ptr().addr() % 64, 0);
            buffer.fill(i as u8 + 1);
        }
        for (i, buffer) in all.into_iter().enumerate() {
            let bytes = buffer.into_bytes();
            assert!(bytes.iter().all(|&b| b == i as u8 + 1), "buffer {i} was written to");
        }
    }
}
