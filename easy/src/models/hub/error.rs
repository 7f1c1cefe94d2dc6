//! Errors of the hub, and advice to the user.

use super::{HubId, Place};
use crate::models::model_files::{Wanted, list};
use std::path::Path;

/// Longest text of a hub that is repeated in a message.
const LONGEST: usize = 300;

/// Kinds of failure that call for different actions.
#[derive(Debug)]
pub enum Failure {
    /// The hub does not answer: the cache may help.
    Unreachable(String),
    /// The hub answers that it cannot serve this now, and says why.
    Unavailable(u16, String),
    /// The hub does not know the repository, revision or file.
    NotFound(String),
    /// The hub asks for a token, or refuses this one.
    Denied(u16, String),
    /// The answer cannot be used, now or later.
    Refused(String),
    /// Another process downloads the same file.
    Busy,
    /// A problem of this machine, such as a full disk or a read-only cache.
    Local(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Local(error.to_string())
    }
}

impl From<ureq::Error> for Failure {
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::InvalidProxyUrl => {
                Self::Refused(format!("a request cannot be made: {error}"))
            }
            other => Self::Unreachable(other.to_string()),
        }
    }
}

impl Failure {
    /// Classifies the status of an answer. `said` is the hub's own explanation, if it gave one.
    pub fn of_status(status: u16, said: &str) -> Self {
        let said: String = said.chars().take(LONGEST).collect();
        match status {
            401 | 403 => Self::Denied(status, said),
            404 | 410 => Self::NotFound(said),
            408 | 429 | 500.. => Self::Unavailable(status, said),
            _ => Self::Refused(format!("it answers with HTTP status {status}{}", colon(&said))),
        }
    }

    /// Returns true if another attempt may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unavailable(..))
    }

    /// Returns the reason to look into the cache, if it is one.
    pub fn why_offline(&self, place: &Place) -> Option<String> {
        let endpoint = &place.endpoint;
        match self {
            Self::Unreachable(why) => Some(format!("cannot reach the hub {endpoint} ({why})")),
            Self::Unavailable(status, said) => {
                Some(format!("{endpoint} answers with HTTP status {status}{}", colon(said)))
            }
            _ => None,
        }
    }

    /// Returns a short reason, for a line about another attempt.
    pub fn reason(&self) -> String {
        match self {
            Self::Unreachable(why) | Self::Refused(why) | Self::Local(why) => why.clone(),
            Self::Unavailable(status, said) | Self::Denied(status, said) => {
                format!("HTTP status {status}{}", colon(said))
            }
            Self::NotFound(said) => format!("it does not exist{}", colon(said)),
            Self::Busy => "another process is downloading it".into(),
        }
    }

    /// Returns a message that says what happened and what to do.
    pub fn message(&self, id: &HubId, revision: &str, place: &Place) -> String {
        let (repo, endpoint) = (&id.repo, &place.endpoint);
        match self {
            Self::Unreachable(why) => {
                format!("{endpoint} does not answer ({why}). Try again: the download resumes")
            }
            Self::Unavailable(status, said) => format!(
                "{endpoint} answers with HTTP status {status}{}. Try again later: the download \
                 resumes",
                colon(said)
            ),
            Self::NotFound(said) => format!(
                "{endpoint}/{repo} or its revision {revision} does not exist{}, and there is no \
                 local path {repo} either. Check the spelling, or name the path of a model",
                brackets(said)
            ),
            Self::Denied(status, said) if place.token.is_none() => format!(
                "{endpoint}/{repo} does not exist, is private or is gated (HTTP status {status}{}). \
                 Check the spelling; for a private or gated model accept its terms on the web page \
                 and set HF_TOKEN",
                colon(said)
            ),
            Self::Denied(status, said) => format!(
                "the hub refuses the token for {endpoint}/{repo} (HTTP status {status}{}). Check \
                 HF_TOKEN and that its owner accepted the model's terms",
                colon(said)
            ),
            Self::Refused(why) => format!("{endpoint} cannot be used for {repo}: {why}"),
            Self::Busy => "another process is downloading it: wait for that one to finish".into(),
            Self::Local(why) => {
                format!("{why} (cache {}; HF_HOME moves it)", place.cache.display())
            }
        }
    }
}

fn colon(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

fn brackets(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

/// Message for a hub that cannot be used while the cache has nothing.
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
        "{why}, and neither the cache ({cache}) nor a local path of that name has {repo}.\nTo run \
         without a network, get these files from {endpoint}/{repo}/tree/main on another \
         machine:\n{files}\nput them in a directory, for example {name}, and name its path as the \
         model: ./{name}"
    )
}

/// Message for a hub that cannot be used while the cache has only a part.
pub fn incomplete(id: &HubId, snapshot: &Path, missing: &[String], why: &str) -> String {
    format!(
        "{why}, and the cache has only a part of {}. Missing: {}\nPut them in {}, or connect and try \
         again",
        id.repo,
        list(missing),
        snapshot.display()
    )
}
