//! Finds and maps the files of a model: a path, a hub id, or the embedded model.

#[cfg(feature = "default-model")]
use super::default_model::{DEFAULT_MODEL, DEFAULT_NAME};
#[cfg(feature = "hub")]
use super::hub::{self, HubId};
use super::mapped::{self, Files, Mapped};
use super::model_files::{self, Wanted, select};
#[cfg(feature = "hub")]
use super::store::is_elsewhere;
use super::{OpenError, Progress};
use crate::machine;
use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use wrinklefree::format::File;

/// Name of the packed format in a file's metadata. A packed file is a whole model.
const PACKED: &str = "wrinklefree";
/// File size up to which small pages cost little, because caches hold most of the file.
const SMALL: usize = 64 << 20;

/// Place of the weights of a packed file. Other formats are repacked into memory anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Copied if the file is larger than caches and memory is ample, else mapped.
    #[default]
    Auto,
    /// In the file's own pages, which all processes share.
    Mapped,
    /// In memory of this process, which can use huge pages.
    Copied,
}

impl Placement {
    /// All choices.
    pub const ALL: &[Self] = &[Self::Auto, Self::Mapped, Self::Copied];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mapped => "mapped",
            Self::Copied => "copied",
        }
    }

    /// Returns true if the weights of a file are copied out of it.
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
    /// Contents.
    pub files: Vec<File>,
    /// The same files as the source of weights.
    pub mapped: Files,
}

/// Opens a path or a hub id; `None` opens the embedded model.
pub fn open(
    model: Option<&OsStr>,
    revision: &str,
    placement: Placement,
    progress: &mut dyn Progress,
) -> Result<Source, OpenError> {
    let Some(model) = model else { return embedded() };
    let path = Path::new(model);
    if !path.exists() {
        return from_hub(&model.to_string_lossy(), revision, placement, progress);
    }
    on_disk(path, placement)
        .map_err(|cause| OpenError::Files { model: model.to_string_lossy().into(), cause })
}

/// Opens a directory or a file.
fn on_disk(path: &Path, placement: Placement) -> anyhow::Result<Source> {
    if path.is_dir() { directory(path, placement) } else { file(path, placement) }
}

/// Opens the only model of a directory.
fn directory(path: &Path, placement: Placement) -> anyhow::Result<Source> {
    let there = files_in(path)?;
    let picked = select(&names(&there), &Wanted::Any);
    let picked = picked.with_context(|| format!("directory {}", path.display()))?;
    files(path, placed(picked, there), placement)
}

/// Opens a hub id.
#[cfg(feature = "hub")]
fn from_hub(
    model: &str,
    revision: &str,
    placement: Placement,
    progress: &mut dyn Progress,
) -> Result<Source, OpenError> {
    let named = super::store::Store::from_env().id_of(model);
    let failed = |cause| OpenError::Files { model: model.into(), cause };
    let named = named.map_err(failed)?;
    if let Some(path) = named.as_deref().filter(|id| is_elsewhere(id)) {
        let opened = on_disk(Path::new(path), placement);
        return opened
            .with_context(|| format!("the name {model} of the store stands for {path}"))
            .map_err(failed);
    }
    let id = HubId::parse(named.as_deref().unwrap_or(model)).ok_or_else(|| OpenError::NotFound {
        model: model.into(),
        hub: "it is no hub id (org/name, org/name:QUANT or org/name/file.gguf) and no name of the \
              store (wf-run list)",
    })?;
    let fetched = hub::fetch(&id, revision, progress)
        .map_err(|cause| OpenError::Download { model: model.into(), cause })?;
    files(Path::new(model), fetched, placement).map_err(failed)
}

/// This build cannot download.
#[cfg(not(feature = "hub"))]
fn from_hub(model: &str, _: &str, _: Placement, _: &mut dyn Progress) -> Result<Source, OpenError> {
    let hub = "models of the hub need the feature `hub` of wrinklefree-easy";
    Err(OpenError::NotFound { model: model.into(), hub })
}

