//! Upload of files into wasm memory.

use crate::error::Error;
use js_sys::Uint8Array;
use sha2::{Digest, Sha256};
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::format::{File, NoMemory, StreamedFile};

/// A file that is being uploaded. Its chunks are written where the model reads them.
#[wasm_bindgen]
pub struct Upload {
    name: String,
    /// Size of the complete file in bytes; 0 if unknown.
    size: f64,
    file: StreamedFile,
}

#[wasm_bindgen]
impl Upload {
    /// Begins a file of `size` bytes; 0 means unknown.
    #[wasm_bindgen(constructor)]
    pub fn new(name: String, size: f64) -> Result<Upload, Error> {
        let bytes = size as usize;
        if bytes as f64 != size {
            return Err(too_large(&name, size));
        }
        Ok(Self { name, size, file: StreamedFile::new((bytes > 0).then_some(bytes)) })
    }

    /// Appends a chunk.
    pub fn write(&mut self, chunk: &Uint8Array) -> Result<(), Error> {
        let mut at = 0;
        while at < chunk.length() {
            let known = self.size.max(self.file.len() as f64 + f64::from(chunk.length() - at));
            let room = self.file.buffer().map_err(|NoMemory(_)| too_large(&self.name, known))?;
            let end = chunk.length().min(at.saturating_add(room.len() as u32));
            let bytes = (end - at) as usize;
            chunk.subarray(at, end).copy_to(&mut room[..bytes]);
            self.file.advance(bytes);
            at = end;
        }
        Ok(())
    }

    /// Number of bytes written so far.
    #[wasm_bindgen(getter)]
    pub fn length(&self) -> f64 {
        self.file.len() as f64
    }

    /// Returns the SHA-256 of the bytes written, in hexadecimal.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        self.file.chunks().for_each(|chunk| hash.update(chunk));
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl Upload {
    /// Returns the complete file without copying it.
    pub fn finish(self) -> File {
        File { name: self.name, bytes: self.file.finish() }
    }
}

fn too_large(name: &str, bytes: f64) -> Error {
    let megabytes = bytes / 1e6;
    let message =
        format!("not enough memory for {name} ({megabytes:.0} MB): a tab has at most 4 GB");
    Error::new("out_of_memory", message)
}
