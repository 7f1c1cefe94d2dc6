//! Directories that appear completely or not at all.

use crate::atomic_file::{builder, locked, resolved};
use crate::system;
use anyhow::{Context, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A temporary directory next to its destination, which is removed unless [`DraftDirectory::keep`] is
/// called. After [`signals::watch`](crate::signals::watch) that holds for Ctrl-C as well.
pub struct DraftDirectory {
    directory: TempDir,
    _lock: Option<File>,
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
        let (target, parent) = resolved(target);
        let mut builder = builder();
        system::with_common_mode(&mut builder, true);
        let (directory, lock) = locked(&parent, || builder.tempdir_in(&parent), TempDir::path)
            .with_context(|| format!("cannot write in {}", parent.display()))?;
        Ok(Self { directory, _lock: lock, target })
    }

    /// The current path of the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Moves the directory to its destination. A directory that is there stays until the new one has its
    /// name, and comes back if it does not get it.
    pub fn keep(self) -> anyhow::Result<()> {
        let Self { directory, target, _lock } = self;
        let old = directory.path().with_extension("old");
        let replaces = target.exists();
        if replaces {
            fs::rename(&target, &old)
                .with_context(|| format!("cannot replace {}", target.display()))?;
        }
        if let Err(error) = fs::rename(directory.path(), &target) {
            if replaces {
                fs::rename(&old, &target)
                    .with_context(|| format!("the old directory is now {}", old.display()))?;
            }
            return Err(error).with_context(|| format!("cannot create {}", target.display()));
        }
        // It is where it belongs.
        let _ = directory.keep();
        if replaces {
            fs::remove_dir_all(&old).with_context(|| format!("cannot delete {}", old.display()))?;
        }
        Ok(())
    }
}
