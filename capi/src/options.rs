//! Options as JSON objects.

use crate::error::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use wrinklefree_easy::{EngineBuilder, Message};

/// Options of `wf_open`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenFields {
    threads: Option<usize>,
    pinned: bool,
    context: Option<usize>,
    max_sequences: Option<usize>,
}

impl OpenFields {
    pub fn apply(self, mut builder: EngineBuilder) -> EngineBuilder {
        builder = builder.pinned(self.pinned);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(context) = self.context {
            builder = builder.context(context);
        }
        if let Some(sequences) = self.max_sequences {
            builder = builder.max_sequences(sequences);
        }
        builder
    }
}

/// Reads an options object; NULL means no options.
pub fn parse<T: Default + DeserializeOwned>(options: Option<&str>) -> Result<T, Failure> {
    options.map_or(Ok(T::default()), |text| {
        serde_json::from_str(text).map_err(|error| Failure::argument(format!("options: {error}")))
    })
}

/// Reads a conversation: an array of objects with `role` and `content`.
pub fn messages(text: &str) -> Result<Vec<Message>, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::argument(format!("messages: {error}")))
}
