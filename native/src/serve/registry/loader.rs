//! The thread that loads and unloads models.

use super::{EntryState, LoadCommand, ModelSource, Waiter};
use crate::machine;
use crate::models::fit::NotEnoughMemory;
use crate::models::{Loaded, Progress};
use crate::serve::error::ApiError;
use crate::serve::served_model::ServedModel;
use crate::serve::startup::EngineBuilder;
use crate::serve::state::ServerState;
use anyhow::anyhow;
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wrinklefree::model::Runtime;

/// Interval at which models without requests are looked for.
const TICK: Duration = Duration::from_millis(250);

/// Reads a model for a runtime.
pub type LoadModel =
    Box<dyn Fn(&ModelSource, &Runtime, &mut dyn Progress) -> anyhow::Result<Loaded> + Send>;

/// Loads and unloads models, one at a time.
pub struct Loader {
    /// The server, whose registry it changes.
    pub server: Arc<ServerState>,
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
        server: Arc<ServerState>,
        builder: EngineBuilder,
        load: LoadModel,
        tasks: Handle,
        failed: oneshot::Sender<anyhow::Error>,
        memory_limit: Option<u64>,
    ) -> Self {
        let (failed, resident) = (Some(failed), Vec::new());
        Self { server, builder, load, tasks, failed, memory_limit, resident }
    }

    /// Follows commands until the registry is closed.
    pub fn run(mut self, commands: Receiver<LoadCommand>) {
        loop {
            match commands.recv_timeout(TICK) {
                Ok(LoadCommand::Load { name, always }) => self.load(&name, always),
                Ok(LoadCommand::Unload { name, done }) => {
                    self.unload(&name);
                    let _ = done.send(());
                }
                Ok(LoadCommand::Close) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.expire();
        }
        while let Some(resident) = self.resident.last() {
            let name = resident.name.clone();
            self.unload(&name);
        }
    }

    /// Loads a model and hands it to the requests that wait for it.
    fn load(&mut self, name: &str, always: bool) {
        let models = self.server.models.clone();
        let wanted = models.update(name, |entry| {
            entry.waiting.retain(|waiter| !waiter.is_closed());
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
        let started = self.start(&source, downloaded);
        let (state, result, text) = match &started {
            Ok((served, ..)) => (EntryState::Loaded(served.clone()), Ok(served.clone()), None),
            Err(error) => {
                let (status, text) = (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"));
                let message = format!("the model `{name}` cannot be loaded: {text}");
                let error = ApiError::new(status, "model_load_failed", message);
                (EntryState::Unloaded, Err(error), Some(text))
            }
        };
        models.update(name, |entry| {
            (entry.state, entry.error, entry.used) = (state, text, Instant::now());
            answer(std::mem::take(&mut entry.waiting), &result);
        });
        match (started, always.then(|| self.failed.take()).flatten()) {
            (Ok((served, thread, bytes)), _) => {
                let name = name.to_string();
                self.resident.push(Resident { name, served, thread, bytes });
            }
            (Err(error), Some(failed)) => drop(failed.send(error)),
            (Err(error), None) => tracing::error!(model = name, "cannot load: {error:#}"),
        }
    }

    /// Reads a model and starts its engine, after others have made room for it.
    fn start(
        &mut self,
        source: &ModelSource,
        downloaded: Arc<AtomicU8>,
    ) -> anyhow::Result<(Arc<ServedModel>, JoinHandle<()>, u64)> {
        loop {
            let left = self.make_room(source)?;
            match self.start_within(left, source, downloaded.clone()) {
                // The files alone did not show how much it needs.
                Err(error) if lacks_memory(&error) && self.unload_oldest() => {}
                started => return started,
            }
        }
    }

    /// Reads a model and starts its engine in `left` bytes.
    fn start_within(
        &self,
        left: Option<u64>,
        source: &ModelSource,
        downloaded: Arc<AtomicU8>,
    ) -> anyhow::Result<(Arc<ServedModel>, JoinHandle<()>, u64)> {
        let runtime = machine::runtime(self.builder.threads)?;
        let mut progress = LoadProgress { file: String::new(), downloaded, bytes: 0, of: 0 };
        let loaded = (self.load)(source, &runtime, &mut progress)?;
        let builder = self.builder.of_source(source, left);
        let (served, thread, bytes) = builder.start(loaded, runtime, &self.server, &self.tasks)?;
        Ok((Arc::new(served), thread, bytes))
    }

    /// Unloads the models that were not used for the longest time, those without requests first, until
    /// a model fits. Returns the bytes that it may take.
    fn make_room(&mut self, source: &ModelSource) -> anyhow::Result<Option<u64>> {
        let Some(limit) = self.memory_limit else { return Ok(None) };
        let need = self.builder.least_bytes(source.bytes);
        loop {
            let used: u64 = self.resident.iter().map(|resident| resident.bytes).sum();
            let left = limit.saturating_sub(used);
            if left >= need {
                return Ok(Some(left));
            }
            if !self.unload_oldest() {
                return Err(anyhow!(
                    "it needs at least {} MB, but the models of this server may take {} MB: raise \
                     --memory-limit",
                    need.div_ceil(1_000_000),
                    limit / 1_000_000
                ));
            }
        }
    }

    /// Unloads the model that was not used for the longest time, one without requests if there is one.
    /// Returns false if none is in memory.
    fn unload_oldest(&mut self) -> bool {
        let used = |name: &str| self.server.models.update(name, |entry| entry.used);
        let oldest = self.resident.iter().min_by_key(|r| (r.is_busy(), used(&r.name)));
        let Some(name) = oldest.map(|resident| resident.name.clone()) else { return false };
        self.unload(&name);
        true
    }

    /// Unloads a model when its requests have ended.
    fn unload(&mut self, name: &str) {
        let Some(at) = self.resident.iter().position(|resident| resident.name == name) else {
            return;
        };
        let Resident { served, thread, .. } = self.resident.remove(at);
        let models = self.server.models.clone();
        models.update(name, |entry| entry.state = EntryState::Unloading);
        // The engine's thread ends when no handle to it is left.
        drop(served);
        let _ = thread.join();
        models.update(name, |entry| entry.state = EntryState::Unloaded);
        tracing::info!(model = name, "unloaded");
    }

    /// Unloads models that had no request for their time.
    fn expire(&mut self) {
        let models = &self.server.models;
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
            self.unload(&name);
        }
    }
}

/// Returns true if a model was refused because memory is missing.
fn lacks_memory(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<NotEnoughMemory>())
}

/// Answers requests that wait.
fn answer(waiting: Vec<Waiter>, result: &Result<Arc<ServedModel>, ApiError>) {
    for waiter in waiting {
        let _ = waiter.send(result.clone());
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