/// Opens a file: a whole model, or a part of one together with the files next to it.
fn file(path: &Path, placement: Placement) -> anyhow::Result<Source> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let split = model_files::is_split(&name);
    if !split && !is_part(&mapped::map(path)?) {
        return files(path, vec![(name, path.into())], placement);
    }
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut there = files_in(directory)?;
    // Two names that are not UTF-8 can look the same: this one is meant.
    there.retain(|(other, _)| *other != name);
    there.push((name.clone(), path.into()));
    let names = names(&there);
    let wanted = if split {
        model_files::parts(&names, &name)
    } else {
        model_files::files_of_model(&names, &name)
    };
    files(path, placed(wanted, there), placement)
}

/// Returns true for safetensors as other programs write them: weights without a configuration.
fn is_part(bytes: &[u8]) -> bool {
    format(bytes).is_some_and(|format| format.as_deref() != Some(PACKED))
}

/// Returns the format that a safetensors file names, if any; `None` for other files.
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

#[cfg(not(feature = "default-model"))]
fn embedded() -> Result<Source, OpenError> {
    Err(OpenError::NoEmbeddedModel)
}

#[cfg(feature = "default-model")]
fn embedded() -> Result<Source, OpenError> {
    let file = File { name: format!("{DEFAULT_NAME}.safetensors"), bytes: DEFAULT_MODEL.into() };
    Ok(Source { name: DEFAULT_NAME.into(), files: vec![file], mapped: Files::new(Vec::new()) })
}

/// Lists a directory and the folder of an adapter in it, sorted: names for output, and paths. Names that
/// are not UTF-8 have signs in place of the wrong bytes.
fn files_in(directory: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let read = || {
        let mut files = Vec::new();
        for entry in directory.read_dir()? {
            let entry = entry?;
            files.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
        for entry in directory.join(model_files::ADAPTER).read_dir().into_iter().flatten() {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            files.push((format!("{}/{name}", model_files::ADAPTER), entry.path()));
        }
        files.sort();
        Ok(files)
    };
    read()
        .map_err(|e: std::io::Error| e)
        .with_context(|| format!("cannot list {}", directory.display()))
}

fn names(files: &[(String, PathBuf)]) -> Vec<String> {
    files.iter().map(|(name, _)| name.clone()).collect()
}

/// Returns the files with these names.
fn placed(names: Vec<String>, files: Vec<(String, PathBuf)>) -> Vec<(String, PathBuf)> {
    let mut places: BTreeMap<String, PathBuf> = files.into_iter().collect();
    names.into_iter().filter_map(|name| places.remove_entry(&name)).collect()
}

fn files(
    model: &Path,
    paths: Vec<(String, PathBuf)>,
    placement: Placement,
) -> anyhow::Result<Source> {
    let open = |(name, path): (String, PathBuf)| {
        let (bytes, mut mapped) = Mapped::open(&path)?;
        mapped.must_copy = placement.copies(&bytes);
        Ok((File { name, bytes: bytes.into() }, mapped))
    };
    let name = model.file_name().unwrap_or(model.as_os_str()).to_string_lossy();
    let opened: Vec<_> = paths.into_iter().map(open).collect::<anyhow::Result<_>>()?;
    let (files, mapped) = opened.into_iter().unzip();
    Ok(Source { name: name.into_owned(), files, mapped: Files::new(mapped) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of `bytes` bytes with the header of a packed file.
    fn packed(bytes: usize) -> Vec<u8> {
        let header = br#"{"__metadata__":{"format":"wrinklefree"}}"#;
        let mut file = [&(header.len() as u64).to_le_bytes()[..], header].concat();
        file.resize(bytes.max(file.len()), 0);
        file
    }

    #[test]
    fn packed_files_are_copied_if_that_pays() {
        assert!(Placement::Copied.copies(&packed(0)));
        assert!(!Placement::Auto.copies(&packed(0)), "caches hold it");
        let large = packed(SMALL + 1);
        let ample = machine::free_memory().is_some_and(|free| free > 4 * SMALL as u64);
        assert_eq!(Placement::Auto.copies(&large), ample);
        assert!(!Placement::Mapped.copies(&large));
    }

    #[test]
    fn files_that_are_repacked_anyway_are_not_copied() {
        let header = b"{}";
        let weights = [&(header.len() as u64).to_le_bytes()[..], header].concat();
        for other in [&weights[..], b"GGUF", b""] {
            assert!(!Placement::Copied.copies(other), "{other:?}");
        }
    }
}
