//! The list `models` of the configuration: models that a server loads on demand.

use super::KeepAlive;
use super::file::{Node, Value, at};
use std::ffi::OsString;
use wrinklefree::format::DraftLayout;
use wrinklefree_easy::models::DrafterOptions;

/// An entry of the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelEntry {
    /// Name in requests.
    pub name: String,
    /// File, folder or hub id; `None` for the embedded model.
    pub model_path: Option<OsString>,
    /// Hub branch, tag or commit.
    pub revision: Option<String>,
    /// Other names.
    pub aliases: Vec<String>,
    /// Maximum number of positions per sequence.
    pub context: Option<usize>,
    /// Time in memory without requests.
    pub keep_alive: Option<KeepAlive>,
    /// Load it at the start.
    pub preload: bool,
    /// Its drafter, and the layout of the drafter's blocks.
    pub drafter: Option<DrafterOptions>,
    /// Confidence below which drafts end.
    pub draft_threshold: Option<f32>,
}

/// Keys of an entry.
const KEYS: &str = "name, model_path, revision, aliases, context, keep_alive, preload, draft_model, \
                    draft_layout, draft_threshold";

/// Reads the list.
///
/// # Errors
/// Names the line and the key.
pub fn read(node: Node) -> Result<Vec<ModelEntry>, String> {
    let line = node.line;
    let entries = match node.value {
        Value::Null => Vec::new(),
        Value::List(entries) => entries.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?,
        _ => return Err(at(line, "`models` is a list: `- name: …`, `  model_path: …`")),
    };
    let names = |entry: &ModelEntry| -> Vec<String> {
        entry.aliases.iter().chain([&entry.name]).cloned().collect()
    };
    let mut all: Vec<String> = entries.iter().flat_map(names).collect();
    all.sort();
    match all.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(at(line, format!("two models are called `{}`", twice[0]))),
        None => Ok(entries),
    }
}

/// Reads an entry.
fn entry(node: Node) -> Result<ModelEntry, String> {
    let line = node.line;
    let Value::Map(fields) = node.value else {
        return Err(at(line, format!("a model has lines of `key: value` with {KEYS}")));
    };
    let mut entry = ModelEntry::default();
    let mut layout = None;
    for (key, node) in fields {
        let line = node.line;
        if node.value == Value::Null {
            continue;
        }
        match key.as_str() {
            "name" => entry.name = text(&key, node)?,
            "model_path" => entry.model_path = Some(text(&key, node)?.into()),
            "revision" => entry.revision = Some(text(&key, node)?),
            "aliases" => entry.aliases = texts(&key, node)?,
            "context" => {
                let positions = parsed(&key, node)?;
                if positions == 0 {
                    return Err(at(line, "`context` is 0: expected at least one position"));
                }
                entry.context = Some(positions);
            }
            "keep_alive" => entry.keep_alive = Some(parsed(&key, node)?),
            "preload" => entry.preload = parsed(&key, node)?,
            "draft_model" => {
                let model = text(&key, node)?.into();
                entry.drafter = Some(DrafterOptions { model, layout: None });
            }
            "draft_layout" => layout = Some(draft_layout(&key, node)?),
            "draft_threshold" => {
                let threshold = parsed(&key, node)?;
                if !(0.0..=1.0).contains(&threshold) {
                    let range = "expected a number from 0 to 1";
                    return Err(at(line, format!("`draft_threshold` is {threshold}: {range}")));
                }
                entry.draft_threshold = Some(threshold);
            }
            _ => return Err(at(line, format!("unknown key `{key}` of a model: expected {KEYS}"))),
        }
    }
    match &mut entry.drafter {
        Some(drafter) => drafter.layout = layout,
        None if layout.is_some() || entry.draft_threshold.is_some() => {
            let keys = "`draft_layout` and `draft_threshold` are for a drafter";
            return Err(at(line, format!("{keys}: name its files in `draft_model`")));
        }
        None => {}
    }
    if entry.name.is_empty() || entry.name == "default" {
        Err(at(line, "a model needs a `name` other than `default`"))
    } else {
        Ok(entry)
    }
}

fn draft_layout(key: &str, node: Node) -> Result<DraftLayout, String> {
    let line = node.line;
    let text = text(key, node)?;
    DraftLayout::ALL.into_iter().find(|layout| layout.name() == text).ok_or_else(|| {
        let names = DraftLayout::ALL.map(DraftLayout::name).join(" or ");
        at(line, format!("`{key}` cannot be `{text}`: expected {names}"))
    })
}

fn text(key: &str, node: Node) -> Result<String, String> {
    match node.value {
        Value::Text(text) => Ok(text),
        _ => Err(at(node.line, format!("`{key}` takes one value"))),
    }
}

fn texts(key: &str, node: Node) -> Result<Vec<String>, String> {
    match node.value {
        Value::List(items) => items.into_iter().map(|item| text(key, item)).collect(),
        _ => Ok(vec![text(key, node)?]),
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    key: &str,
    node: Node,
) -> Result<T, String> {
    let line = node.line;
    let text = text(key, node)?;
    text.parse().map_err(|e| at(line, format!("`{key}` cannot be `{text}`: {e}")))
}

#[cfg(test)]
mod tests {
    use super::super::file::parse;
    use super::*;
    use std::time::Duration;

    fn list(text: &str) -> Result<Vec<ModelEntry>, String> {
        read(parse(text).expect("YAML"))
    }

    #[test]
    fn entries() {
        let text = "- name: a\n  model_path: org/a\n  aliases: [x, y]\n  keep_alive: 1h\n- name: b\n  \
                    context: 512\n  preload: true\n";
        let entries = list(text).expect("a list");
        assert_eq!(entries[0].model_path, Some("org/a".into()));
        assert_eq!(entries[0].aliases, ["x", "y"]);
        assert_eq!(entries[0].keep_alive, Some(KeepAlive(Some(Duration::from_secs(3600)))));
        let b = ModelEntry {
            name: "b".into(),
            context: Some(512),
            preload: true,
            ..ModelEntry::default()
        };
        assert_eq!(entries[1], b);
        assert_eq!(list("~"), Ok(Vec::new()));
        let drafts =
            "- name: a\n  draft_layout: dspark\n  draft_model: ./d\n  draft_threshold: 0.4\n";
        let drafts = &list(drafts).expect("a list")[0];
        let layout = Some(DraftLayout::DSpark);
        assert_eq!(drafts.drafter, Some(DrafterOptions { model: "./d".into(), layout }));
        assert_eq!(drafts.draft_threshold, Some(0.4));
    }

    #[test]
    fn wrong_entries_name_their_line() {
        for (text, part) in [
            ("a: 1", "`models` is a list"),
            ("- a", "line 1: a model has lines"),
            ("- model_path: x", "needs a `name`"),
            ("- name: default", "other than `default`"),
            ("- name: a\n  size: 1", "line 2: unknown key `size`"),
            ("- name: a\n  context: many", "line 2: `context` cannot be `many`"),
            ("- name: a\n  context: 0", "line 2: `context` is 0"),
            (
                "- name: a\n  draft_layout: x",
                "line 2: `draft_layout` cannot be `x`: expected dflash",
            ),
            ("- name: a\n  draft_layout: dflash", "line 1: `draft_layout` and"),
            ("- name: a\n  draft_threshold: 0.5", "name its files in `draft_model`"),
            ("- name: a\n  draft_model: d\n  draft_threshold: 2", "line 3: `draft_threshold` is 2"),
            ("- name: a\n- name: b\n  aliases: a", "two models are called `a`"),
        ] {
            let error = list(text).expect_err(text);
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
