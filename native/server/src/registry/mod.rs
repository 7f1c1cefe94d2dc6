//! The models of a server: which exist, which are in memory, and the requests that wait for one.
//!
//! One thread ([`Loader`]) loads and unloads, one model at a time, so memory is counted without races.
//! A request looks its model up and waits for the loader if the model is not in memory.

pub mod load_queue;
pub mod loader;
pub mod source;
pub mod startup;

pub use loader::{LoadModel, Loader};
pub use source::{Catalog, ModelSource};

use super::access::client::Client;
use super::engine::served_model::ServedModel;
use super::error::ApiError;
use axum::http::StatusCode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// Shortest time between two readings of the folder with the models.
const RESCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Models that an error names.
const NAMED: usize = 10;
/// The requests of one client that wait for a model are at most all without this part of them.
const OTHERS_SHARE: usize = 8;

/// The models of a server.
pub struct ModelRegistry {
    /// True if models are loaded when requests name them; else there is one, loaded at the start.
    on_demand: bool,
    /// Maximum number of requests that wait for a model.
    waiting_limit: usize,
    /// Reads the list of models again; `None` if it is fixed.
    catalog: Option<Catalog>,
    /// True if the only model answers to any name.
    any_name: bool,
    inner: Mutex<Inner>,
    commands: Sender<LoadCommand>,
}

struct Inner {
    entries: Vec<Entry>,
    scanned: Instant,
}

/// A model that exists.
struct Entry {
    source: ModelSource,
    state: EntryState,
    /// Requests that wait for it.
    waiting: Vec<Waiter>,
    /// Reason why it could not be loaded the last time.
    error: Option<String>,
    /// Until then requests get the last error: the files are not read again for each of them.
    broken: Option<(Instant, ApiError)>,
    /// Percentage of a download that is part of loading.
    downloaded: Arc<AtomicU8>,
    /// Time that it stays in memory without requests; `None`: forever.
    keep_alive: Option<Duration>,
    /// Time of the last request for it.
    used: Instant,
}

/// A request that waits for a model.
struct Waiter {
    client: Client,
    answer: oneshot::Sender<Result<Arc<ServedModel>, ApiError>>,
}

/// State of a model.
#[derive(Clone)]
enum EntryState {
    Unloaded,
    Loading,
    Loaded(Arc<ServedModel>),
    /// Its last requests run.
    Unloading,
}

/// A command to the loader.
pub enum LoadCommand {
    /// Load a model, if requests wait for it or `always`.
    Load { name: String, always: bool },
    /// Unload a model when its requests have ended, and answer then.
    Unload { name: String, done: oneshot::Sender<()> },
    /// The engine of a model that is unloaded has ended.
    Ended { name: String },
    /// Unload all models and end.
    Close,
}

/// State of a model, for display.
pub struct ModelStatus {
    /// Name in requests.
    pub name: String,
    /// Further names that lists of models have.
    pub names: Vec<String>,
    /// Other names.
    pub aliases: Vec<String>,
    /// `unloaded`, `loading`, `loaded` or `unloading`.
    pub state: &'static str,
    /// The model, if it is in memory.
    pub served: Option<Arc<ServedModel>>,
    /// Percentage of the download while it is loading.
    pub downloaded: u8,
    /// Reason why it could not be loaded the last time.
    pub error: Option<String>,
    /// Bytes of its files, if they are on disk.
    pub bytes: u64,
    /// Time of the latest change of its files since the Unix epoch, if they are on disk.
    pub modified: Option<Duration>,
    /// Time until it is unloaded, unless requests come; `None` if it stays.
    pub expires_in: Option<Duration>,
}

impl ModelStatus {
    /// Returns the time of the latest change of the files, else of loading, in seconds since the Unix epoch;
    /// `None` for a model that is not on disk yet.
    pub fn changed(&self) -> Option<u64> {
        let loaded = self.served.as_ref().map(|served| served.created);
        self.modified.map(|time| time.as_secs()).or(loaded)
    }

    /// Returns true if a request's `model` field means this model.
    pub fn has_name(&self, name: &str) -> bool {
        let name = name.strip_suffix(":latest").unwrap_or(name);
        self.name == name
            || self.names.iter().chain(&self.aliases).any(|other| other == name)
            || self.served.as_ref().is_some_and(|served| served.has_name(name))
    }
}

