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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_the_options_of_opening() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/c.md"));
        let page = page.expect("there");
        let error = parse::<OpenFields>(Some(r#"{"zebra": 1}"#)).err().expect("refused").message;
        let (_, fields) = error.split_once("expected one of ").expect("a list of fields");
        let fields: Vec<&str> = fields.split('`').skip(1).step_by(2).collect();
        assert!(fields.len() >= 4, "{error}");
        for field in fields {
            assert!(page.contains(&format!("\n| `{field}` |")), "docs/c.md lacks {field}");
        }
    }
}
