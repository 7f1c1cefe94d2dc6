//! The prompt cache on disk (`--cache-dir`): what was computed before a restart is read instead of computed
//! again.
//!
//! After an answer the whole pages of its text go to a file, and the recurrent states at their end. Before a
//! prompt is computed, the longest text that it begins with is read back. A file belongs to one model with
//! its settings and to one API key; nothing of that stands in it, but its name is a digest of all.

pub mod index;

use super::chunk_file::{ChunkReader, ChunkWriter, Magic, invalid};
use super::slots::SlotText;
use super::thread::EngineHandle;
use crate::access::keys::{SharedKeys, Tenant};
use crate::operation::metrics::Metrics;
use anyhow::{Context, bail};
use index::{Index, KnownPart, Segment, TextKey};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::{Semaphore, oneshot};
use wf_run_cli::system;
use wrinklefree::cache::{KvConfig, KvPool, PAGE, SavedError, StateShape};
use wrinklefree::engine::{Engine, Request};
use wrinklefree::format::Spec;

/// First bytes of a file.
const MAGIC: Magic = *b"WFCACHE1";
/// Ending of a file's name.
const SUFFIX: &str = ".wfcache";
/// Name of the file that tells other servers that the folder is in use.
const LOCK: &str = ".lock";
/// Shorter texts are computed faster than they are read.
const MIN_TOKENS: usize = 4 * PAGE;
/// Most bytes of pages that the engine copies between two passes.
const PART: usize = 32 << 20;
/// Room for a file's header and checksums in bytes.
const HEADER: usize = 4096;
/// Most texts that wait to be written; others are dropped.
const MAX_WAITING: usize = 32;
/// Most texts that are read at the same time.
const MAX_READS: usize = 2;

/// The files of all models of a server.
pub struct DiskCache {
    folder: PathBuf,
    /// Maximum size in bytes.
    limit: u64,
    index: Mutex<Index>,
    keys: SharedKeys,
    metrics: Arc<Metrics>,
    /// Permits of the texts that wait to be written, of the one that is, and of those that are read.
    waiting: Arc<Semaphore>,
    writing: Semaphore,
    reading: Semaphore,
    /// Held as long as the server runs.
    _lock: File,
}

/// The first chunk of a file, as JSON. The second one has the keys after its pages.
#[derive(Debug, Deserialize, Serialize)]
struct Header {
    /// Key of the text before it.
    parent: String,
    /// First page.
    first: usize,
    /// Number of pages in each of the next chunks. The recurrent states follow.
    parts: Vec<usize>,
    /// Name of the owner for the limit: a digest of its API key.
    tenant: String,
}

/// A text of a client, and where it is in the cache.
struct CachedText {
    tokens: Vec<u32>,
    salt: String,
    block: usize,
    tenant: String,
    root: TextKey,
    /// Keys after each whole page.
    keys: Vec<TextKey>,
}

/// The engine's answer to pages that it shall cache.
type Restored = oneshot::Receiver<Result<(), SavedError>>;

/// The files of one model.
#[derive(Clone)]
pub struct PromptFiles {
    cache: Arc<DiskCache>,
    /// Properties of the model that decide the bytes of a page.
    identity: Arc<str>,
    page_bytes: usize,
    state_bytes: usize,
}

