//! The download of one file: resumed where it broke, and checked before it gets its name.

use super::cache::Repository;
use super::client::{Client, Description};
use super::error::Failure;
use super::names;
use crate::models::Progress;
use ring::digest::{Context, SHA256};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of attempts after the first one that may bring little.
const RESUMES: u32 = 4;
/// Bytes after which an attempt was worth it, so that a long download survives many breaks.
const MUCH: u64 = 4 << 20;
/// Bytes that are read at once.
const BUFFER: usize = 128 << 10;

/// A file of a repository at a commit. Its name was checked.
pub struct Download<'a> {
    pub client: &'a Client,
    pub repository: &'a Repository,
    pub repo: &'a str,
    pub commit: &'a str,
    pub name: &'a str,
}

impl Download<'_> {
    /// Downloads the file and returns its place in the cache. Only failures that may pass are tried
    /// again.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<PathBuf, Failure> {
        let mut failures = 0;
        loop {
            let mut received = 0;
            let failure = match self.attempt(&mut received, progress) {
                Err(failure) if failure.is_transient() => failure,
                done => return done,
            };
            failures = if received >= MUCH { 0 } else { failures };
            if failures == RESUMES || progress.is_cancelled() {
                return Err(failure);
            }
            progress.download_interrupted(self.name, &failure.reason());
            std::thread::sleep(Duration::from_millis(250 << failures));
            failures += 1;
        }
    }

    /// Counts the bytes that arrived in `received`.
    fn attempt(&self, received: &mut u64, progress: &mut dyn Progress) -> Result<PathBuf, Failure> {
        let url = self.client.url(self.repo, self.commit, self.name);
        let file = self.client.describe(&url, self.commit)?;
        let _lock = self.repository.lock(&file.blob)?;
        if !self.repository.blob(&file.blob).exists() {
            self.receive(&url, &file, received, progress)?;
        }
        Ok(self.repository.link(self.commit, self.name, &file.blob)?)
    }

    /// Makes the blob.
    fn receive(
        &self,
        url: &str,
        file: &Description,
        received: &mut u64,
        progress: &mut dyn Progress,
    ) -> Result<(), Failure> {
        let path = self.repository.part(&file.blob);
        let hash = names::sha256(&file.blob);
        let mut part = Part::open(&path)?;
        // A part that is whole is of use if that can be checked.
        let is_whole = file.size == Some(part.size) && hash.is_some();
        if file.size.is_some_and(|size| part.size >= size) && !is_whole {
            part.restart()?;
        }
        let resumed = part.size;
        if !is_whole {
            self.append(url, file.size, &mut part, progress)?;
            *received += part.size - resumed.min(part.size);
        }
        match part.finish()? {
            found if hash.as_ref().is_none_or(|hash| *hash == found) => {}
            _ if resumed > 0 => {
                // The old part was wrong.
                fs::remove_file(&path)?;
                return self.receive(url, file, received, progress);
            }
            found => {
                fs::remove_file(&path)?;
                return Err(Failure::Refused(format!(
                    "the bytes that arrived have the SHA-256 {found} instead of {}: the file was \
                     damaged or replaced on the way",
                    hash.unwrap_or_default()
                )));
            }
        }
        fs::rename(path, self.repository.blob(&file.blob))?;
        progress.download_finished();
        Ok(())
    }

    /// Adds the bytes that a part lacks.
    fn append(
        &self,
        url: &str,
        size: Option<u64>,
        part: &mut Part,
        progress: &mut dyn Progress,
    ) -> Result<(), Failure> {
        let mut contents = self.client.contents(url, part.size)?;
        let announced = size.or(contents.total);
        let size = announced
            .ok_or_else(|| Failure::Refused("it does not say how long the file is".into()))?;
        if let Some(total) = contents.total.filter(|total| *total != size) {
            let what = format!("it sends {total} bytes instead of {size}");
            return Err(Failure::Refused(what));
        }
        if contents.start != part.size {
            part.restart()?; // the server sends the file from its beginning
        }
        progress.download_started(self.name, size);
        progress.downloaded(part.size);
        let mut buffer = vec![0; BUFFER];
        while part.size < size {
            let room = BUFFER.min(usize::try_from(size - part.size).unwrap_or(BUFFER));
            let count = read(&mut contents.reader, &mut buffer[..room])?;
            if count == 0 {
                let what = format!("the connection ended after {} of {size} bytes", part.size);
                return Err(Failure::Unreachable(what));
            }
            part.write(&buffer[..count])?;
            progress.downloaded(count as u64);
            if progress.is_cancelled() {
                return Err(Failure::Local("the download was cancelled".into()));
            }
        }
        if contents.total.is_none() && read(&mut contents.reader, &mut buffer[..1])? > 0 {
            return Err(Failure::Refused(format!("it sends more than {size} bytes")));
        }
        Ok(())
    }
}

/// Reads from the network.
fn read(reader: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, Failure> {
    loop {
        match reader.read(buffer) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done.map_err(|e| Failure::Unreachable(e.to_string())),
        }
    }
}

/// The first bytes of a file, and their hash.
struct Part {
    file: File,
    hash: Context,
    size: u64,
}

impl Part {
    /// Opens the part that an earlier attempt left, or an empty one.
    fn open(path: &Path) -> io::Result<Self> {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut part = Self { file, hash: Context::new(&SHA256), size: 0 };
        let mut buffer = vec![0; BUFFER];
        loop {
            match part.file.read(&mut buffer)? {
                0 => return Ok(part),
                count => part.count(&buffer[..count]),
            }
        }
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.count(bytes);
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        (self.hash, self.size) = (Context::new(&SHA256), 0);
        Ok(())
    }

    /// Brings the bytes to the disk and returns their SHA-256 in hexadecimal digits.
    fn finish(self) -> io::Result<String> {
        self.file.sync_all()?;
        let digits = self.hash.finish();
        Ok(digits.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
