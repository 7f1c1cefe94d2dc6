//! Moves weights from the bytes of a file to the memory that kernels read.
//!
//! The work is split into parts that the workers of a thread pool take. Each part is read, converted
//! and written at once, so memory never holds an intermediate copy of a matrix.
//!
//! The operating system takes a page of memory from the NUMA node of the thread that writes it first.
//! So each worker writes what it will read: the same range of panels as in a product
//! ([`WeightLoader::shares`]).

use crate::mem::{AlignedVec, WeightVec};
use crate::par::{Chunks, PoolScope};
use bytes::Bytes;
use std::ops::Range;

/// Approximate bytes of a part. A core's cache still has them when they are converted.
const PART: usize = 256 << 10;

/// The place that weights are loaded from.
pub trait WeightSource: Sync {
    /// Returns true if bytes get memory of their own even when they need no conversion.
    fn must_copy(&self, bytes: &[u8]) -> bool;

    /// Copies `bytes` to `to`, which has the same length.
    fn read(&self, bytes: &[u8], to: &mut [u8]);
}

/// Weights in memory of this process, where they may stay.
pub struct InMemory;

impl WeightSource for InMemory {
    fn must_copy(&self, _: &[u8]) -> bool {
        false
    }

    fn read(&self, bytes: &[u8], to: &mut [u8]) {
        to.copy_from_slice(bytes);
    }
}

/// Loads weights from a source, on the workers of a pool or on the calling thread.
pub struct WeightLoader<'a, 'c> {
    /// The pool; `None` for the calling thread alone.
    scope: Option<&'a mut PoolScope<'c>>,
    source: &'a dyn WeightSource,
}

impl<'a, 'c> WeightLoader<'a, 'c> {
    /// Loads from `source` on all workers of a scope.
    pub fn new(scope: &'a mut PoolScope<'c>, source: &'a dyn WeightSource) -> Self {
        Self { scope: Some(scope), source }
    }

    /// Loads from memory on the calling thread.
    pub fn alone() -> Self {
        Self::alone_from(&InMemory)
    }

    /// Loads from `source` on the calling thread.
    pub fn alone_from(source: &'a dyn WeightSource) -> Self {
        Self { scope: None, source }
    }

    /// Returns the bytes at their final place: a copy if the source asks for one and memory is left,
    /// else the same bytes.
    pub fn relocate(&mut self, bytes: &Bytes) -> Bytes {
        self.relocate_with(bytes, 1, |_| ()).unwrap_or_else(|| bytes.clone())
    }

    /// Copies bytes as [`relocate`](Self::relocate), or returns `None` if they stay. Calls `edit` with
    /// each part in its new place. Parts are whole elements of `size` bytes.
    pub fn relocate_with(
        &mut self,
        bytes: &Bytes,
        size: usize,
        edit: impl Fn(&mut [u8]) + Sync,
    ) -> Option<Bytes> {
        let memory = || WeightVec::<u8>::try_zeroed(bytes.len());
        let mut to = self.source.must_copy(bytes).then(memory).flatten()?;
        let (mut rest, mut from) = (&mut to[..], &bytes[..]);
        let part = |range: Range<usize>| {
            let length = range.len() * size;
            let to = rest.split_off_mut(..length).expect("as many bytes");
            (from.split_off(..length).expect("as many bytes"), to)
        };
        let parts = self.shares(bytes.len() / size, size).map(part).collect();
        self.run(parts, |(from, to), staging| {
            staging.source.read(from, to);
            edit(to);
        });
        Some(to.into_bytes())
    }

    /// Calls `look` with each part of bytes that stay where they are. Parts are whole elements of `size`
    /// bytes.
    pub fn visit(&mut self, bytes: &[u8], size: usize, look: impl Fn(&[u8]) + Sync) {
        let parts = self.shares(bytes.len() / size, size);
        let parts = parts.map(|range| &bytes[range.start * size..range.end * size]).collect();
        self.run(parts, |part, _| look(part));
    }

    /// Returns true if these bytes get memory of their own even without a conversion.
    pub fn must_copy(&self, bytes: &[u8]) -> bool {
        self.source.must_copy(bytes)
    }

    /// Number of units of `bytes` bytes that make a part.
    pub fn units(bytes: usize) -> usize {
        (PART / bytes.max(1)).max(1)
    }

    /// Cuts `units` units of `bytes` bytes into parts, the same number for each worker. A worker's
    /// parts cover the units that it reads in a product.
    pub fn shares(&self, units: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let each = |workers: usize| units.div_ceil(workers * Self::units(bytes));
        let bounds: Vec<usize> = match &self.scope {
            Some(scope) => scope.cut(units, each(scope.workers())).collect(),
            None => (0..=each(1)).map(|i| (i * Self::units(bytes)).min(units)).collect(),
        };
        (1..bounds.len()).map(move |i| bounds[i - 1]..bounds[i])
    }

    /// Runs `job(bytes, output)` for each part, with its bytes read into a staging buffer.
    pub fn each<'p, T: Send>(
        &mut self,
        parts: impl Iterator<Item = (&'p [u8], T)>,
        job: impl Fn(&[u8], &mut T) + Sync,
    ) {
        self.run(parts.collect(), |(from, to), staging| job(staging.fetch(from), to));
    }

    /// Runs `job` for each part. Neighboring parts go to the same worker.
    pub fn run<T: Send>(
        &mut self,
        mut parts: Vec<T>,
        job: impl Fn(&mut T, &mut StagingBuffer<'_>) + Sync,
    ) {
        let source = self.source;
        let Some(scope) = &mut self.scope else {
            let staging = &mut StagingBuffer { source, buffer: &mut AlignedVec::default() };
            return parts.iter_mut().for_each(|part| job(part, staging));
        };
        let count = parts.len();
        scope.chunks(count, true, Chunks::new(&mut parts, 1), |_, part, scratch| {
            job(&mut part[0], &mut StagingBuffer { source, buffer: &mut scratch.staging });
        });
    }
}

/// A worker's buffer for bytes that are read before they are converted.
pub struct StagingBuffer<'a> {
    /// The source of the bytes.
    pub source: &'a dyn WeightSource,
    buffer: &'a mut AlignedVec<u8>,
}

impl StagingBuffer<'_> {
    /// Reads bytes from the source into the buffer and returns them.
    pub fn fetch(&mut self, bytes: &[u8]) -> &[u8] {
        self.buffer.grow(bytes.len());
        let staged = &mut self.buffer[..bytes.len()];
        self.source.read(bytes, staged);
        staged
    }
}
