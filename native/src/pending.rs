//! Stand-ins for what `wrinklefree::format` will provide, with its signatures.

use bytes::Bytes;
use std::io::Write;
use wrinklefree::format::Checkpoint;

/// A named file.
pub struct File {
    pub name: String,
    pub bytes: Bytes,
}

/// Why files are no model.
#[derive(Debug)]
pub struct LoadError;

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this build cannot load models yet")
    }
}

impl std::error::Error for LoadError {}

/// Element types of a head.
#[derive(Clone, Copy, Debug)]
pub enum HeadType {
    F16,
    Q8,
}

/// Files → checkpoint.
pub fn load(files: &[File]) -> Result<Checkpoint, LoadError> {
    let _: Vec<_> = files.iter().map(|f| (&f.name, &f.bytes)).collect();
    Err(LoadError)
}

/// `Checkpoint::with_head`.
pub trait WithHead: Sized {
    fn with_head(self, head: HeadType) -> Result<Self, LoadError>;
}

impl WithHead for Checkpoint {
    fn with_head(self, _head: HeadType) -> Result<Self, LoadError> {
        Err(LoadError)
    }
}

/// Checkpoint → packed file.
pub fn write_packed(_: &Checkpoint, _: Option<&[u8]>, _: &mut dyn Write) -> std::io::Result<()> {
    Err(std::io::Error::other(LoadError))
}
