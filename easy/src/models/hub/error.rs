//! Errors of the hub, and advice to the user.

use super::{HubId, Place};
use crate::models::model_files::Wanted;
use hf_hub::api::sync::ApiError;
use std::io::ErrorKind;
use std::path::Path;

/// Kinds of failure that call for different actions.
#[derive(Debug)]
pub enum Failure {
    /// The hub does not answer or fails itself: the cache may help.
    Unreachable(String),
    /// The hub does not know the repository, revision or file.
    NotFound,
    /// The hub asks for a token, or refuses this one.
    Denied(u16),
    /// Another process downloads the same file.
    Busy,
    /// A problem of this machine, such as a full disk or a read-only cache.
    Local(String),
}

impl Failure {
    /// Classifies an error of the hub client.
    pub fn of(error: &ApiError) -> Self {
        match error {
            ApiError::RequestError(e) => match **e {
                ureq::Error::StatusCode(status @ (401 | 403)) => Self::Denied(status),
                ureq::Error::StatusCode(404 | 410) => Self::NotFound,
                ureq::Error::StatusCode(status) => {
                    Self::Unreachable(format!("HTTP status {status}"))
                }
                ref other => Self::Unreachable(other.to_string()),
            },
            ApiError::TooManyRetries(inner) => Self::of(inner),
            ApiError::LockAcquisition(_) => Self::Busy,
            ApiError::IoError(e) => match e.kind() {
                ErrorKind::PermissionDenied
                | ErrorKind::StorageFull
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::QuotaExceeded
                | ErrorKind::AlreadyExists
                | ErrorKind::NotADirectory
                | ErrorKind::NotFound => Self::Local(e.to_string()),
                _ => Self::Unreachable(e.to_string()),
            },
            other => Self::Unreachable(format!("unexpected answer: {other}")),
        }
    }

    /// Returns true if another attempt may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }

    /// Returns a message that says what happened and what to do.
    pub fn message(&self, id: &HubId, revision: &str, place: &Place) -> String {
        let (repo, endpoint) = (&id.repo, &place.endpoint);
        match self {
            Self::Unreachable(why) => format!(
                "{endpoint} does not answer ({why}). Run the same command again: it resumes the \
                 download"
            ),
            Self::NotFound => format!(
                "{endpoint}/{repo} or its revision {revision} does not exist, and there is no \
                 local path {repo} either. Check the spelling, or pass the path of a model"
            ),
            Self::Denied(status) if place.token.is_none() => format!(
                "{endpoint}/{repo} does not exist, is private or is gated (HTTP status {status}). \
                 Check the spelling; for a private or gated model accept its terms on the web page \
                 and set HF_TOKEN"
            ),
            Self::Denied(status) => format!(
                "the hub refuses the token for {endpoint}/{repo} (HTTP status {status}). Check \
                 HF_TOKEN and that its owner accepted the model's terms"
            ),
            Self::Busy => "another process is downloading it: wait for that one to finish".into(),
            Self::Local(why) => {
                format!("{why} (cache {}; HF_HOME moves it)", place.cache.display())
            }
        }
    }
}

/// Message for a hub that cannot be reached while the cache has nothing.
pub fn offline(id: &HubId, place: &Place, why: &str) -> String {
    let files = match &id.wanted {
        Wanted::File(file) => format!("  {file}"),
        Wanted::Quant(quant) => format!("  the .gguf file for {quant}"),
        Wanted::Any => "  config.json\n  model.safetensors (or model.safetensors.index.json and \
                        all its shards)\n  tokenizer.json\n  tokenizer_config.json, \
                        chat_template.jinja, generation_config.json, as far as the model has them\n\
                        or a single .gguf file"
            .into(),
    };
    let (repo, endpoint, cache) = (&id.repo, &place.endpoint, place.cache.display());
    let name = repo.rsplit('/').next().unwrap_or(repo);
    format!(
        "cannot reach the hub for {repo} ({why}), and neither the cache ({cache}) nor a local path \
         of that name has it.\nTo run without a network, get these files from \
         {endpoint}/{repo}/tree/main on another machine:\n{files}\nput them in a directory, for \
         example {name}, and pass it: --model ./{name}"
    )
}

/// Message for a hub that cannot be reached while the cache has only a part.
pub fn incomplete(id: &HubId, snapshot: &Path, missing: &[String], why: &str) -> String {
    format!(
        "cannot reach the hub for {} ({why}), and the cache has only a part of it. Missing:\n  \
         {}\nPut them in {}, or connect and run the command again",
        id.repo,
        missing.join("\n  "),
        snapshot.display()
    )
}
