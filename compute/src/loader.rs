//! Brings weights from where a file has them to where kernels read them: part by part, on all workers
//! of a thread pool, and into their last form at once. So memory never holds what nobody will read.
//!
//! A page of memory comes from the node of whoever writes to it first, so each worker writes what it
//! will read: the same share of all panels as in a product ([`WeightLoader::shares`]).

use crate::mem::{AlignedVec, WeightVec};
use crate::par::{Chunks, PoolScope};
use bytes::Bytes;
use std::ops::Range;

/// Bytes of a part, about: a core's cache has them from reading to conversion.
const PART: usize = 256 << 10;

/// Where weights are before they are carried.
pub trait WeightSource: Sync {
    /// Whether bytes that are right as they stand get memory of their own all the same.
    fn must_copy(&self, bytes: &[u8]) -> bool;

    /// Copies bytes to `to`, which has as many.
    fn read(&self, bytes: &[u8], to: &mut [u8]);
}

/// Memory of this process, where they may stay.
pub struct InMemory;

impl WeightSource for InMemory {
    fn must_copy(&self, _: &[u8]) -> bool {
        false
    }

    fn read(&self, bytes: &[u8], to: &mut [u8]) {
        to.copy_from_slice(bytes);
    }
}

/// Who carries, and from where.
pub struct WeightLoader<'a, 'c> {
    /// `None`: the caller alone.
    scope: Option<&'a mut PoolScope<'c>>,
    origin: &'a dyn WeightSource,
}

impl<'a, 'c> WeightLoader<'a, 'c> {
    /// All workers of a scope.
    pub fn new(scope: &'a mut PoolScope<'c>, origin: &'a dyn WeightSource) -> Self {
        Self { scope: Some(scope), origin }
    }

    /// The caller alone, within memory.
    pub fn alone() -> Self {
        Self { scope: None, origin: &InMemory }
    }

    /// These bytes where they are to stand.
    pub fn relocate(&mut self, bytes: &Bytes) -> Bytes {
        let memory = || WeightVec::<u8>::try_zeroed(bytes.len());
        let Some(mut to) = self.origin.must_copy(bytes).then(memory).flatten() else {
            return bytes.clone();
        };
        let mut rest = &mut to[..];
        let part = |range: Range<usize>| {
            let to = rest.split_off_mut(..range.len()).expect("as many bytes");
            (&bytes[range], to)
        };
        let parts = self.shares(bytes.len(), 1).map(part).collect();
        self.run(parts, |(from, to), hands| hands.origin.read(from, to));
        to.into_bytes()
    }

    /// Whether these bytes get memory of their own, though they are right as they stand.
    pub fn must_copy(&self, bytes: &[u8]) -> bool {
        self.origin.must_copy(bytes)
    }

    /// How many units of so many bytes make a part.
    pub fn units(bytes: usize) -> usize {
        (PART / bytes.max(1)).max(1)
    }

    /// So many units of so many bytes, cut into parts: as many for each worker, and those of a worker
    /// are what it reads of the units in a product.
    pub fn shares(&self, units: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let workers = self.scope.as_ref().map_or(1, |scope| scope.workers());
        let parts = workers * units.div_ceil(workers * Self::units(bytes));
        let bound = move |i| (units as u128 * i as u128 / parts as u128) as usize;
        (0..parts).map(move |i| bound(i)..bound(i + 1))
    }

    /// Runs `job` for each part: with its bytes, and with what they are to become.
    pub fn each<'p, T: Send>(
        &mut self,
        parts: impl Iterator<Item = (&'p [u8], T)>,
        job: impl Fn(&[u8], &mut T) + Sync,
    ) {
        self.run(parts.collect(), |(from, to), hands| job(hands.fetch(from), to));
    }

    /// Runs `job` for each part. Neighbors go to the same worker.
    pub fn run<T: Send>(
        &mut self,
        mut parts: Vec<T>,
        job: impl Fn(&mut T, &mut StagingBuffer<'_>) + Sync,
    ) {
        let origin = self.origin;
        let Some(scope) = &mut self.scope else {
            let hands = &mut StagingBuffer { origin, buffer: &mut AlignedVec::default() };
            return parts.iter_mut().for_each(|part| job(part, hands));
        };
        let count = parts.len();
        scope.chunks(count, true, Chunks::new(&mut parts, 1), |_, part, scratch| {
            job(&mut part[0], &mut StagingBuffer { origin, buffer: &mut scratch.bytes });
        });
    }
}

/// What a worker carries with.
pub struct StagingBuffer<'a> {
    /// Where bytes come from.
    pub origin: &'a dyn WeightSource,
    buffer: &'a mut AlignedVec<u8>,
}

impl StagingBuffer<'_> {
    /// These bytes, near to the worker.
    pub fn fetch(&mut self, bytes: &[u8]) -> &[u8] {
        self.buffer.grow(bytes.len());
        let near = &mut self.buffer[..bytes.len()];
        self.origin.read(bytes, near);
        near
    }
}
