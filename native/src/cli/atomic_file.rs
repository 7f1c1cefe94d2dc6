//! Files that appear completely or not at all.

use crate::cli::{signals, system};
use anyhow::{Context, bail};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A temporary file beside its destination, which is removed unless [`Draft::keep`] is called.
/// After [`signals::watch`] that holds for Ctrl-C as well.
pub struct Draft {
    file: BufWriter<NamedTempFile>,
    target: PathBuf,
    overwrite: bool,
}

/// Returns the path behind links, and the folder that holds it.
pub fn resolved(target: &Path) -> (PathBuf, PathBuf) {
    let target = target.canonicalize().unwrap_or_else(|_| target.to_owned());
    let parent = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        _ => PathBuf::from("."),
    };
    (target, parent)
}

/// Starts the description of a temporary file or directory.
pub fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".wf-run-").suffix(".tmp");
    builder
}

impl Draft {
    /// Starts the file that will replace `target`, or the file that `target` links to.
    pub fn new(target: &Path, overwrite: bool) -> anyhow::Result<Self> {
        if target.is_dir() {
            bail!("{} is a directory: name a file in it", target.display());
        }
        if target.exists() && !target.is_file() {
            // A device or pipe would be replaced for all other programs too.
            bail!("{} is no regular file: name one that is, or a new one", target.display());
        }
        if target.exists() && !overwrite {
            bail!("{} exists: choose another name or add --force", target.display());
        }
        let (target, parent) = resolved(target);
        let mut builder = builder();
        system::with_common_mode(&mut builder, false);
        let file = signals::temporary(|| builder.tempfile_in(&parent), NamedTempFile::path)
            .with_context(|| format!("cannot write in {}", parent.display()))?;
        Ok(Self { file: BufWriter::new(file), target, overwrite })
    }

    /// Flushes the buffer and returns the current path of the file.
    pub fn finish_writing(&mut self) -> anyhow::Result<&Path> {
        self.file.flush().with_context(|| format!("cannot write {}", self.target.display()))?;
        Ok(self.file.get_ref().path())
    }

    /// Moves the file to its destination.
    pub fn keep(mut self) -> anyhow::Result<()> {
        self.finish_writing()?;
        let temporary = self.file.into_inner().context("cannot finish the temporary file")?;
        temporary.as_file().sync_all().context("cannot finish the temporary file")?;
        let moved = if self.overwrite {
            temporary.persist(&self.target)
        } else {
            temporary.persist_noclobber(&self.target)
        };
        moved.with_context(|| format!("cannot create {}", self.target.display()))?;
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
