//! Location of the hub and its cache, from the environment variables of `huggingface_hub`.

use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use std::env;
use std::path::{Path, PathBuf};

/// Endpoint, cache and token.
pub struct Place {
    /// Base address (`HF_ENDPOINT`).
    pub endpoint: String,
    /// Directory with one folder per repository (`HF_HUB_CACHE`, `HF_HOME`).
    pub cache: PathBuf,
    /// Access token (`HF_TOKEN`, or the file that `hf auth login` writes).
    pub token: Option<String>,
    /// Never touch the network (`HF_HUB_OFFLINE`).
    pub offline: bool,
}

impl Place {
    /// Reads the environment.
    pub fn from_env() -> Self {
        let set = |name: &str| env::var(name).ok().filter(|v| !v.trim().is_empty());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let home = set("HF_HOME").map_or_else(
            || dirs::cache_dir().unwrap_or_else(|| PathBuf::from(".cache")).join("huggingface"),
            PathBuf::from,
        );
        let cache = set("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from);
        let token_file = set("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
        let token = set("HF_TOKEN").or_else(|| std::fs::read_to_string(token_file).ok());
        let offline = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().any(|name| {
            set(name).is_some_and(|v| {
                ["1", "on", "yes", "true"].contains(&v.trim().to_lowercase().as_str())
            })
        });
        Self {
            endpoint: endpoint.trim_end_matches('/').into(),
            cache,
            token: token.map(|t| t.trim().to_string()).filter(|t| !t.is_empty()),
            offline,
        }
    }

    /// Returns the cache for the hub client.
    pub fn cache(&self) -> Cache {
        Cache::new(self.cache.clone())
    }

    /// Returns the commit that the cache has for a branch, tag or commit.
    pub fn commit(&self, cache: &CacheRepo, repo: &str, revision: &str) -> Option<String> {
        let folder = Repo::new(repo.into(), RepoType::Model).folder_name();
        let reference = self.cache.join(folder).join("refs").join(revision);
        let commit = std::fs::read_to_string(reference).unwrap_or_else(|_| revision.into());
        cache.pointer_path(commit.trim()).is_dir().then(|| commit.trim().into())
    }
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
    let text = std::fs::read_to_string(directory.join(index)).ok()?;
    let index: serde_json::Value = serde_json::from_str(&text).ok()?;
    let shards = index.get("weight_map")?.as_object()?.values().filter_map(|v| v.as_str());
    let mut missing: Vec<String> =
        shards.filter(|s| !directory.join(s).exists()).map(Into::into).collect();
    missing.sort();
    missing.dedup();
    (!missing.is_empty()).then_some(missing)
}
