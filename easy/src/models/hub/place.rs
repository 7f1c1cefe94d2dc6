//! Location of the hub and its cache, from the environment variables of `huggingface_hub`.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

/// Time that a server may send nothing, by default.
const SILENCE: Duration = Duration::from_secs(30);

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
    /// Time that a server may send nothing (`HF_HUB_DOWNLOAD_TIMEOUT`, in seconds).
    pub silence: Duration,
}

impl Place {
    /// Reads the environment. Empty variables count as unset.
    pub fn from_env() -> Self {
        let path = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let set = |name: &str| {
            let value = env::var(name).ok().map(|v| v.trim().to_string());
            value.filter(|v| !v.is_empty())
        };
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let home = path("HF_HOME").unwrap_or_else(|| {
            dirs::cache_dir().unwrap_or_else(|| PathBuf::from(".cache")).join("huggingface")
        });
        let cache = path("HF_HUB_CACHE").unwrap_or_else(|| home.join("hub"));
        let token_file = path("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
        let token = set("HF_TOKEN").or_else(|| std::fs::read_to_string(token_file).ok());
        let offline = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().any(|name| {
            set(name).is_some_and(|v| ["1", "on", "yes", "true"].contains(&&*v.to_lowercase()))
        });
        let seconds = set("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|v| v.parse().ok());
        Self {
            endpoint: endpoint.trim_end_matches('/').into(),
            cache,
            token: token.map(|t| t.trim().to_string()).filter(|t| !t.is_empty()),
            offline,
            silence: seconds.filter(|s| *s > 0).map_or(SILENCE, Duration::from_secs),
        }
    }
}