impl DiskCache {
    /// Opens a folder, or makes it, and reads which texts it holds. Older ones are removed if they take more
    /// than `limit` bytes.
    ///
    /// # Errors
    /// If the folder cannot be used, or another server uses it.
    pub fn open(
        folder: &Path,
        limit: u64,
        keys: SharedKeys,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Arc<Self>> {
        let unusable = || format!("cannot use the folder {} (--cache-dir)", folder.display());
        system::create_private_dir(folder).with_context(unusable)?;
        let lock = File::create(folder.join(LOCK)).with_context(unusable)?;
        if let Err(fs::TryLockError::WouldBlock) = lock.try_lock() {
            bail!(
                "another server uses {}: give each server a --cache-dir of its own",
                folder.display()
            );
        }
        let mut index = scan(folder).with_context(unusable)?;
        for key in index.make_room(0, limit) {
            let _ = fs::remove_file(path(folder, &key));
        }
        tracing::info!(
            folder = %folder.display(),
            texts = index.len(),
            bytes = index.bytes(),
            limit,
            "prompt cache on disk"
        );
        metrics.disk_cache(index.bytes());
        Ok(Arc::new(Self {
            folder: folder.to_owned(),
            limit,
            index: Mutex::new(index),
            keys,
            metrics,
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            writing: Semaphore::new(1),
            reading: Semaphore::new(MAX_READS),
            _lock: lock,
        }))
    }

    /// Returns the name of the owner of a salt; `None` if it has a `cache_salt`, which no file may outlive, or
    /// its key is not accepted any more.
    fn tenant(&self, salt: &str) -> Option<String> {
        let tenant = Tenant(salt.strip_suffix(' ')?.to_owned());
        self.keys.read().unwrap_or_else(PoisonError::into_inner).0.owner(&tenant)
    }

    /// Waits until the texts of all answers so far are written.
    pub async fn written(&self) {
        let _ = self.waiting.acquire_many(MAX_WAITING as u32).await;
    }

    /// Removes a file that cannot be used.
    fn remove(&self, key: &TextKey) {
        let mut index = self.index();
        index.remove(key);
        self.metrics.disk_cache(index.bytes());
        let _ = fs::remove_file(path(&self.folder, key));
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PromptFiles {
    /// Makes the files of a model.
    pub fn new(cache: &Arc<DiskCache>, identity: &str, spec: &Spec, kv: &KvConfig) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self {
            cache: Arc::clone(cache),
            identity: format!("{version} {identity}").into(),
            page_bytes: KvPool::bytes(spec, 1, kv),
            state_bytes: StateShape::of(spec).map_or(0, |shape| shape.snapshot_bytes()),
        }
    }

    /// Reads the beginning of a prompt into the engine's prompt cache, if the disk has more of it.
    pub async fn load(&self, engine: &EngineHandle, request: &Request) {
        // The last token of a prompt is always computed.
        let known = request.tokens.len().saturating_sub(1);
        let block = request.mode.clean_block();
        let Some(text) = self.text(&request.tokens[..known], &request.cache_salt, block) else {
            return;
        };
        if self.find(&text).is_empty() {
            return;
        }
        let Ok(_permit) = self.cache.reading.acquire().await else { return };
        let (files, engine) = (self.clone(), engine.clone());
        let _ = tokio::task::spawn_blocking(move || files.read(&engine, &text)).await;
    }

    fn read(&self, engine: &EngineHandle, text: &CachedText) {
        let place = (text.salt.clone(), text.block);
        let tokens = text.tokens.clone();
        let cached = move |engine: &mut Engine| engine.cached_prefix((&place.0, place.1), &tokens);
        let Some((known, continued)) = engine.run_blocking(cached) else { return };
        let found = self.find(text);
        let Some(last) = found.last() else { return };
        let end = last.pages.end * PAGE;
        if end <= continued {
            return;
        }
        for (index, part) in found.iter().enumerate() {
            let is_last = index + 1 == found.len();
            if part.pages.end * PAGE <= known && !is_last {
                continue;
            }
            let file = path(&self.cache.folder, &part.file);
            match self.read_part(engine, text, part, is_last) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(file = %file.display(), "cached text is not used: {error}");
                    return self.cache.remove(&part.file);
                }
            }
            // The order of use survives a restart.
            let opened = File::options().write(true).open(file);
            let _ = opened.and_then(|file| file.set_modified(SystemTime::now()));
        }
        self.cache.metrics.disk_cache_read(end - continued);
    }

    /// Returns the parts of the longest text on disk that a text begins with and a request could continue.
    fn find(&self, text: &CachedText) -> Vec<KnownPart> {
        self.cache.index().longest(&text.keys, self.state_bytes > 0)
    }

