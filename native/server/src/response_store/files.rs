//! Stored responses in a folder (`--cache-dir`), so that clients can go on from them after a restart.

use super::stored::StoredResponse;
use crate::access::keys::{SharedKeys, Tenant};
use crate::engine::chunk_file::{ChunkReader, ChunkWriter, Magic, invalid};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;
use std::{fs, io, thread};
use tokio::sync::oneshot;

/// First bytes of a file.
const MAGIC: Magic = *b"WFRESP1\n";
/// Ending of a file's name.
const SUFFIX: &str = ".wfresponse";
/// Most bytes that wait to be written; other responses stay in memory alone.
const MAX_WAITING: usize = 64 << 20;

/// Files of responses. A thread of their own writes them, in order.
pub struct ResponseFiles {
    keys: SharedKeys,
    commands: Sender<FileCommand>,
    /// Bytes that wait to be written.
    waiting: Arc<AtomicUsize>,
}

/// Responses with their tenants and ids.
pub type FoundResponses = Vec<(Tenant, String, StoredResponse)>;

enum FileCommand {
    Write { owner: Owner, stored: StoredResponse },
    Remove(Owner),
    Flush(oneshot::Sender<()>),
}

/// The first chunk of a file, as JSON; the response and the messages of its conversation follow.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Owner {
    /// Name of the tenant: a digest of its API key; empty without keys.
    tenant: String,
    /// Id of the response.
    id: String,
}

impl ResponseFiles {
    /// Opens a folder, or makes it. Also returns the responses of the accepted keys, the oldest first.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(folder: PathBuf, keys: SharedKeys) -> io::Result<(Arc<Self>, FoundResponses)> {
        fs::create_dir_all(&folder)?;
        let tenants = keys.read().unwrap_or_else(PoisonError::into_inner).0.tenants();
        let mut found: Vec<(Option<SystemTime>, Tenant, String, StoredResponse)> = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if !path.to_str().is_some_and(|path| path.ends_with(SUFFIX)) {
                continue;
            }
            match read(&path) {
                Ok((Owner { tenant, id }, stored)) => {
                    let tenant = tenants.iter().find(|(name, _)| *name == tenant);
                    let Some((_, tenant)) = tenant else { continue };
                    let written = fs::metadata(&path)?.modified().ok();
                    found.push((written, tenant.clone(), id, stored));
                }
                Err(error) => {
                    tracing::warn!(file = %path.display(), "stored response is removed: {error}");
                    let _ = fs::remove_file(&path);
                }
            }
        }
        found.sort_by(|one, other| (one.0, &one.2).cmp(&(other.0, &other.2)));
        let (commands, receiver) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&waiting);
        thread::Builder::new()
            .name("responses".into())
            .spawn(move || write_all(&folder, &receiver, &written))?;
        let found = found.into_iter().map(|(_, tenant, id, stored)| (tenant, id, stored)).collect();
        Ok((Arc::new(Self { keys, commands, waiting }), found))
    }

    /// Writes a response, soon.
    pub fn write(&self, tenant: &Tenant, id: &str, stored: StoredResponse) {
        let Some(owner) = self.owner(tenant, id) else { return };
        let bytes = stored.bytes();
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) > MAX_WAITING {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            return tracing::warn!("the disk is too slow: a response is stored in memory alone");
        }
        let _ = self.commands.send(FileCommand::Write { owner, stored });
    }

    /// Removes a response, soon.
    pub fn remove(&self, tenant: &Tenant, id: &str) {
        if let Some(owner) = self.owner(tenant, id) {
            let _ = self.commands.send(FileCommand::Remove(owner));
        }
    }

    /// Waits until all is written.
    pub async fn written(&self) {
        let (reply, replied) = oneshot::channel();
        let _ = self.commands.send(FileCommand::Flush(reply));
        let _ = replied.await;
    }

    /// Returns the owner of a response; `None` if its key is not accepted any more.
    fn owner(&self, tenant: &Tenant, id: &str) -> Option<Owner> {
        let tenant = self.keys.read().unwrap_or_else(PoisonError::into_inner).0.owner(tenant)?;
        Some(Owner { tenant, id: id.to_owned() })
    }
}

