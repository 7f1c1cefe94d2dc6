//! Brings weights from where a file has them to where kernels read them: part by part, on all members
//! of a team, and into their last form at once. So memory never holds what nobody will read.

use crate::mem::{AlignedVec, WeightVec};
use crate::par::{Chunks, Crew};
use bytes::Bytes;

/// Bytes of a part, about: a core's cache has them from reading to conversion.
const PART: usize = 256 << 10;

/// Where weights are before they are carried.
pub trait Origin: Sync {
    /// Whether bytes that are right as they stand get memory of their own all the same.
    fn leaves(&self, bytes: &[u8]) -> bool;

    /// Copies bytes to `to`, which has as many.
    fn read(&self, bytes: &[u8], to: &mut [u8]);
}

/// Memory of this process, where they may stay.
pub struct Memory;

impl Origin for Memory {
    fn leaves(&self, _: &[u8]) -> bool {
        false
    }

    fn read(&self, bytes: &[u8], to: &mut [u8]) {
        to.copy_from_slice(bytes);
    }
}

/// Who carries, and from where.
pub struct Carrier<'a, 'c> {
    /// `None`: the caller alone.
    crew: Option<&'a mut Crew<'c>>,
    origin: &'a dyn Origin,
}

impl<'a, 'c> Carrier<'a, 'c> {
    /// All members of a crew.
    pub fn new(crew: &'a mut Crew<'c>, origin: &'a dyn Origin) -> Self {
        Self { crew: Some(crew), origin }
    }

    /// The caller alone, within memory.
    pub fn alone() -> Self {
        Self { crew: None, origin: &Memory }
    }

    /// These bytes where they are to stand.
    pub fn placed(&mut self, bytes: &Bytes) -> Bytes {
        let memory = || WeightVec::<u8>::try_zeroed(bytes.len());
        let Some(mut to) = self.origin.leaves(bytes).then(memory).flatten() else {
            return bytes.clone();
        };
        let origin = self.origin;
        let parts = bytes.chunks(PART).zip(to.chunks_mut(PART)).collect();
        self.run(parts, |(from, to), _| origin.read(from, to));
        to.into_bytes()
    }

    /// How many units of so many bytes make a part.
    pub fn units(bytes: usize) -> usize {
        (PART / bytes.max(1)).max(1)
    }

    /// Runs `job` for each part: with its bytes, and with what they are to become.
    pub fn each<'p, T: Send>(
        &mut self,
        parts: impl Iterator<Item = (&'p [u8], T)>,
        job: impl Fn(&[u8], &mut T) + Sync,
    ) {
        let origin = self.origin;
        self.run(parts.collect(), |(from, to), buffer| {
            buffer.grow(from.len());
            let bytes = &mut buffer[..from.len()];
            origin.read(from, bytes);
            job(bytes, to);
        });
    }

    fn run<T: Send>(
        &mut self,
        mut parts: Vec<T>,
        job: impl Fn(&mut T, &mut AlignedVec<u8>) + Sync,
    ) {
        let Some(crew) = &mut self.crew else {
            let buffer = &mut AlignedVec::default();
            return parts.iter_mut().for_each(|part| job(part, buffer));
        };
        let count = parts.len();
        crew.chunks(count, true, Chunks::new(&mut parts, 1), |_, part, scratch| {
            job(&mut part[0], &mut scratch.bytes);
        });
    }
}