    /// Reads pages of a file into the engine's prompt cache, and the states at their end if they are the last
    /// ones. Returns false if the engine has no room for them, or has ended.
    fn read_part(
        &self,
        engine: &EngineHandle,
        text: &CachedText,
        part: &KnownPart,
        is_last: bool,
    ) -> io::Result<bool> {
        let mut file = ChunkReader::open(&path(&self.cache.folder, &part.file), MAGIC)?;
        let (header, segment) = read_segment(&mut file, 0)?;
        let mut at = segment.first;
        if at != part.pages.start || segment.key() != part.file {
            return Err(invalid("its header names other pages"));
        }
        // The engine copies a chunk while the next one is read.
        let mut copying: Option<Restored> = None;
        let is_copied = |reply: Restored| matches!(reply.blocking_recv(), Ok(Ok(())));
        for pages in header.parts {
            if at == part.pages.end {
                break;
            }
            let chunk = file.next()?;
            let chunk =
                chunk.filter(|chunk| Some(chunk.len()) == pages.checked_mul(self.page_bytes));
            let mut chunk = chunk.ok_or_else(|| invalid("its pages have another size"))?;
            let (first, end) = (at, (at + pages).min(part.pages.end));
            chunk.truncate((end - first) * self.page_bytes);
            if !copying.take().is_none_or(is_copied) {
                return Ok(false);
            }
            let (tokens, place) = (text.up_to(end), text.place());
            let Some(restored) = engine.start_work(move |engine| {
                engine.restore_pages((&place.0, place.1), &tokens, first, &chunk)
            }) else {
                return Ok(false);
            };
            copying = Some(restored);
            at = end;
        }
        if !copying.is_none_or(is_copied) {
            return Ok(false);
        }
        if at != part.pages.end {
            return Err(invalid("it has too few pages"));
        }
        if !is_last || self.state_bytes == 0 {
            return Ok(true);
        }
        let states = file.rest()?;
        if states.len() != self.state_bytes {
            return Err(invalid("its states have another size"));
        }
        let (tokens, place) = (text.up_to(at), text.place());
        let restored = engine.run_blocking(move |engine| {
            engine.restore_states((&place.0, place.1), &tokens, &states)
        });
        Ok(matches!(restored, Some(Ok(()))))
    }

    /// Writes a text after its answer, as far as it is new. Returns at once.
    pub fn store(&self, engine: &EngineHandle, text: &SlotText) {
        let Some(text) = self.text(&text.tokens, &text.salt, text.block) else { return };
        let Ok(waits) = Arc::clone(&self.cache.waiting).try_acquire_owned() else {
            return tracing::warn!("the disk is too slow: a text is not cached");
        };
        let (files, engine) = (self.clone(), engine.clone());
        tokio::spawn(async move {
            let cache = files.cache.clone();
            let Ok(_permit) = cache.writing.acquire().await else { return };
            let written = tokio::task::spawn_blocking(move || files.write(&engine, &text)).await;
            if let Ok(Err(error)) = written {
                tracing::warn!("a text is not cached on disk: {error:#}");
            }
            drop(waits);
        });
    }

    /// Writes the segments of a text that are new, one for each place where a request could continue.
    fn write(&self, engine: &EngineHandle, text: &CachedText) -> anyhow::Result<()> {
        let (tokens, place) = (text.tokens.clone(), text.place());
        let ends = engine
            .run_blocking(move |engine| engine.continuations((&place.0, place.1), &tokens))
            .unwrap_or_default();
        let parts = self.cache.index().longest(&text.keys, false);
        let mut known = parts.last().map_or(0, |part| part.pages.end);
        for end in ends.into_iter().map(|end| end / PAGE) {
            // A text may be known as a part of a longer one, without the states at its end.
            let lacks_states =
                self.state_bytes > 0 && !self.cache.index().ends_with(&text.keys[end - 1]);
            if end > known || lacks_states {
                if !self.write_segment(engine, text, known.min(end)..end)? {
                    break;
                }
                known = known.max(end);
            }
        }
        Ok(())
    }

