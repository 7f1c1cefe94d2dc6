//! From what the user typed after `--model` to the files of a model.

use crate::default_model::{DEFAULT_MODEL, DEFAULT_NAME};
use crate::hub::{self, HubId};
use crate::mapped;
use crate::select::{self, Wanted, select};
use anyhow::{Context, bail};
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wrinklefree::format::File;

/// What packed files, which are whole models, call their format.
const PACKED: &str = "wrinklefree";

/// The files of a model and what to call it.
pub struct Source {
    /// Name in output.
    pub name: String,
    /// Mapped, not read.
    pub files: Vec<File>,
}

/// Opens a path, a hub id, or without either the model inside the program.
pub fn open(model: Option<&str>, revision: &str) -> anyhow::Result<Source> {
    let Some(model) = model else { return Ok(embedded()) };
    let path = Path::new(model);
    if path.is_dir() {
        let names = names_in(path)?;
        let picked = select(&names, &Wanted::Any).with_context(|| format!("directory {model}"))?;
        return mapped_files(model, picked.into_iter().map(|n| (n.clone(), path.join(n))));
    }
    if path.exists() {
        return file(model, path);
    }
    match HubId::parse(model) {
        Some(id) => mapped_files(model, hub::fetch(&id, revision)?),
        None => bail!(
            "there is no file or directory {model}, and it is no hub id (org/name, org/name:QUANT \
             or org/name/file.gguf)"
        ),
    }
}

/// A file that is a whole model, or a part of one and what stands beside it.
fn file(model: &str, path: &Path) -> anyhow::Result<Source> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !is_part(&mapped::map(path)?) {
        return mapped_files(model, [(name, path.to_path_buf())]);
    }
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let picked = select::beside(&names_in(directory)?, &name);
    mapped_files(model, picked.into_iter().map(|n| (n.clone(), directory.join(n))))
}

/// Whether a file is safetensors as others write them: weights alone, without a configuration.
fn is_part(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Header {
        #[serde(default, rename = "__metadata__")]
        metadata: BTreeMap<String, String>,
    }
    let header = || {
        let (length, rest) = bytes.split_first_chunk()?;
        let text = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        serde_json::from_slice::<Header>(text).ok()
    };
    header().is_some_and(|h| h.metadata.get("format").is_none_or(|f| f != PACKED))
}

fn embedded() -> Source {
    let file = File {
        name: format!("{DEFAULT_NAME}.safetensors"),
        bytes: Bytes::from_static(DEFAULT_MODEL),
    };
    Source { name: DEFAULT_NAME.into(), files: vec![file] }
}

fn names_in(directory: &Path) -> anyhow::Result<Vec<String>> {
    let read = || {
        let mut names = Vec::new();
        for entry in directory.read_dir()? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    };
    read()
        .map_err(|e: std::io::Error| e)
        .with_context(|| format!("cannot list {}", directory.display()))
}

fn mapped_files(
    model: &str,
    paths: impl IntoIterator<Item = (String, PathBuf)>,
) -> anyhow::Result<Source> {
    let map = |(name, path): (String, PathBuf)| Ok(File { name, bytes: mapped::map(&path)? });
    let name = Path::new(model).file_name().map_or(model.into(), |n| n.to_string_lossy());
    let files = paths.into_iter().map(map).collect::<anyhow::Result<_>>()?;
    Ok(Source { name: name.into_owned(), files })
}
