//! Files that appear completely or not at all.

use crate::{out, signals, system};
use anyhow::{Context, bail};
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A temporary file next to its destination, which is removed unless [`Draft::keep`] is called.
/// After [`signals::watch`] that holds for Ctrl-C as well.
pub struct Draft {
    file: BufWriter<NamedTempFile>,
    _lock: Option<File>,
    target: PathBuf,
    overwrite: bool,
}

/// Returns the path that links lead to, and the folder that holds it.
pub fn resolved(target: &Path) -> (PathBuf, PathBuf) {
    let target = target.canonicalize().unwrap_or_else(|_| target.to_owned());
    let parent = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        _ => PathBuf::from("."),
    };
    (target, parent)
}

/// Beginning and end of the names of temporary files and directories.
const PREFIX: &str = ".wf-run-";
const SUFFIX: &str = ".tmp";
/// Attempts to make a temporary file that no other process removes before it is locked.
const ATTEMPTS: usize = 16;

/// Starts the description of a temporary file or directory.
pub fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    builder
}

/// Makes a temporary file or directory in `folder`, with a lock that tells other processes that it is in use.
/// First it removes those that ended processes have left there.
pub(crate) fn locked<T>(
    folder: &Path,
    make: impl Fn() -> io::Result<T>,
    path: impl Fn(&T) -> &Path,
) -> io::Result<(T, Option<File>)> {
    remove_left(folder);
    for _ in 0..ATTEMPTS {
        let made = signals::temporary(&make, &path)?;
        // Another process may have taken it for one that was left.
        match lock(path(&made)) {
            Ok(lock) if path(&made).exists() => return Ok((made, lock)),
            _ => {}
        }
    }
    Err(io::Error::other("other programs remove its temporary files"))
}

/// Locks a file or directory; `None` where the system or the file system has no such locks.
///
/// # Errors
/// If another process holds the lock.
fn lock(path: &Path) -> Result<Option<File>, TryLockError> {
    let file = File::open(path).ok().filter(|_| system::locked_files_are_readable());
    let Some(file) = file else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(busy) => Err(busy),
    }
}

/// Removes the temporary files and directories in a folder that no process holds: those of programs that were
/// killed.
fn remove_left(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let random = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
        let ours = random.is_some_and(|random| random.bytes().all(|c| c.is_ascii_alphanumeric()));
        let Ok(kind) = entry.file_type() else { continue };
        // Opening a pipe would wait for ever.
        if !ours || !(kind.is_file() || kind.is_dir()) {
            continue;
        }
        let Ok(Some(_lock)) = lock(&path) else { continue };
        let removed =
            if kind.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if removed.is_ok() {
            out::note(format_args!("removed {}, which a killed program left", path.display()));
        }
    }
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
        let (file, lock) = locked(&parent, || builder.tempfile_in(&parent), NamedTempFile::path)
            .with_context(|| format!("cannot write in {}", parent.display()))?;
        Ok(Self { file: BufWriter::new(file), _lock: lock, target, overwrite })
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