    /// Writes a segment. Returns false if the engine does not have it any more, or it is too large.
    fn write_segment(
        &self,
        engine: &EngineHandle,
        text: &CachedText,
        pages: Range<usize>,
    ) -> anyhow::Result<bool> {
        let cache = &self.cache;
        let each = self.page_bytes + size_of::<TextKey>();
        let bytes = (pages.len() * each + self.state_bytes + HEADER) as u64;
        if bytes > cache.limit {
            return Ok(false);
        }
        let key = text.keys[pages.end - 1];
        let parent = pages.start.checked_sub(1).map_or(text.root, |before| text.keys[before]);
        let part = (PART / self.page_bytes.max(1)).max(1);
        let parts: Vec<Range<usize>> =
            pages.clone().step_by(part).map(|at| at..(at + part).min(pages.end)).collect();
        let header = Header {
            parent: parent.name(),
            first: pages.start,
            parts: parts.iter().map(Range::len).collect(),
            tenant: text.tenant.clone(),
        };
        let removed = cache.index().make_room(bytes, cache.limit);
        removed.iter().for_each(|key| drop(fs::remove_file(path(&cache.folder, key))));
        let mut file = ChunkWriter::new(&path(&cache.folder, &key), MAGIC)?;
        file.write(&serde_json::to_vec(&header)?)?;
        let keys = text.keys[pages.clone()].to_vec();
        file.write(&keys.iter().flat_map(TextKey::bytes).copied().collect::<Vec<u8>>())?;
        for part in parts {
            let (tokens, place) = (text.up_to(part.end), text.place());
            let saved = engine
                .run_blocking(move |engine| engine.save_pages((&place.0, place.1), &tokens, part));
            let Some(saved) = saved.flatten() else { return Ok(false) };
            file.write(&saved)?;
        }
        if self.state_bytes > 0 {
            let (tokens, place) = (text.up_to(pages.end), text.place());
            let saved =
                engine.run_blocking(move |engine| engine.save_states((&place.0, place.1), &tokens));
            let Some(saved) = saved.flatten() else { return Ok(false) };
            file.write_all(&saved)?;
        }
        let (first, tenant, bytes) = (pages.start, text.tenant.clone(), file.keep()?);
        let mut index = cache.index();
        index.insert(Segment { parent, first, keys, tenant, bytes });
        cache.metrics.disk_cache(index.bytes());
        cache.metrics.disk_cache_written(pages.len() * PAGE);
        Ok(true)
    }

    /// Returns a client's text with its keys; `None` for a short one, or one that no file may hold.
    fn text(&self, tokens: &[u32], salt: &str, block: usize) -> Option<CachedText> {
        if tokens.len() < MIN_TOKENS {
            return None;
        }
        let tenant = self.cache.tenant(salt)?;
        let root = TextKey::root(format!("{}\n{tenant}\n{block}", self.identity).as_bytes());
        let keys = root.after_pages(tokens);
        let (tokens, salt) = (tokens.to_vec(), salt.to_owned());
        Some(CachedText { tokens, salt, block, tenant, root, keys })
    }
}

impl CachedText {
    fn up_to(&self, page: usize) -> Vec<u32> {
        self.tokens[..page * PAGE].to_vec()
    }

    /// Salt and block, as the engine takes them.
    fn place(&self) -> (String, usize) {
        (self.salt.clone(), self.block)
    }
}

fn path(folder: &Path, key: &TextKey) -> PathBuf {
    folder.join(key.name() + SUFFIX)
}

/// Reads the headers of all files, the one that was used last at the end.
fn scan(folder: &Path) -> io::Result<Index> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let key = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).and_then(TextKey::named);
        let Some(key) = key else { continue };
        let metadata = entry.metadata()?;
        let read = ChunkReader::open(&entry.path(), MAGIC)
            .and_then(|mut file| read_segment(&mut file, metadata.len()))
            .and_then(|(_, segment)| {
                if segment.key() == key { Ok(segment) } else { Err(invalid("it has another name")) }
            });
        match read {
            Ok(segment) => found.push((metadata.modified().ok(), segment.first, segment)),
            Err(error) => {
                let file = entry.path();
                tracing::warn!(file = %file.display(), "cached text is removed: {error}");
                let _ = fs::remove_file(file);
            }
        }
    }
    found.sort_by_key(|&(modified, first, _)| (modified, first));
    let mut index = Index::default();
    found.into_iter().for_each(|(.., segment)| index.insert(segment));
    Ok(index)
}

/// Reads the header and the keys of a file of so many bytes.
fn read_segment(file: &mut ChunkReader, bytes: u64) -> io::Result<(Header, Segment)> {
    let header = read_header(file)?;
    let parent =
        TextKey::named(&header.parent).ok_or_else(|| invalid("its header has no parent"))?;
    let keys = file.next()?.ok_or_else(|| invalid("it has no keys"))?;
    let keys: Vec<TextKey> = keys.as_chunks().0.iter().map(TextKey::from_bytes).collect();
    let pages = header.parts.iter().try_fold(0usize, |sum, part| sum.checked_add(*part));
    if pages != Some(keys.len()) || header.first.checked_add(keys.len()).is_none() {
        return Err(invalid("its header names other pages"));
    }
    let (first, tenant) = (header.first, header.tenant.clone());
    Ok((header, Segment { parent, first, keys, tenant, bytes }))
}

fn read_header(file: &mut ChunkReader) -> io::Result<Header> {
    let header = file.next()?.ok_or_else(|| invalid("it has no header"))?;
    serde_json::from_slice(&header).map_err(|_| invalid("it has no header"))
}
