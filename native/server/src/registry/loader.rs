//! The thread that loads and unloads models.

use super::load_queue::{LoadQueue, PendingLoad};
use super::startup::EngineBuilder;
use super::{EntryState, LoadCommand, ModelRegistry, ModelSource, Waiter};
use crate::engine::served_model::ServedModel;
use crate::engine::shared::EngineShared;
use crate::error::ApiError;
use anyhow::anyhow;
use axum::http::StatusCode;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wrinklefree::model::Runtime;
use wrinklefree_easy::machine;
use wrinklefree_easy::models::fit::NotEnoughMemory;
use wrinklefree_easy::models::{Loaded, Progress};

/// Time for which a model that could not be loaded is not read again.
const BROKEN: Duration = Duration::from_secs(5);
/// Interval at which models without requests are looked for.
const TICK: Duration = Duration::from_millis(250);

/// Reads a model for a runtime.
pub type LoadModel =
    Box<dyn Fn(&ModelSource, &Runtime, &mut dyn Progress) -> anyhow::Result<Loaded> + Send>;

/// Loads models, one at a time, and unloads them.
///
/// An engine that is unloaded ends when its requests have ended. The loader does not wait for it, but
/// counts its memory until then.
pub struct Loader {
    /// The registry, which it changes.
    pub models: Arc<ModelRegistry>,
    /// State that the engines share.
    pub shared: EngineShared,
    /// Settings of engines.
    pub builder: EngineBuilder,
    /// Reads a model.
    pub load: LoadModel,
    /// Delivers events of requests.
    pub tasks: Handle,
    /// Receives the error of a model that must be loaded at the start.
    pub failed: Option<oneshot::Sender<anyhow::Error>>,
    /// Bytes of all models together; `None`: no limit.
    pub memory_limit: Option<u64>,
    /// Models in memory.
    resident: Vec<Resident>,
    /// Models whose engines end.
    leaving: Vec<Leaving>,
    /// Loads that are asked for, in the order of their commands.
    queue: LoadQueue,
    /// Sends commands to the loader itself.
    commands: Sender<LoadCommand>,
}

/// A model in memory.
struct Resident {
    /// Name of its entry.
    name: String,
    served: Arc<ServedModel>,
    thread: JoinHandle<()>,
    /// Bytes that it may take: weights, KV cache and buffers.
    bytes: u64,
}

/// A model whose last requests run.
struct Leaving {
    name: String,
    bytes: u64,
    /// Senders that answer whoever waits for the end.
    done: Vec<oneshot::Sender<()>>,
}

/// A model in memory with the thread of its engine and its bytes.
type Started = (Arc<ServedModel>, JoinHandle<()>, u64);

/// Reason why a model is not started.
enum NotStarted {
    /// It is, when an engine has ended that is about to.
    Later,
    /// It cannot be.
    Failed(anyhow::Error),
}

impl Resident {
    /// Returns true if requests run or are prepared: the registry and this list hold the two handles
    /// of an unused model.
    fn is_busy(&self) -> bool {
        Arc::strong_count(&self.served) > 2 || self.served.engine.active() > 0
    }
}

impl Loader {
    /// Makes a loader without models.
    pub fn new(
        models: &Arc<ModelRegistry>,
        shared: EngineShared,
        builder: EngineBuilder,
        load: LoadModel,
        tasks: Handle,
        failed: oneshot::Sender<anyhow::Error>,
        memory_limit: Option<u64>,
    ) -> Self {
        let (commands, queue) = (models.commands.clone(), LoadQueue::default());
        let (failed, resident, leaving) = (Some(failed), Vec::new(), Vec::new());
        Self {
            models: Arc::clone(models),
            shared,
            builder,
            load,
            tasks,
            failed,
            memory_limit,
            resident,
            leaving,
            queue,
            commands,
        }
    }

    /// Follows commands until the registry is closed.
    pub fn run(mut self, commands: Receiver<LoadCommand>) {
        let mut open = true;
        while open {
            let mut command = commands.recv_timeout(TICK);
            // All that is asked for is known before the next load, which may take long.
            while let Ok(known) = command {
                open &= self.follow(known);
                command = commands.recv_timeout(Duration::ZERO);
            }
            if let (true, Some(pending)) = (open, self.next_load()) {
                self.load(pending);
            }
            self.expire();
        }
        while let Some(resident) = self.resident.last() {
            let name = resident.name.clone();
            self.unload(&name, None);
        }
        while !self.leaving.is_empty()
            && let Ok(command) = commands.recv()
        {
            if let LoadCommand::Ended { name } = command {
                self.ended(&name);
            }
        }
    }

    /// Follows a command. Returns false if the registry is closed.
    fn follow(&mut self, command: LoadCommand) -> bool {
        match command {
            LoadCommand::Load { name, always } => self.queue.push(name, always),
            LoadCommand::Unload { name, done } => self.unload(&name, Some(done)),
            LoadCommand::Ended { name } => self.ended(&name),
            LoadCommand::Close => return false,
        }
        true
    }