/// Result of looking a model up.
enum Found {
    Loaded(Arc<ServedModel>),
    Waits(oneshot::Receiver<Result<Arc<ServedModel>, ApiError>>),
    Unknown,
}

impl ModelRegistry {
    /// Makes the registry of these models, and the receiver for its [`Loader`]. Models with `preload`
    /// are loaded first. Without `on_demand` there is one model, and it is loaded at the start.
    pub fn new(
        sources: Vec<ModelSource>,
        catalog: Option<Catalog>,
        on_demand: bool,
        waiting_limit: usize,
    ) -> (Self, Receiver<LoadCommand>) {
        let (commands, receiver) = mpsc::channel();
        for source in sources.iter().filter(|source| source.preload || !on_demand) {
            let _ = commands.send(LoadCommand::Load { name: source.name.clone(), always: true });
        }
        let entries = sources.into_iter().map(Entry::new).collect();
        let inner = Mutex::new(Inner { entries, scanned: Instant::now() });
        (Self { on_demand, waiting_limit, catalog, any_name: false, inner, commands }, receiver)
    }

    /// Makes the only model answer to any name.
    pub fn with_any_name(self, any_name: bool) -> Self {
        Self { any_name, ..self }
    }

    /// Returns true if models are loaded when requests name them.
    pub fn on_demand(&self) -> bool {
        self.on_demand
    }

