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

/// Parses a file. A byte order mark is skipped. The numbers `NaN` and `Infinity`, which Python writes,
/// are no JSON: they are errors in fields that are read, and elsewhere harmless.
pub(super) fn parse<T: DeserializeOwned>(file: &File) -> Result<T, LoadError> {
    let text = file.bytes.whole();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    let parsed = serde_json::from_slice(text).or_else(|error| match quote_numbers(text) {
        Some(quoted) => serde_json::from_slice(&quoted),
        None => Err(error),
    });
    parsed.map_err(|e| {
        let kind = if e.is_eof() { Kind::Truncated } else { Kind::Malformed };
        LoadError::new(kind, &file.name, "JSON of a model directory", e.to_string())
    })
}

/// Puts quotes around `NaN` and `Infinity` outside of strings; `None` if there are none.
fn quote_numbers(text: &[u8]) -> Option<Vec<u8>> {
    const NUMBERS: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];
    let mut out = Vec::new();
    let (mut rest, mut in_string, mut found) = (text, false, false);
    while let Some(&byte) = rest.first() {
        let number = NUMBERS.into_iter().find(|number| !in_string && rest.starts_with(number));
        let escaped = in_string && byte == b'\\';
        let taken = number.map_or(if escaped { 2 } else { 1 }, <[u8]>::len).min(rest.len());
        let quote = if number.is_some() { &b"\""[..] } else { b"" };
        out.extend([quote, &rest[..taken], quote].concat());
        in_string ^= byte == b'"';
        found |= number.is_some();
        rest = &rest[taken..];
    }
    found.then_some(out)
}