    /// Returns the next model to load, if one can be: not one whose engine still ends.
    fn next_load(&mut self) -> Option<PendingLoad> {
        let models = &self.models;
        let clients = |name: &str| {
            let waiting = models.update(name, |entry| {
                entry.waiting.retain(|waiter| !waiter.answer.is_closed());
                let leaves = matches!(entry.state, EntryState::Unloading);
                (!leaves).then(|| entry.waiting.iter().map(|waiter| waiter.client).collect())
            });
            waiting.unwrap_or_else(|| Some(Vec::new()))
        };
        self.queue.next(clients)
    }

    /// Loads a model and hands it to the requests that wait for it.
    fn load(&mut self, pending: PendingLoad) {
        let (name, always, client) = (pending.name.clone(), pending.always, pending.client);
        let models = self.models.clone();
        let wanted = models.update(&name, |entry| {
            let wanted = always || !entry.waiting.is_empty();
            match &entry.state {
                EntryState::Loaded(served) => {
                    answer(std::mem::take(&mut entry.waiting), &Ok(served.clone()));
                    None
                }
                _ if !wanted => None,
                _ => {
                    entry.state = EntryState::Loading;
                    entry.downloaded.store(0, Ordering::Relaxed);
                    Some((entry.source.clone(), entry.downloaded.clone()))
                }
            }
        });
        let Some(Some((source, downloaded))) = wanted else { return };
        let started = match self.start(&source, downloaded) {
            Err(NotStarted::Later) => {
                models.update(&name, |entry| entry.state = EntryState::Unloaded);
                self.queue.postpone(pending);
                return;
            }
            Err(NotStarted::Failed(error)) => Err(error),
            Ok(started) => Ok(started),
        };
        self.queue.took_turn(client);
        let (state, result, text) = match &started {
            Ok((served, ..)) => (EntryState::Loaded(served.clone()), Ok(served.clone()), None),
            Err(error) => {
                // The log has the server's folders; clients get the names of files.
                let text = without_folders(&format!("{error:#}"));
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                let message = format!("the model `{name}` cannot be loaded: {text}");
                let error = ApiError::new(status, "model_load_failed", message);
                (EntryState::Unloaded, Err(error), Some(text))
            }
        };
        models.update(&name, |entry| {
            (entry.state, entry.error, entry.used) = (state, text, Instant::now());
            entry.broken = result.as_ref().err().map(|e| (Instant::now() + BROKEN, e.clone()));
            answer(std::mem::take(&mut entry.waiting), &result);
        });
        match (started, always.then(|| self.failed.take()).flatten()) {
            (Ok((served, thread, bytes)), _) => {
                self.resident.push(Resident { name, served, thread, bytes });
            }
            (Err(error), Some(failed)) => drop(failed.send(error)),
            (Err(error), None) => tracing::error!(model = name, "loading failed: {error:#}"),
        }
    }

    /// Reads a model and starts its engine, if there is room for it or others can make some.
    fn start(
        &mut self,
        source: &ModelSource,
        downloaded: Arc<AtomicU8>,
    ) -> Result<Started, NotStarted> {
        let left = self.make_room(source)?;
        self.start_within(left, source, downloaded).map_err(|error| {
            // The files alone did not show how much it needs.
            let room = lacks_memory(&error) && (self.unload_oldest() || !self.leaving.is_empty());
            if room { NotStarted::Later } else { NotStarted::Failed(error) }
        })
    }

    /// Reads a model and starts its engine in `left` bytes.
    fn start_within(
        &self,
        left: Option<u64>,
        source: &ModelSource,
        downloaded: Arc<AtomicU8>,
    ) -> anyhow::Result<Started> {
        let runtime = machine::runtime(self.builder.threads)?;
        let mut progress = LoadProgress { file: String::new(), downloaded, bytes: 0, of: 0 };
        let loaded = (self.load)(source, &runtime, &mut progress)?;
        let builder = self.builder.of_source(source, left);
        let (served, thread, bytes) = builder.start(loaded, runtime, &self.shared, &self.tasks)?;
        Ok((Arc::new(served), thread, bytes))
    }

    /// Returns the bytes that a model may take. Unloads the models that were not used for the longest
    /// time, those without requests first, where it needs their room.
    fn make_room(&mut self, source: &ModelSource) -> Result<Option<u64>, NotStarted> {
        let Some(limit) = self.memory_limit else { return Ok(None) };
        let need = self.builder.least_bytes(source.bytes);
        loop {
            let used: u64 = self.resident.iter().map(|resident| resident.bytes).sum();
            let freed: u64 = self.leaving.iter().map(|leaving| leaving.bytes).sum();
            let left = limit.saturating_sub(used + freed);
            if left >= need {
                return Ok(Some(left));
            }
            if limit.saturating_sub(used) >= need {
                return Err(NotStarted::Later);
            }
            if !self.unload_oldest() {
                return Err(NotStarted::Failed(anyhow!(
                    "it needs at least {} MB, but the models of this server may take {} MB: raise \
                     --memory-limit",
                    need.div_ceil(1_000_000),
                    limit / 1_000_000
                )));
            }
        }
    }

