//! The cache's layout, which all clients of the hub share: `blobs/<tag>` holds contents,
//! `snapshots/<commit>/<path>` links to them, and `refs/<revision>` names a commit.

use super::error::Failure;
use super::names;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds to wait for another process that downloads the same file.
const PATIENCE: u32 = 5;

/// The folder of one repository.
pub struct Repository {
    folder: PathBuf,
    locks: PathBuf,
}

/// Excludes other processes as long as it exists.
pub struct Lock {
    _file: Option<File>,
}

impl Repository {
    /// Names the folder of `repo` (`org/name`, already checked) in a cache.
    pub fn new(cache: &Path, repo: &str) -> Self {
        let name = format!("models--{}", repo.replace('/', "--"));
        Self { locks: cache.join(".locks").join(&name), folder: cache.join(name) }
    }

    /// Returns the folder with the files of a commit.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Returns the path of a blob.
    pub fn blob(&self, blob: &str) -> PathBuf {
        self.folder.join("blobs").join(blob)
    }

    /// Returns the path of a blob's first bytes while it is downloaded.
    pub fn part(&self, blob: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{blob}.part"))
    }

    /// Returns the commit that the cache has for a branch, tag or commit.
    pub fn commit(&self, revision: &str) -> Option<String> {
        let reference = self.reference(revision);
        let commit = fs::read_to_string(reference).unwrap_or_else(|_| revision.into());
        let commit = commit.trim();
        (names::is_commit(commit) && self.snapshot(commit).is_dir()).then(|| commit.into())
    }

    /// Returns the commit of the branch `main`, or else the latest one that the cache has.
    pub fn latest(&self) -> Option<String> {
        let snapshots = || {
            let entries = self.folder.join("snapshots").read_dir().into_iter().flatten().flatten();
            let dated = entries.filter_map(|entry| {
                Some((entry.metadata().ok()?.modified().ok()?, entry.file_name()))
            });
            let (_, name) = dated.max()?;
            Some(name.to_string_lossy().into_owned()).filter(|name| names::is_commit(name))
        };
        self.commit("main").or_else(snapshots)
    }

    /// Deletes the whole repository.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.locks) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::remove_dir_all(&self.folder)
    }

    /// Deletes a file of a snapshot, and its contents.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        let blob = path.canonicalize()?;
        fs::remove_file(path)?;
        // The contents of a link are deleted only where this repository keeps them.
        let blobs = self.folder.join("blobs").canonicalize();
        if blobs.is_ok_and(|blobs| blob.parent() == Some(&blobs)) {
            fs::remove_file(blob)
        } else {
            Ok(())
        }
    }

    fn reference(&self, revision: &str) -> PathBuf {
        self.folder.join("refs").join(revision)
    }

    /// Remembers the commit of a branch or tag.
    pub fn refer(&self, revision: &str, commit: &str) -> io::Result<()> {
        let reference = self.reference(revision);
        if revision == commit || fs::read_to_string(&reference).is_ok_and(|old| old == commit) {
            return Ok(());
        }
        create_parent(&reference)?;
        // A program that reads it meanwhile sees the old commit or the new one.
        let new = self.folder.join(format!("{commit}.{}.ref", std::process::id()));
        fs::write(&new, commit)?;
        fs::rename(new, reference)
    }

    /// Waits a little for other processes that download this blob, and excludes them.
    pub fn lock(&self, blob: &str) -> Result<Lock, Failure> {
        fs::create_dir_all(&self.locks)?;
        fs::create_dir_all(self.folder.join("blobs"))?;
        let path = self.locks.join(format!("{blob}.lock"));
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        for _ in 0..PATIENCE {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: Some(file) }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_secs(1)),
                // A file system without locks.
                Err(TryLockError::Error(_)) => return Ok(Lock { _file: None }),
            }
        }
        Err(Failure::Busy)
    }

    /// Makes the snapshot of a commit have a file with the contents of a blob. The caller holds the
    /// blob's lock.
    pub fn link(&self, commit: &str, name: &str, blob: &str) -> io::Result<PathBuf> {
        let path = self.snapshot(commit).join(name);
        create_parent(&path)?;
        let up = "../".repeat(name.split('/').count() + 1);
        let new = self.folder.join("blobs").join(format!("{blob}.link"));
        match fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        link(Path::new(&format!("{up}blobs/{blob}")), &self.blob(blob), &new)?;
        // Replaces a link to a blob that is gone.
        fs::rename(new, &path)?;
        Ok(path)
    }
}

fn create_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

#[cfg(unix)]
fn link(relative: &Path, _: &Path, new: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(relative, new)
}

/// Systems where links need a permission get a second name of the same file.
#[cfg(not(unix))]
fn link(_: &Path, blob: &Path, new: &Path) -> io::Result<()> {
    fs::hard_link(blob, new).or_else(|_| fs::copy(blob, new).map(drop))
}

/// Lists every file below a directory, as `a/b.gguf`.
pub fn names_below(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![(directory.to_path_buf(), String::new())];
    while let Some((path, prefix)) = open.pop() {
        for entry in path.read_dir().into_iter().flatten().flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                open.push((entry.path(), name + "/"));
            } else if entry.path().exists() {
                names.push(name); // and not a link to a blob that is gone
            }
        }
    }
    names.sort();
    names
}

/// Returns the shards that the index names and the directory lacks, if any.
pub fn missing_shards(directory: &Path, picked: &[String]) -> Option<Vec<String>> {
    let index = picked.iter().find(|n| n.ends_with(".index.json"))?;
    let text = fs::read_to_string(directory.join(index)).ok()?;
    let index: serde_json::Value = serde_json::from_str(&text).ok()?;
    let shards = index.get("weight_map")?.as_object()?.values().filter_map(|v| v.as_str());
    let lacks = |s: &&str| names::is_path(s) && !directory.join(s).exists();
    let mut missing: Vec<String> = shards.filter(lacks).map(Into::into).collect();
    missing.sort();
    missing.dedup();
    (!missing.is_empty()).then_some(missing)
}
