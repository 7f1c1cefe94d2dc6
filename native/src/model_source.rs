//! From what the user typed after `--model` to the files of a model.

use crate::default_model::{DEFAULT_MODEL, DEFAULT_NAME};
use crate::hub::{self, HubId};
use crate::machine;
use crate::mapped::{self, Files, Mapped};
use crate::select::{self, Wanted, select};
use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wrinklefree::format::File;

/// What packed files, which are whole models, call their format.
const PACKED: &str = "wrinklefree";
/// Bytes of a file up to which small pages cost little: caches hold most of it.
const SMALL: usize = 64 << 20;

/// Where those weights of a packed file stand that are right as they are. What other formats hold is
/// packed into memory anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    Auto,
    Mapped,
    Copied,
}

impl Placement {
    /// Whether weights leave a file.
    fn copies(self, bytes: &[u8]) -> bool {
        let ample = || machine::free_memory().is_some_and(|free| free / 2 >= bytes.len() as u64);
        let chosen = match self {
            Self::Auto => bytes.len() > SMALL && ample(),
            Self::Mapped => false,
            Self::Copied => true,
        };
        chosen && format(bytes).is_some_and(|format| format.as_deref() == Some(PACKED))
    }
}

/// The files of a model and what to call it.
pub struct Source {
    /// Name in output.
    pub name: String,
    /// Mapped.
    pub files: Vec<File>,
    /// The same as what the weights come from.
    pub origin: Files,
}

/// Opens a path, a hub id, or without either the model inside the program.
pub fn open(model: Option<&str>, revision: &str, place: Placement) -> anyhow::Result<Source> {
    let Some(model) = model else { return Ok(embedded()) };
    let path = Path::new(model);
    if path.is_dir() {
        let names = names_in(path)?;
        let picked = select(&names, &Wanted::Any).with_context(|| format!("directory {model}"))?;
        return files(model, picked.into_iter().map(|n| (n.clone(), path.join(n))), place);
    }
    if path.exists() {
        return file(model, path, place);
    }
    match HubId::parse(model) {
        Some(id) => files(model, hub::fetch(&id, revision)?, place),
        None => bail!(
            "there is no file or directory {model}, and it is no hub id (org/name, org/name:QUANT \
             or org/name/file.gguf)"
        ),
    }
}

/// A file that is a whole model, or a part of one and what stands beside it.
fn file(model: &str, path: &Path, place: Placement) -> anyhow::Result<Source> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !is_part(&mapped::map(path)?) {
        return files(model, [(name, path.to_path_buf())], place);
    }
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let picked = select::beside(&names_in(directory)?, &name);
    files(model, picked.into_iter().map(|n| (n.clone(), directory.join(n))), place)
}

/// Whether a file is safetensors as others write them: weights alone, without a configuration.
fn is_part(bytes: &[u8]) -> bool {
    format(bytes).is_some_and(|format| format.as_deref() != Some(PACKED))
}

/// What a safetensors file calls its format, if anything; `None` for other files.
fn format(bytes: &[u8]) -> Option<Option<String>> {
    #[derive(Deserialize)]
    struct Header {
        #[serde(default, rename = "__metadata__")]
        metadata: BTreeMap<String, String>,
    }
    let (length, rest) = bytes.split_first_chunk()?;
    let text = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let mut header: Header = serde_json::from_slice(text).ok()?;
    Some(header.metadata.remove("format"))
}

fn embedded() -> Source {
    let file = File { name: format!("{DEFAULT_NAME}.safetensors"), bytes: DEFAULT_MODEL.into() };
    Source { name: DEFAULT_NAME.into(), files: vec![file], origin: Files::new(Vec::new()) }
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

fn files(
    model: &str,
    paths: impl IntoIterator<Item = (String, PathBuf)>,
    place: Placement,
) -> anyhow::Result<Source> {
    let open = |(name, path): (String, PathBuf)| {
        let (bytes, mut mapped) = Mapped::open(&path)?;
        mapped.must_copy = place.copies(&bytes);
        Ok((File { name, bytes: bytes.into() }, mapped))
    };
    let name = Path::new(model).file_name().map_or(model.into(), |n| n.to_string_lossy());
    let opened: Vec<_> = paths.into_iter().map(open).collect::<anyhow::Result<_>>()?;
    let (files, mapped) = opened.into_iter().unzip();
    Ok(Source { name: name.into_owned(), files, origin: Files::new(mapped) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packed file of so many bytes, as far as its header says.
    fn packed(bytes: usize) -> Vec<u8> {
        let header = br#"{"__metadata__":{"format":"wrinklefree"}}"#;
        let mut file = [&(header.len() as u64).to_le_bytes()[..], header].concat();
        file.resize(bytes.max(file.len()), 0);
        file
    }

    #[test]
    fn packed_files_are_copied_where_that_is_worth_it() {
        assert!(Placement::Copied.copies(&packed(0)));
        assert!(!Placement::Auto.copies(&packed(0)), "caches hold it");
        let large = packed(SMALL + 1);
        let ample = machine::free_memory().is_some_and(|free| free > 4 * SMALL as u64);
        assert_eq!(Placement::Auto.copies(&large), ample);
        assert!(!Placement::Mapped.copies(&large));
    }

    #[test]
    fn what_becomes_packed_anyway_stays() {
        let header = b"{}";
        let weights = [&(header.len() as u64).to_le_bytes()[..], header].concat();
        for other in [&weights[..], b"GGUF", b""] {
            assert!(!Placement::Copied.copies(other), "{other:?}");
        }
    }
}
