//! Files as memory: the only `unsafe` of the command line.

use anyhow::Context;
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

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