    /// Returns the model with this name; without a name the only one. Waits until it is in memory.
    ///
    /// # Errors
    /// 404 for an unknown name, 400 without a name if there are several, 429 if too many requests wait,
    /// 503 while the only model of a server is loading, 500 if it cannot be loaded, and 504 if it is
    /// not loaded at `deadline`.
    pub async fn find(
        self: &Arc<Self>,
        name: Option<&str>,
        client: Client,
        deadline: tokio::time::Instant,
    ) -> Result<Arc<ServedModel>, ApiError> {
        let mut found = self.look_up(name, client)?;
        if matches!(found, Found::Unknown) && self.rescan().await {
            found = self.look_up(name, client)?;
        }
        if matches!(found, Found::Unknown) && self.any_name {
            found = self.look_up(Some("default"), client)?;
        }
        let waits = match found {
            Found::Loaded(served) => return Ok(served),
            Found::Unknown => return Err(self.unknown(name.unwrap_or_default())),
            Found::Waits(waits) => waits,
        };
        match timeout_at(deadline, waits).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ApiError::unavailable("the server is shutting down")),
            Err(_) => {
                let message =
                    "the model was not loaded in the time limit of this server: try again";
                Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message))
            }
        }
    }

    /// Returns a model that is in memory: the one with this name, or without a name the only one.
    ///
    /// # Errors
    /// 404 for an unknown name, 400 without a name if several are in memory, and 503 if it is not.
    pub fn loaded(&self, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
        let inner = self.lock();
        let Some(name) = name.filter(|&name| name != "default") else {
            let mut loaded = inner.entries.iter().filter_map(Entry::served);
            return match (loaded.next(), loaded.next()) {
                (Some(served), None) => Ok(served),
                (Some(_), Some(_)) => Err(self.unnamed(&inner)),
                (None, _) if self.on_demand => Err(ApiError::unavailable("no model is loaded")),
                (None, _) => Err(ApiError::unavailable("the model is loading")),
            };
        };
        match inner.entries.iter().find(|entry| entry.has_name(name)) {
            Some(entry) => entry.served().ok_or_else(|| {
                let state = entry.state.name();
                ApiError::unavailable(format!("the model `{name}` is not in memory ({state})"))
            }),
            None if !self.on_demand && inner.entries.iter().all(|e| e.served().is_none()) => {
                Err(ApiError::unavailable("the model is loading"))
            }
            None => {
                drop(inner);
                Err(self.unknown(name))
            }
        }
    }

    /// Returns the state of all models.
    pub fn list(&self) -> Vec<ModelStatus> {
        self.lock().entries.iter().map(Entry::status).collect()
    }

    /// Describes how far a model is from being in memory; `None` if it is there or unknown.
    pub fn progress(&self, name: &str) -> Option<String> {
        let inner = self.lock();
        let found = match name {
            "" | "default" if inner.entries.len() == 1 => inner.entries.first(),
            _ => inner.entries.iter().find(|entry| entry.has_name(name)),
        };
        let entry = found.filter(|entry| entry.served().is_none())?;
        let name = entry.name();
        Some(match (&entry.state, entry.downloaded.load(Ordering::Relaxed)) {
            (EntryState::Loading, percent @ 1..100) => {
                format!("the model {name} is loading: {percent} % of a file are downloaded")
            }
            (EntryState::Loading, _) => format!("the model {name} is loading"),
            _ => format!("the model {name} waits until it can be loaded"),
        })
    }

    /// Reads the list of models again, if that is possible and was not done just now. Returns true if
    /// it did.
    pub async fn rescan(self: &Arc<Self>) -> bool {
        if self.catalog.is_none() || self.lock().scanned.elapsed() < RESCAN_INTERVAL {
            return false;
        }
        let registry = self.clone();
        tokio::task::spawn_blocking(move || registry.read_catalog()).await.is_ok()
    }

    /// Unloads a model. Its running requests end first.
    ///
    /// # Errors
    /// 404 for an unknown name, and 400 if the server has one model only.
    pub async fn unload(&self, name: &str) -> Result<(), ApiError> {
        let found = self.lock().entries.iter().find(|e| e.has_name(name)).map(Entry::key);
        let Some(name) = found else { return Err(self.unknown(name)) };
        if !self.on_demand {
            let message = "this server has one model, which stays in memory: start it with --models \
                           to load and unload models";
            return Err(ApiError::bad("model", message));
        }
        let (done, unloaded) = oneshot::channel();
        let _ = self.commands.send(LoadCommand::Unload { name, done });
        let _ = unloaded.await;
        Ok(())
    }

    /// Sets how long a model stays in memory without requests; `None`: forever. The only model of a server
    /// always stays.
    pub fn keep_alive(&self, name: &str, time: Option<Duration>) {
        if !self.on_demand {
            return;
        }
        if let Some(entry) = self.lock().entries.iter_mut().find(|entry| entry.has_name(name)) {
            entry.keep_alive = time;
        }
    }

    /// Ends the loader when all models are unloaded. Returns false if a model is loading, which takes
    /// long and cannot be interrupted.
    pub fn close(&self) -> bool {
        let inner = self.lock();
        let _ = self.commands.send(LoadCommand::Close);
        !inner.entries.iter().any(|entry| matches!(entry.state, EntryState::Loading))
            && (self.on_demand || inner.entries.iter().any(|entry| entry.served().is_some()))
    }

    /// Ends the running requests of all models at once.
    pub fn cut(&self) {
        for served in self.lock().entries.iter().filter_map(Entry::served) {
            served.engine.cut();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks a model up. Asks the loader for one that is not in memory.
    fn look_up(&self, name: Option<&str>, client: Client) -> Result<Found, ApiError> {
        let mut inner = self.lock();
        if !self.on_demand {
            let served = inner.entries.iter().find_map(Entry::served);
            let served = served.ok_or_else(|| ApiError::unavailable("the model is loading"))?;
            let has_name = |name| inner.entries.iter().any(|entry| entry.has_name(name));
            return Ok(if name.is_none_or(has_name) {
                Found::Loaded(served)
            } else {
                Found::Unknown
            });
        }
        let entry = match name.filter(|&name| name != "default") {
            None if inner.entries.len() > 1 => return Err(self.unnamed(&inner)),
            None => inner.entries.first_mut(),
            Some(name) => inner.entries.iter_mut().find(|entry| entry.has_name(name)),
        };
        let Some(entry) = entry else { return Ok(Found::Unknown) };
        if let EntryState::Loaded(served) = &entry.state {
            entry.used = Instant::now();
            return Ok(Found::Loaded(served.clone()));
        }
        if let Some((_, error)) = entry.broken.as_ref().filter(|(until, _)| Instant::now() < *until)
        {
            return Err(error.clone());
        }
        entry.waiting.retain(|waiter| !waiter.answer.is_closed());
        let own = entry.waiting.iter().filter(|waiter| waiter.client == client).count();
        let share = self.waiting_limit - self.waiting_limit / OTHERS_SHARE;
        if entry.waiting.len() >= self.waiting_limit || own >= share {
            let message = "too many requests wait for this model to load: try again later";
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message));
        }
        let (answer, waits) = oneshot::channel();
        entry.waiting.push(Waiter { client, answer });
        if entry.waiting.len() == 1 {
            let name = entry.key();
            let _ = self.commands.send(LoadCommand::Load { name, always: false });
        }
        Ok(Found::Waits(waits))
    }

    /// Takes models in that are new, and drops those that are gone and not in memory.
    pub fn read_catalog(&self) {
        let Some(catalog) = &self.catalog else { return };
        let sources = catalog();
        let mut inner = self.lock();
        inner.scanned = Instant::now();
        let there = |entry: &Entry| sources.iter().any(|source| source.is(&entry.source));
        let used = |entry: &Entry| !matches!(entry.state, EntryState::Unloaded);
        inner.entries.retain(|entry| used(entry) || there(entry) || !entry.waiting.is_empty());
        for source in sources {
            match inner.entries.iter_mut().find(|entry| source.is(&entry.source)) {
                Some(entry) => entry.source.take_names(source),
                None => inner.entries.push(Entry::new(source)),
            }
        }
    }

    /// Creates the 404 for an unknown model.
    pub fn unknown(&self, name: &str) -> ApiError {
        let names = self.lock().names();
        let message = format!("the model `{name}` does not exist: this server has {names}");
        let error = ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message);
        ApiError { param: Some("model".into()), ..error }
    }

    /// Creates the 400 for a request that names none of several models.
    fn unnamed(&self, inner: &Inner) -> ApiError {
        let message = format!("this server has several models: name one of {}", inner.names());
        ApiError { code: "missing_field", ..ApiError::bad("model", message) }
    }

    /// Changes an entry.
    fn update<T>(&self, name: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.lock().entries.iter_mut().find(|entry| entry.source.name == name).map(change)
    }
}

