//! From what the user typed after `--model` to the files of a model.

use crate::default_model::{DEFAULT_MODEL, DEFAULT_NAME};
use crate::hub::{self, HubId};
use crate::mapped;
use crate::select::{Wanted, select};
use anyhow::{Context, bail};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use wrinklefree::format::File;

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
        let file = path.file_name().map(|n| n.to_string_lossy().into_owned());
        return mapped_files(model, [(file.unwrap_or_default(), path.to_path_buf())]);
    }
    match HubId::parse(model) {
        Some(id) => mapped_files(model, hub::fetch(&id, revision)?),
        None => bail!(
            "there is no file or directory {model}, and it is no hub id (org/name, org/name:QUANT \
             or org/name/file.gguf)"
        ),
    }
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
