//! Parses JSON files into structs. Unknown fields are skipped without being stored.

use crate::format::index::File;
use crate::format::{LoadError, LoadErrorKind as Kind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
pub(super) struct ShardIndex {
    /// Tensor name → file name.
    pub(super) weight_map: BTreeMap<String, String>,
}

/// Parses a file.
pub(super) fn parse<T: DeserializeOwned>(file: &File) -> Result<T, LoadError> {
    const POINTER: &[u8] = b"version https://git-lfs";
    let text = file.bytes.whole();
    if text.starts_with(POINTER) {
        return Err(LoadError::new(Kind::Malformed, &file.name, "JSON", "a Git LFS pointer")
            .advice("fetch the real file: git lfs pull"));
    }
    serde_json::from_slice(&text).map_err(|e| {
        let kind = if e.is_eof() { Kind::Truncated } else { Kind::Malformed };
        LoadError::new(kind, &file.name, "JSON of a model directory", e.to_string())
    })
}
