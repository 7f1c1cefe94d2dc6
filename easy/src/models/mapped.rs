//! Memory-mapped files: the only place where this crate is `unsafe`.

use crate::machine::cores;
use anyhow::Context;
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use wrinklefree::loader::WeightSource;

/// Maps a whole file, read-only.
pub fn map(path: &Path) -> anyhow::Result<Bytes> {
    Ok(Mapped::open(path)?.0)
}

/// A file that stays mapped as long as some of its bytes are in use.
pub struct Mapped {
    file: File,
    map: Weak<Mmap>,
    /// True if weights are copied out of it although they could be used in place.
    pub must_copy: bool,
}

/// Owns a mapping for [`Bytes`].
struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Mapped {
    /// Maps a whole file, read-only.
    pub fn open(path: &Path) -> anyhow::Result<(Bytes, Self)> {
        let open = || {
            let file = File::open(path)?;
            if file.metadata()?.len() == 0 {
                return Ok((Bytes::new(), Self { file, map: Weak::new(), must_copy: false }));
            }
            // SAFETY: the mapping is read-only and owned by the returned bytes. Like every program
            // that maps model files, it relies on the file not being truncated while it is in use.
            let map = Arc::new(unsafe { Mmap::map(&file)? });
            let mapped = Self { file, map: Arc::downgrade(&map), must_copy: false };
            Ok((Bytes::from_owner(Owner(map)), mapped))
        };
        let opened: io::Result<_> = open();
        opened.with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the offset of these bytes in the file, if they belong to it.
    fn place(&self, bytes: &[u8]) -> Option<u64> {
        let map = self.map.upgrade()?;
        let start = bytes.as_ptr().addr().checked_sub(map.as_ptr().addr())?;
        (start + bytes.len() <= map.len()).then_some(start as u64)
    }

    /// Reads from an offset through the file, so that no page of the mapping becomes resident.
    #[cfg(unix)]
    fn read(&self, place: u64, to: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, to, place)
    }

    /// Other systems read through the mapping.
    #[cfg(not(unix))]
    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The mapped files of a model, as the source of its weights.
pub struct Files {
    mapped: Vec<Mapped>,
    /// True if weights that are in memory of this process are copied too.
    moves: bool,
}

impl Files {
    /// Wraps these files. On a machine with several NUMA nodes, weights that one thread has packed
    /// into memory are copied too: they all lie on the node of that thread, not of those that read
    /// them.
    pub fn new(mapped: Vec<Mapped>) -> Self {
        Self { mapped, moves: cores::memory_nodes() > 1 }
    }
}

impl WeightSource for Files {
    fn must_copy(&self, bytes: &[u8]) -> bool {
        let file = self.mapped.iter().find(|file| file.place(bytes).is_some());
        file.map_or(self.moves, |file| file.must_copy)
    }

    fn read(&self, bytes: &[u8], to: &mut [u8]) {
        let read =
            self.mapped.iter().find_map(|file| Some(file.read(file.place(bytes)?, to).is_ok()));
        if read != Some(true) {
            to.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_return_the_mapped_bytes() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut files = Files::new(Vec::new());
        files.moves = false;
        let mut all = Vec::new();
        for length in [100_003, 1, 0] {
            let path = directory.path().join(length.to_string());
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            std::fs::write(&path, &bytes).expect("written");
            let (mapped, mut file) = Mapped::open(&path).expect("there");
            assert_eq!(mapped, bytes);
            file.must_copy = length == 1;
            files.mapped.push(file);
            all.push(mapped);
        }
        let memory = Bytes::from_static(b"of no file");
        for (bytes, must_copy) in all.iter().chain([&memory]).zip([false, true, false, false]) {
            let part = &bytes[bytes.len() / 3..];
            let mut read = vec![0; part.len()];
            files.read(part, &mut read);
            assert_eq!(read, part);
            assert_eq!(files.must_copy(part), must_copy);
        }
        files.moves = true;
        assert!(files.must_copy(&memory) && !files.must_copy(&all[0]));
        all.clear();
        assert!(
            files.mapped.iter().all(|file| file.map.upgrade().is_none()),
            "no bytes are in use"
        );
        let error = map(&directory.path().join("none")).expect_err("not there");
        assert!(format!("{error:#}").contains("none"), "{error:#}");
    }
}
