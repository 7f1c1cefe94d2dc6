//! Sources of a server's models.

use std::time::Duration;
use wrinklefree_easy::models::OpenOptions;

/// Lists the models that exist at the moment.
pub type Catalog = Box<dyn Fn() -> Vec<ModelSource> + Send + Sync>;

/// A model that the server can load.
#[derive(Clone, Debug)]
pub struct ModelSource {
    /// Name in requests. Empty if the model's own name is used, which is known when it is loaded.
    pub name: String,
    /// Further names that lists of models have.
    pub names: Vec<String>,
    /// Other names.
    pub aliases: Vec<String>,
    /// Location of the files, and how they are opened.
    pub open: OpenOptions,
    /// Confidence below which its drafter's drafts end; `None` for the server's.
    pub draft_threshold: Option<f32>,
    /// Maximum number of positions per sequence; `None` for the server's.
    pub context: Option<usize>,
    /// Time that it stays in memory without requests; `None`: forever.
    pub keep_alive: Option<Duration>,
    /// Load it at the start.
    pub preload: bool,
    /// Bytes of its files, if they are on disk.
    pub bytes: u64,
    /// Time of the latest change of its files since the Unix epoch, if they are on disk.
    pub modified: Option<Duration>,
}

impl ModelSource {
    /// Returns true if a request's `model` field means this model.
    pub fn has_name(&self, name: &str) -> bool {
        let name = name.strip_suffix(":latest").unwrap_or(name);
        let mut others = self.names.iter().chain(&self.aliases);
        !name.is_empty() && (self.name == name || others.any(|other| other == name))
    }

    /// Returns true if another source is the same model. Names may have come or gone since.
    pub fn is(&self, other: &Self) -> bool {
        let renamed = self.open.model == other.open.model && self.names.contains(&other.name);
        self.name == other.name || renamed
    }

    /// Takes the names that the same model has now, besides the one that it is known by.
    pub fn take_names(&mut self, now: Self) {
        let names = std::iter::once(now.name).chain(now.names);
        self.names = names.filter(|name| *name != self.name).collect();
    }
}