    /// Begins to unload the model that was not used for the longest time, one without requests if there
    /// is one. Returns false if none is in memory.
    fn unload_oldest(&mut self) -> bool {
        let used = |name: &str| self.models.update(name, |entry| entry.used);
        let oldest = self.resident.iter().min_by_key(|r| (r.is_busy(), used(&r.name)));
        let Some(name) = oldest.map(|resident| resident.name.clone()) else { return false };
        self.unload(&name, None);
        true
    }

    /// Begins to unload a model, which ends when its requests have ended. Then `done` is answered.
    fn unload(&mut self, name: &str, done: Option<oneshot::Sender<()>>) {
        if let Some(at) = self.resident.iter().position(|resident| resident.name == name) {
            let Resident { served, thread, bytes, .. } = self.resident.remove(at);
            self.models.update(name, |entry| entry.state = EntryState::Unloading);
            // The engine's thread ends when no handle to it is left.
            drop(served);
            self.leaving.push(Leaving { name: name.into(), bytes, done: Vec::new() });
            let (commands, name) = (self.commands.clone(), name.to_string());
            let wait = move || {
                let _ = thread.join();
                let _ = commands.send(LoadCommand::Ended { name });
            };
            if let Err(error) = thread::Builder::new().name("unload".into()).spawn(wait) {
                tracing::error!(%error, "cannot wait for an engine: its memory counts as used");
            }
        }
        // Dropping it answers, too.
        if let Some(leaving) = self.leaving.iter_mut().find(|leaving| leaving.name == name) {
            leaving.done.extend(done);
        }
    }

    /// The engine of a model has ended: its memory is free.
    fn ended(&mut self, name: &str) {
        let Some(at) = self.leaving.iter().position(|leaving| leaving.name == name) else { return };
        let Leaving { done, .. } = self.leaving.remove(at);
        self.models.update(name, |entry| entry.state = EntryState::Unloaded);
        // The only model of a server has no name here.
        tracing::info!(model = (!name.is_empty()).then_some(name), "unloaded");
        done.into_iter().for_each(|done| _ = done.send(()));
        self.queue.retry();
    }

    /// Unloads models that had no request for their time.
    fn expire(&mut self) {
        let models = &self.models;
        let expired = self.resident.iter().find(|resident| {
            let unused = models.update(&resident.name, |entry| {
                if resident.is_busy() {
                    entry.used = Instant::now();
                }
                entry.keep_alive.is_some_and(|time| entry.used.elapsed() >= time)
            });
            unused == Some(true)
        });
        if let Some(name) = expired.map(|resident| resident.name.clone()) {
            self.unload(&name, None);
        }
    }
}

/// Returns true if a model was refused because memory is missing.
fn lacks_memory(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<NotEnoughMemory>())
}

/// Returns a text in which only the names of files are left of their places.
fn without_folders(text: &str) -> String {
    let word = |word: &str| {
        let begin = word.find(['/', '\\']).unwrap_or(0);
        let (before, path) =
            word.split_at(word[..begin].rfind(['`', '"', '(', '=']).map_or(0, |at| at + 1));
        let end = path.trim_end_matches(['`', '"', ')', ':', ',', ';', '.']).len();
        let (path, after) = path.split_at(end);
        let path = Path::new(path);
        match path.file_name() {
            Some(name) if path.is_absolute() => {
                format!("{before}{}{after}", name.to_string_lossy())
            }
            _ => word.to_string(),
        }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Answers requests that wait.
fn answer(waiting: Vec<Waiter>, result: &Result<Arc<ServedModel>, ApiError>) {
    for waiter in waiting {
        let _ = waiter.answer.send(result.clone());
    }
}

/// Logs downloads, because the server's standard error has log lines only, and counts their bytes.
struct LoadProgress {
    file: String,
    downloaded: Arc<AtomicU8>,
    bytes: u64,
    of: u64,
}

impl Progress for LoadProgress {
    fn download_started(&mut self, file: &str, bytes: u64) {
        if self.file != file {
            self.file = file.into();
            tracing::info!(file, bytes, "downloading");
        }
        (self.bytes, self.of) = (0, bytes);
    }

    fn downloaded(&mut self, bytes: u64) {
        self.bytes += bytes;
        let percent = (self.bytes * 100).checked_div(self.of).unwrap_or(0).min(100);
        self.downloaded.store(percent as u8, Ordering::Relaxed);
    }

    fn download_interrupted(&mut self, file: &str, reason: &str) {
        tracing::warn!(file, reason, "the download broke off: resuming");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn clients_learn_no_folders() {
        let text =
            "cannot read /srv/models/a/model.gguf: no file (`/srv/x.json`, and/or \"/a/b\").";
        let want = "cannot read model.gguf: no file (`x.json`, and/or \"b\").";
        assert_eq!(without_folders(text), want);
    }
}