impl Inner {
    /// Names the models for an error.
    fn names(&self) -> String {
        let names = self.entries.iter().map(|entry| format!("`{}`", entry.name()));
        let names: Vec<String> = names.take(NAMED + 1).collect();
        match names.len() {
            0 => "none".into(),
            1..=NAMED => names.join(", "),
            _ => format!("{} and more (/v1/models lists them)", names[..NAMED].join(", ")),
        }
    }
}

impl Entry {
    fn new(source: ModelSource) -> Self {
        Self {
            keep_alive: source.keep_alive,
            source,
            state: EntryState::Unloaded,
            waiting: Vec::new(),
            error: None,
            broken: None,
            downloaded: Arc::default(),
            used: Instant::now(),
        }
    }

    /// Returns the name by which the loader knows it.
    fn key(&self) -> String {
        self.source.name.clone()
    }

    /// Returns the model, if it is in memory.
    fn served(&self) -> Option<Arc<ServedModel>> {
        match &self.state {
            EntryState::Loaded(served) => Some(served.clone()),
            _ => None,
        }
    }

    /// Returns the name; a model's own may be known only when it is loaded.
    fn name(&self) -> String {
        self.served().map_or(self.source.name.clone(), |served| served.name.clone())
    }

    fn has_name(&self, name: &str) -> bool {
        self.source.has_name(name) || self.served().is_some_and(|served| served.has_name(name))
    }

    fn status(&self) -> ModelStatus {
        ModelStatus {
            name: self.name(),
            names: self.source.names.clone(),
            aliases: self.source.aliases.clone(),
            state: self.state.name(),
            served: self.served(),
            downloaded: self.downloaded.load(Ordering::Relaxed),
            error: self.error.clone(),
            bytes: self.source.bytes,
            modified: self.source.modified,
            expires_in: self.keep_alive.map(|time| time.saturating_sub(self.used.elapsed())),
        }
    }
}

impl EntryState {
    fn name(&self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Loaded(_) => "loaded",
            Self::Unloading => "unloading",
        }
    }
}
