//! Directories that appear completely or not at all.

use crate::cli::{signals, system};
use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A temporary directory beside its destination, which is removed unless [`DraftDirectory::keep`] is
/// called. After [`signals::watch`] that holds for Ctrl-C as well.
pub struct DraftDirectory {
    directory: TempDir,
    target: PathBuf,
}

impl DraftDirectory {
    /// Starts the directory that will become `target`. With `overwrite` it replaces a directory that
    /// holds the file `marker`.
    pub fn new(target: &Path, overwrite: bool, marker: &str) -> anyhow::Result<Self> {
        if target.exists() {
            ensure!(target.is_dir(), "{} is no directory: choose another name", target.display());
            let mut entries =
                target.read_dir().with_context(|| format!("cannot list {}", target.display()))?;
            if entries.next().is_some() {
                if !overwrite {
                    let name = target.display();
                    bail!("{name} is not empty: choose another name or add --force");
                }
                ensure!(
                    target.join(marker).is_file(),
                    "{} has no {marker}: --force replaces directories of models only",
                    target.display()
                );
            }
        }
        let target = &target.canonicalize().unwrap_or_else(|_| target.to_owned());
        let parent = match target.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".wf-run-").suffix(".tmp");
        system::with_common_mode(&mut builder, true);
        let directory = signals::temporary(|| builder.tempdir_in(parent), TempDir::path)
            .with_context(|| format!("cannot write in {}", parent.display()))?;
        Ok(Self { directory, target: target.clone() })
    }

    /// The current path of the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Moves the directory to its destination.
    pub fn keep(self) -> anyhow::Result<()> {
        let Self { directory, target } = self;
        if target.exists() {
            fs::remove_dir_all(&target)
                .with_context(|| format!("cannot replace {}", target.display()))?;
        }
        fs::rename(directory.path(), &target)
            .with_context(|| format!("cannot create {}", target.display()))?;
        // It is where it belongs.
        let _ = directory.keep();
        Ok(())
    }
}
