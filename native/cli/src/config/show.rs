//! The configuration as YAML: an example with every default, and the values in effect with their
//! source.

use super::Layers;
use super::keys::{Key, command};
use crate::human;
use clap::ArgMatches;
use clap::parser::ValueSource;

/// Largest width of an explanation in the example.
const COLUMNS: usize = 96;

/// Comment at the top of the example.
const ABOUT: &str = "\
# Configuration of `wf-run serve --config FILE`; `generate`, `chat`, `bench` and `eval` read the
# section `dlm`. Every key is optional: these are the defaults, and null sets nothing.
# The command line takes precedence over this file, and this file over the environment, where the
# keys are WF_HOST, WF_MAX_SEQUENCES, WF_KV_DTYPE… (lists with commas), and the model MODEL_PATH.
";

/// Returns a commented file with every key and its default.
pub fn example() -> String {
    let defaults = command().get_matches_from([""; 0]);
    let mut text = ABOUT.to_string();
    for keys in Key::all().chunk_by(|a, b| a.section == b.section) {
        let section = keys[0].section;
        text.push('\n');
        let indent = if section.is_empty() { "" } else { "  " };
        if !section.is_empty() {
            text += &format!("{section}:\n");
        }
        for key in keys {
            for line in lines(&explanation(key), COLUMNS - indent.len()) {
                text += &format!("{indent}# {line}\n");
            }
            text += &format!("{indent}{}: {}\n", key.name(), value(key, &defaults));
        }
    }
    text
}

/// Returns every key with its value in effect and the source of the value.
pub fn effective(layers: &Layers, matches: &ArgMatches) -> String {
    let mut rows = Vec::new();
    for keys in Key::all().chunk_by(|a, b| a.section == b.section) {
        let section = keys[0].section;
        let indent = if section.is_empty() { "" } else { "  " };
        if !section.is_empty() {
            rows.push(vec![format!("{section}:")]);
        }
        for key in keys {
            let source = match (matches.value_source(key.id()), layers.said.get(key.id())) {
                (Some(ValueSource::CommandLine), _) => "command line".into(),
                (_, Some(said)) => said.source.clone(),
                (_, None) => default(key),
            };
            let value = value(key, matches);
            rows.push(vec![format!("{indent}{}: {value}", key.name()), format!("# {source}")]);
        }
    }
    human::table(&rows)
}

/// Returns the source of a value that is not set anywhere; the help knows what null means.
fn default(key: &Key) -> String {
    let help = key.arg.get_long_help().or(key.arg.get_help()).map(ToString::to_string);
    let help = help.unwrap_or_default();
    let named = help.rsplit_once("[default: ").and_then(|(_, rest)| rest.split_once(']'));
    let named = named.map(|(named, _)| named.replace('\n', " "));
    named.map_or("default".into(), |named| format!("default: {named}"))
}

/// Returns the explanation of a key, with its possible values if they have names.
fn explanation(key: &Key) -> String {
    let help = key.arg.get_long_help().or(key.arg.get_help()).map(ToString::to_string);
    let help = help.unwrap_or_default().replace("\n\n", ". ");
    let help = help.trim_end_matches('.').replace(". [default", " [default");
    let values = key.arg.get_possible_values();
    let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
    if names.is_empty() || names == ["true", "false"] {
        help
    } else {
        format!("{help}. One of {}", names.join(", "))
    }
}

/// Breaks a text into lines of at most `width` characters, as far as its words allow.
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// Returns the value of a key as YAML.
fn value(key: &Key, matches: &ArgMatches) -> String {
    let raw = matches.get_raw(key.id()).into_iter().flatten();
    let texts = raw
        .map(|raw| if key.is_secret() { "\"***\"".into() } else { scalar(&raw.to_string_lossy()) });
    let texts: Vec<String> = texts.collect();
    if key.is_list() {
        format!("[{}]", texts.join(", "))
    } else {
        texts.into_iter().next().unwrap_or("null".into())
    }
}

/// Returns a text as YAML, quoted as in JSON if it could mean something else.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "./".contains(c));
    if starts && text.chars().all(plain) && !text.eq_ignore_ascii_case("null") {
        text.into()
    } else {
        serde_json::Value::from(text).to_string()
    }
}
