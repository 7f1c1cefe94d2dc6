//! Files of chunks, each with a checksum: what is read is what was written, or an error.

use anyhow::Context;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use wf_run_cli::atomic_file::Draft;

/// First bytes of a file: its kind and the version of its format.
pub type Magic = [u8; 8];

/// Maximum number of bytes of a chunk.
pub const MAX_CHUNK: usize = 64 << 20;
/// Bytes before a chunk: its length and its CRC-32, little-endian.
const HEAD: usize = 8;

/// Writes a file that appears when it is complete.
pub struct ChunkWriter {
    draft: Draft,
    bytes: u64,
}

impl ChunkWriter {
    /// Starts the file that will replace `path`.
    ///
    /// # Errors
    /// If its folder cannot be written.
    pub fn new(path: &Path, magic: Magic) -> anyhow::Result<Self> {
        let mut draft = Draft::new(path, true)?;
        draft.write_all(&magic)?;
        Ok(Self { draft, bytes: magic.len() as u64 })
    }

    /// Writes a chunk of at most [`MAX_CHUNK`] bytes.
    ///
    /// # Errors
    /// If the disk is full, or broken.
    pub fn write(&mut self, chunk: &[u8]) -> anyhow::Result<()> {
        let length = u32::try_from(chunk.len()).context("a chunk of 4 GiB")?;
        for part in [&length.to_le_bytes(), &crc32fast::hash(chunk).to_le_bytes(), chunk] {
            self.draft.write_all(part).context("cannot write a chunk")?;
        }
        self.bytes += (HEAD + chunk.len()) as u64;
        Ok(())
    }

    /// Writes any number of bytes, in chunks.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_all(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        bytes.chunks(MAX_CHUNK).try_for_each(|chunk| self.write(chunk))
    }

    /// Completes the file. Returns its size in bytes.
    ///
    /// # Errors
    /// If the disk is full, or broken.
    pub fn keep(self) -> anyhow::Result<u64> {
        self.draft.keep()?;
        Ok(self.bytes)
    }
}

/// Reads a file.
pub struct ChunkReader {
    file: File,
    left: u64,
}

impl ChunkReader {
    /// Opens a file with these first bytes.
    ///
    /// # Errors
    /// If it cannot be read; [`io::ErrorKind::InvalidData`] for a file of another kind.
    pub fn open(path: &Path, magic: Magic) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut found = Magic::default();
        let left =
            length.checked_sub(found.len() as u64).ok_or_else(|| invalid("it is too short"))?;
        file.read_exact(&mut found)?;
        if found != magic {
            return Err(invalid("it is of another kind"));
        }
        Ok(Self { file, left })
    }

    /// Reads the next chunk; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read; [`io::ErrorKind::InvalidData`] if it is damaged.
    pub fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.left == 0 {
            return Ok(None);
        }
        let cut = || invalid("it ends in a chunk");
        self.left = self.left.checked_sub(HEAD as u64).ok_or_else(cut)?;
        let (mut length, mut crc) = ([0; 4], [0; 4]);
        self.file.read_exact(&mut length)?;
        self.file.read_exact(&mut crc)?;
        let length = u32::from_le_bytes(length);
        self.left = self.left.checked_sub(length.into()).ok_or_else(cut)?;
        if length as usize > MAX_CHUNK {
            return Err(invalid("a chunk is too long"));
        }
        let mut chunk = vec![0; length as usize];
        self.file.read_exact(&mut chunk)?;
        if crc32fast::hash(&chunk) != u32::from_le_bytes(crc) {
            return Err(invalid("a chunk has another checksum"));
        }
        Ok(Some(chunk))
    }

    /// Reads all chunks that are left, joined.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(chunk) = self.next()? {
            all.extend(chunk);
        }
        Ok(all)
    }
}

/// Returns the error of a damaged file.
pub fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const KIND: Magic = *b"WFTEST1\n";

    #[test]
    fn every_damage_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chunks");
        let mut writer = ChunkWriter::new(&path, KIND).unwrap();
        writer.write(b"first").unwrap();
        writer.write_all(b"second").unwrap();
        let size = writer.keep().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, size);
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let mut reader = ChunkReader::open(&path, KIND)?;
            Ok::<_, io::Error>((reader.next()?, reader.rest()?, reader.next()?))
        };
        let whole = read(&bytes).unwrap();
        assert_eq!(whole, (Some(b"first".to_vec()), b"second".to_vec(), None));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 64;
            assert_eq!(read(&changed).unwrap_err().kind(), io::ErrorKind::InvalidData, "{at}");
            let cut = read(&bytes[..at]);
            // A file that ends after a chunk is whole as far as it goes.
            assert!(cut.is_err() || [8, 21].contains(&at), "{at}");
        }
    }
}
