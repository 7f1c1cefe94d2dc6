//! Files on their way into wasm memory.

use crate::error::Error;
use js_sys::Uint8Array;
use sha2::{Digest, Sha256};
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::format::File;
use wrinklefree::mem::AlignedVec;

/// Bytes by which a file of unknown size grows at least.
const GROWTH: usize = 1 << 20;

/// A file under way: chunks are written where the model will read them.
#[wasm_bindgen]
pub struct Upload {
    name: String,
    bytes: AlignedVec<u8>,
    length: usize,
}

#[wasm_bindgen]
impl Upload {
    /// Room for a file of `size` bytes; 0: unknown, it grows.
    #[wasm_bindgen(constructor)]
    pub fn new(name: String, size: f64) -> Result<Upload, Error> {
        let bytes = room(&name, size)?;
        Ok(Self { name, bytes, length: 0 })
    }

    /// Writes a chunk. Chunks may come in any order, but leave no gaps.
    pub fn write(&mut self, offset: f64, chunk: &Uint8Array) -> Result<(), Error> {
        let offset = offset as usize;
        let end = offset + chunk.length() as usize;
        if offset > self.length {
            let (name, length) = (&self.name, self.length);
            let gap = format!("{name}: a chunk at {offset}, but only {length} bytes before it");
            return Err(Error::bad_request(gap));
        }
        if end > self.bytes.len() {
            self.enlarge(end)?;
        }
        chunk.copy_to(&mut self.bytes[offset..end]);
        self.length = self.length.max(end);
        Ok(())
    }

    /// Bytes written so far.
    #[wasm_bindgen(getter)]
    pub fn length(&self) -> f64 {
        self.length as f64
    }

    /// The SHA-256 of what was written, in hexadecimal.
    pub fn sha256(&self) -> String {
        Sha256::digest(&self.bytes[..self.length]).iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl Upload {
    fn enlarge(&mut self, end: usize) -> Result<(), Error> {
        let size = end.max(self.bytes.len() / 2 * 3).max(self.bytes.len() + GROWTH);
        let mut larger = room(&self.name, size as f64)?;
        larger[..self.length].copy_from_slice(&self.bytes[..self.length]);
        self.bytes = larger;
        Ok(())
    }

    /// The file, where it lies.
    pub fn finish(self) -> File {
        File { name: self.name, bytes: self.bytes.into_bytes().slice(..self.length) }
    }
}

/// Zeroed memory for a file.
fn room(name: &str, size: f64) -> Result<AlignedVec<u8>, Error> {
    let fits = (0.0..f64::from(u32::MAX)).contains(&size);
    let room = fits.then(|| AlignedVec::try_zeroed(size as usize)).flatten();
    room.ok_or_else(|| {
        let megabytes = size / 1e6;
        let message = format!("there is no memory for {name}, {megabytes:.0} MB: a tab holds 4 GB");
        Error::new("out_of_memory", message)
    })
}
