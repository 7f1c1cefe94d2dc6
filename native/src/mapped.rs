//! Files as memory: the only `unsafe` of the command line.

use crate::cores;
use anyhow::Context;
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::thread;
use wrinklefree::mem::WeightVec;

/// Maps a whole file, read-only.
pub fn map(path: &Path) -> anyhow::Result<Bytes> {
    let map = || {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Bytes::new());
        }
        // SAFETY: the mapping is read-only and owned by the returned bytes. Like every program
        // that maps model files, it relies on nobody truncating the file while it is in use.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Bytes::from_owner(map))
    };
    map().map_err(|e: std::io::Error| e).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads a whole file into memory of this process, in huge pages where the system has them: weights
/// that are read once per token are read some tenth faster there. Several threads share the copying.
pub fn read(path: &Path) -> anyhow::Result<Bytes> {
    let read = || {
        let length = usize::try_from(File::open(path)?.metadata()?.len());
        let length = length.map_err(|_| io::ErrorKind::OutOfMemory)?;
        let memory = WeightVec::<u8>::try_zeroed(length);
        let mut memory = memory.ok_or(io::ErrorKind::OutOfMemory)?;
        let part = length.div_ceil(cores::count()).max(1);
        thread::scope(|scope| {
            let copy = |(i, part_of): (usize, &mut [u8])| {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start((i * part) as u64))?;
                file.read_exact(part_of)
            };
            let parts = memory.chunks_mut(part).enumerate();
            let threads: Vec<_> = parts.map(|p| scope.spawn(move || copy(p))).collect();
            threads.into_iter().try_for_each(|t| t.join().expect("reading does not panic"))
        })?;
        Ok(memory.into_bytes())
    };
    read().map_err(|e: io::Error| e).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_is_mapped() {
        let directory = tempfile::tempdir().expect("a directory");
        // With a last part that is shorter, with parts of one byte, and with none.
        for length in [1_000_003, cores::count(), 1, 0] {
            let path = directory.path().join(length.to_string());
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            std::fs::write(&path, &bytes).expect("written");
            assert_eq!(read(&path).expect("there"), bytes);
            assert_eq!(map(&path).expect("there"), bytes);
        }
        let error = read(&directory.path().join("none")).expect_err("not there");
        assert!(format!("{error:#}").contains("none"), "{error:#}");
    }
}