fn write_all(folder: &Path, commands: &Receiver<FileCommand>, waiting: &AtomicUsize) {
    for command in commands {
        match command {
            FileCommand::Write { owner, stored } => {
                if let Err(error) = write(&path(folder, &owner), &owner, &stored) {
                    tracing::warn!("a response is not stored on disk: {error:#}");
                }
                waiting.fetch_sub(stored.bytes(), Ordering::Relaxed);
            }
            FileCommand::Remove(owner) => drop(fs::remove_file(path(folder, &owner))),
            FileCommand::Flush(reply) => drop(reply.send(())),
        }
    }
}

fn path(folder: &Path, Owner { tenant, id }: &Owner) -> PathBuf {
    let name = digest(&SHA256, format!("{tenant} {id}").as_bytes());
    let name: String = name.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(name + SUFFIX)
}

fn write(path: &Path, owner: &Owner, stored: &StoredResponse) -> anyhow::Result<()> {
    let mut file = ChunkWriter::new(path, MAGIC)?;
    file.write(&serde_json::to_vec(owner)?)?;
    for text in [&stored.response].into_iter().chain(&stored.messages) {
        file.write(text.as_bytes())?;
    }
    file.keep()?;
    Ok(())
}

fn read(path: &Path) -> io::Result<(Owner, StoredResponse)> {
    let mut file = ChunkReader::open(path, MAGIC)?;
    let mut chunk = || file.next();
    let owner = chunk()?.ok_or_else(|| invalid("it has no header"))?;
    let owner = serde_json::from_slice(&owner).map_err(|_| invalid("it has no header"))?;
    let mut texts = Vec::new();
    while let Some(text) = chunk()? {
        let text = String::from_utf8(text).map_err(|_| invalid("it is not UTF-8"))?;
        texts.push(Arc::<str>::from(text));
    }
    if texts.is_empty() {
        return Err(invalid("it has no response"));
    }
    let response = texts.remove(0);
    Ok((owner, StoredResponse { response, messages: texts }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keys::{ApiKeys, NamedKey};
    use std::sync::RwLock;

    fn keys(names: &[&str]) -> SharedKeys {
        let named = names.iter().map(|key| NamedKey { key: (*key).into(), name: None });
        Arc::new(RwLock::new((ApiKeys::new(named), names.len() as u64)))
    }

    #[tokio::test]
    async fn responses_come_back_to_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let open = |names: &[&str]| ResponseFiles::open(folder.path().into(), keys(names)).unwrap();
        let stored =
            |text: &str| StoredResponse { response: text.into(), messages: vec!["[]".into()] };
        let (ann, bob) = (Tenant("1".into()), Tenant("2".into()));
        let (files, found) = open(&["ann", "bob"]);
        assert!(found.is_empty());
        for (tenant, id) in [(&ann, "first"), (&bob, "first"), (&ann, "gone")] {
            files.write(tenant, id, stored(&format!("{} {id}", tenant.0)));
        }
        files.remove(&ann, "gone");
        files.write(&Tenant("9".into()), "of nobody", stored("x"));
        files.written().await;
        // Another order of the keys gives them other numbers.
        let (_, mut found) = open(&["bob", "ann"]);
        found.sort_by(|one, other| one.2.response.cmp(&other.2.response));
        let want = [(&bob, "1 first"), (&ann, "2 first")]
            .map(|(tenant, text)| (tenant.clone(), "first".to_owned(), stored(text)));
        assert_eq!(found, want);
        assert_eq!(open(&["bob"]).1.len(), 1);
        for entry in fs::read_dir(folder.path()).unwrap() {
            fs::write(entry.unwrap().path(), "WFRESP1\nnonsense").unwrap();
        }
        assert_eq!(open(&["ann", "bob"]).1, []);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
