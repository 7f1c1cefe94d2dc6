//! Options as JSON objects.

use crate::error::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::num::NonZeroUsize;
use wrinklefree_easy::fields::{read_object, shown};
use wrinklefree_easy::wrinklefree::format::DraftLayout;
use wrinklefree_easy::{EngineBuilder, Message};

/// Options of `wf_open`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenFields {
    threads: Option<NonZeroUsize>,
    pinned: bool,
    context: Option<NonZeroUsize>,
    max_sequences: Option<NonZeroUsize>,
    draft_model: Option<String>,
    draft_layout: Option<DraftLayout>,
}

impl OpenFields {
    pub fn apply(self, mut builder: EngineBuilder) -> EngineBuilder {
        builder = builder.pinned(self.pinned);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads.get());
        }
        if let Some(context) = self.context {
            builder = builder.context(context.get());
        }
        if let Some(sequences) = self.max_sequences {
            builder = builder.max_sequences(sequences.get());
        }
        if let Some(drafter) = self.draft_model {
            builder = builder.draft_model(drafter);
        }
        if let Some(layout) = self.draft_layout {
            builder = builder.draft_layout(layout);
        }
        builder
    }
}

/// Reads an options object; NULL means no options.
pub fn parse<T: Default + DeserializeOwned>(options: Option<&str>) -> Result<T, Failure> {
    let Some(text) = options else { return Ok(T::default()) };
    let object: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        Failure::argument(format!(
            "options: {} is not a JSON object ({{\"name\": value}}): {error}",
            shown(text)
        ))
    })?;
    read_object(object).map_err(|error| {
        let lost = error.starts_with("there is no field");
        let advice = if lost { "; wrinklefree.h lists all options" } else { "" };
        Failure::argument(format!("options: {error}{advice}"))
    })
}

/// Reads a conversation: an array of objects with `role` and `content`.
pub fn messages(text: &str) -> Result<Vec<Message>, Failure> {
    let messages: Vec<Map<String, Value>> = serde_json::from_str(text).map_err(|error| {
        Failure::argument(format!(
            "messages: {} is not an array of objects with `role` and `content`: {error}",
            shown(text)
        ))
    })?;
    let read = |(index, message)| {
        read_object(message)
            .map_err(|error| Failure::argument(format!("messages[{index}]: {error}")))
    };
    messages.into_iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    fn text(file: &str) -> String {
        fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).expect("there")
    }

    #[test]
    fn page_and_header_list_the_options_of_opening() {
        let error = serde_json::from_str::<OpenFields>(r#"{"zebra": 1}"#).err().expect("refused");
        let error = error.to_string();
        let (_, fields) = error.split_once("expected one of ").expect("a list of fields");
        let fields: BTreeSet<&str> = fields.split('`').skip(1).step_by(2).collect();
        assert!(fields.len() >= 4, "{error}");
        let page = text("../docs/c.md");
        let (_, table) = page.split_once("| field | meaning | default |\n").expect("a table");
        let rows = table.lines().take_while(|line| line.starts_with('|')).skip(1);
        let rows: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        assert_eq!(rows, fields, "docs/c.md");
        let header = text("include/wrinklefree.h");
        let (_, list) = header.split_once("`options` is a JSON object or NULL: {").expect("a list");
        let (list, _) = list.split_once('}').expect("its end");
        let list: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(list, fields, "wrinklefree.h");
    }
}
