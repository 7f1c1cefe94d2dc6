//! Files on their way into wasm memory.

use crate::error::Error;
use js_sys::Uint8Array;
use sha2::{Digest, Sha256};
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::format::{File, NoMemory, StreamedFile};

/// A file under way: chunks are written where the model will read them.
#[wasm_bindgen]
pub struct Upload {
    name: String,
    /// Bytes that it will have; 0: unknown.
    size: f64,
    file: StreamedFile,
}

#[wasm_bindgen]
impl Upload {
    /// A file of `size` bytes; 0: unknown.
    #[wasm_bindgen(constructor)]
    pub fn new(name: String, size: f64) -> Result<Upload, Error> {
        let bytes = size as usize;
        if bytes as f64 != size {
            return Err(too_large(&name, size));
        }
        Ok(Self { name, size, file: StreamedFile::new((bytes > 0).then_some(bytes)) })
    }

    /// Writes the chunk that comes next.
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

    /// Bytes written so far.
    #[wasm_bindgen(getter)]
    pub fn length(&self) -> f64 {
        self.file.len() as f64
    }

    /// The SHA-256 of what was written, in hexadecimal.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        self.file.chunks().for_each(|chunk| hash.update(chunk));
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl Upload {
    /// The file, where it lies.
    pub fn finish(self) -> File {
        File { name: self.name, bytes: self.file.finish() }
    }
}

fn too_large(name: &str, bytes: f64) -> Error {
    let megabytes = bytes / 1e6;
    let message = format!("there is no memory for {name}, {megabytes:.0} MB: a tab holds 4 GB");
    Error::new("out_of_memory", message)
}
