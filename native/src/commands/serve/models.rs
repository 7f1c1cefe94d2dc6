//! The models of a server, from its configuration.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wf_run_cli::args::ModelArgs;
use wf_run_cli::config::{Bytes, KeepAlive, ModelEntry};
use wf_run_cli::exit::usage;
use wf_run_server::{Catalog, ModelSource, Models};
use wrinklefree_easy::machine;
use wrinklefree_easy::models::OpenOptions;
use wrinklefree_easy::models::store::{Store, StoredModel, in_folder};

/// The folder that stands for the local store.
const STORE: &str = "store";

/// Settings of the models of a server.
pub struct ModelSettings<'a> {
    /// Options of how models are opened, and the only model of a server without `folder` and `list`.
    pub args: &'a ModelArgs,
    /// Folder of models.
    pub folder: Option<PathBuf>,
    /// Models of the configuration file.
    pub list: Vec<ModelEntry>,
    /// Time in memory without requests.
    pub keep_alive: KeepAlive,
    /// Bytes of all of them.
    pub memory_limit: Option<Bytes>,
    /// Further names of the only model that are listed.
    pub names: Vec<String>,
    /// Its names that are not listed.
    pub aliases: Vec<String>,
    /// True if the only model answers to any name.
    pub any_name: bool,
}

impl ModelSettings<'_> {
    /// Returns the models.
    ///
    /// # Errors
    /// If the folder cannot be read or is itself a model.
    pub fn models(self) -> anyhow::Result<Models> {
        let options = self.args.options(false);
        if self.folder.is_none() && self.list.is_empty() {
            let (names, aliases, any_name) = (self.names, self.aliases, self.any_name);
            let only = source(String::new(), options, KeepAlive(None));
            let source = ModelSource { names, aliases, preload: true, ..only };
            let sources = vec![source];
            let (catalog, on_demand, memory_limit) = (None, false, None);
            return Ok(Models { sources, catalog, on_demand, memory_limit, any_name });
        }
        if !self.aliases.is_empty() || self.any_name {
            return Err(usage("--alias and --any-model are for a server of one model"));
        }
        if options.model.is_some() {
            return Err(usage("--model names one model, but the list `models` names several"));
        }
        let listed: Vec<ModelSource> =
            self.list.into_iter().map(|entry| listed(entry, &options, self.keep_alive)).collect();
        let (mut sources, mut catalog) = (listed.clone(), None);
        if let Some(folder) = self.folder {
            let options = OpenOptions { model: None, ..options };
            sources = with_folder(&listed, &folder, &options, self.keep_alive)?;
            let read: Catalog = Box::new(move || {
                // A folder that cannot be read at the moment has the models of the list alone.
                with_folder(&listed, &folder, &options, self.keep_alive).unwrap_or(listed.clone())
            });
            catalog = Some(read);
        }
        if sources.is_empty() {
            tracing::warn!("there are no models yet: wf-run pull downloads some");
        }
        let free = || machine::free_memory().map(|free| free / 10 * 9);
        let memory_limit = self.memory_limit.map(|Bytes(limit)| limit).or_else(free);
        Ok(Models { sources, catalog, on_demand: true, memory_limit, any_name: false })
    }
}

/// Returns a source with the server's settings.
fn source(name: String, open: OpenOptions, KeepAlive(keep_alive): KeepAlive) -> ModelSource {
    let (names, aliases, context, preload) = (Vec::new(), Vec::new(), None, false);
    let (draft_threshold, bytes, modified) = (None, 0, None);
    ModelSource {
        name,
        names,
        aliases,
        open,
        draft_threshold,
        context,
        keep_alive,
        preload,
        bytes,
        modified,
    }
}

/// Returns the source of a model of the configuration file.
fn listed(entry: ModelEntry, options: &OpenOptions, keep_alive: KeepAlive) -> ModelSource {
    let ModelEntry { name, model_path, revision, aliases, context, preload, drafter, .. } = entry;
    let draft_threshold = entry.draft_threshold;
    let revision = revision.unwrap_or(options.revision.clone());
    let (bytes, modified) = model_path.as_deref().map_or((0, None), on_disk);
    let bytes = bytes + drafter.as_ref().map_or(0, |drafter| on_disk(&drafter.model).0);
    let open = OpenOptions { model: model_path, revision, drafter, ..options.clone() };
    let keep_alive = entry.keep_alive.unwrap_or(keep_alive);
    let source = source(name, open, keep_alive);
    ModelSource { aliases, draft_threshold, context, preload, bytes, modified, ..source }
}

/// Returns the bytes of a model, which a path, a hub id or a short name names, and the time of their latest
/// change, if it is on disk.
fn on_disk(model: &OsStr) -> (u64, Option<Duration>) {
    let path = Path::new(model);
    if let Ok(file) = fs::metadata(path)
        && file.is_file()
    {
        return (file.len(), file.modified().ok().and_then(since_epoch));
    }
    let found = if path.exists() {
        let models = path.parent().and_then(|parent| in_folder(parent).ok()).unwrap_or_default();
        models.into_iter().find(|model| model.path == path)
    } else {
        let named = |stored: &StoredModel| {
            stored.names.iter().chain([&stored.id]).any(|name| model == OsStr::new(name))
        };
        Store::from_env().list().unwrap_or_default().into_iter().find(named)
    };
    found.map_or((0, None), |model| (model.bytes, model.modified.and_then(since_epoch)))
}

fn since_epoch(time: SystemTime) -> Option<Duration> {
    time.duration_since(UNIX_EPOCH).ok()
}

/// Returns true if the folder of models is the local store.
pub fn is_store(folder: &Path) -> bool {
    folder == Path::new(STORE) && !folder.exists()
}

/// Returns the models of the list and of a folder.
fn with_folder(
    listed: &[ModelSource],
    folder: &Path,
    options: &OpenOptions,
    keep_alive: KeepAlive,
) -> anyhow::Result<Vec<ModelSource>> {
    let found = match is_store(folder) {
        true => Store::from_env().list()?,
        false if folder.join("config.json").exists() => {
            let folder = folder.display();
            return Err(usage(format!("{folder} is one model: -m {folder} serves it")));
        }
        false => in_folder(folder).map_err(|error| {
            usage(format!("cannot read the folder {}: {error}", folder.display()))
        })?,
    };
    let known = |name: &str| listed.iter().any(|source| source.has_name(name));
    let new = found.into_iter().filter_map(|model| {
        let StoredModel { mut id, mut names, path, bytes, modified, .. } = model;
        names.retain(|name| !known(name));
        // A path says where files of this machine are, so clients know such a model by its names.
        if Path::new(&id).is_absolute() {
            id = (!names.is_empty()).then(|| names.remove(0))?;
        }
        if known(&id) {
            return None;
        }
        let open = OpenOptions { model: Some(OsString::from(path)), ..options.clone() };
        let modified = modified.and_then(since_epoch);
        Some(ModelSource { names, bytes, modified, ..source(id, open, keep_alive) })
    });
    Ok(listed.iter().cloned().chain(new).collect())
}
