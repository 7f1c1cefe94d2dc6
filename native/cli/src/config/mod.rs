//! Settings from the command line, else the configuration file, else the environment,
//! else the default. The table of keys is clap's (`keys`). A value of the file or the environment is
//! checked as the value of its flag and becomes the default of that flag.

mod commands;
mod decoding;
mod dry;
mod environment;
mod file;
mod host;
mod keep_alive;
mod keys;
mod log_format;
mod model_list;
mod origin;
mod set;
mod show;
mod size;
mod trusted_proxy;

pub use commands::{ConfigArgs, configured};
pub use decoding::DecodeArgs;
pub use dry::{DryArgs, InvalidDry};
pub use host::Host;
pub use keep_alive::KeepAlive;
pub use keys::{BenchmarkArgs, Keys, SamplingDefaults, SchedulerArgs, ServerArgs};
pub use log_format::LogFormat;
pub use model_list::ModelEntry;
pub use origin::Origin;
pub use set::set;
pub use show::{effective, example};
pub use size::Bytes;
pub use trusted_proxy::TrustedProxy;

use crate::exit::usage;
use crate::parse;
use crate::suggest::{did_you_mean, nearest};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Command, FromArgMatches};
use file::{Node, Value, at};
use keys::{Key, SECTIONS, command};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{env, fs};
use wrinklefree::settings::Settings;

/// The variable that names the configuration file if the command line does not.
const WF_CONFIG: &str = "WF_CONFIG";

/// The key of the list of models, which only a file can have.
pub(crate) const MODELS: &str = "models";

/// Settings of the configuration file and the environment.
#[derive(Debug, Default)]
pub struct Layers {
    said: BTreeMap<String, Said>,
    /// Models that a server loads on demand.
    pub models: Vec<ModelEntry>,
    /// Variables that set nothing, for the caller to print or log.
    pub warnings: Vec<String>,
}

/// The value of a key in one of them.
#[derive(Debug)]
struct Said {
    values: Vec<OsString>,
    /// `wf.yaml:3` or `WF_PORT`.
    source: String,
}

impl Layers {
    /// Reads the environment and this file, or the one that the environment names.
    ///
    /// # Errors
    /// Names the file with the wrong line and key, or the wrong variable.
    pub fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let named = env::var_os(WF_CONFIG).filter(|name| !name.is_empty()).map(PathBuf::from);
        let path = file.or(named.as_deref());
        let text = |path: &Path| {
            let name = path.display().to_string();
            match fs::read_to_string(path) {
                Ok(text) => Ok((name, text)),
                Err(e) => Err(usage(format!("cannot read the configuration {name}: {e}"))),
            }
        };
        Self::new(path.map(text).transpose()?, env::vars_os()).map_err(usage)
    }

    /// Reads the name and text of a file, and variables.
    fn new(
        file: Option<(String, String)>,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, String> {
        let keys = Key::all();
        let mut layers = environment::read(&keys, variables)?;
        if let Some((name, text)) = file {
            let wrong = |e: String| format!("the configuration {name}: {e}");
            let root = file::parse(&text).map_err(wrong)?;
            layers.file(&keys, &name, root).map_err(wrong)?;
        }
        Ok(layers)
    }

    /// Adds the settings of a file.
    fn file(&mut self, keys: &[Key], name: &str, root: Node) -> Result<(), String> {
        for (key, node) in entries(root, "a configuration")? {
            if key == MODELS {
                self.models = model_list::read(node)?;
                continue;
            }
            match SECTIONS.iter().find(|section| **section == key) {
                Some(section) => {
                    for (key, node) in entries(node, &format!("the section `{section}`"))? {
                        self.entry(keys, name, (section, &key), node)?;
                    }
                }
                None => self.entry(keys, name, ("", &key), node)?,
            }
        }
        Ok(())
    }

    /// Adds the setting of a line.
    fn entry(
        &mut self,
        keys: &[Key],
        file: &str,
        (section, name): (&str, &str),
        node: Node,
    ) -> Result<(), String> {
        let line = node.line;
        let known = keys.iter().find(|key| key.section == section && key.name() == name);
        let key = known.ok_or_else(|| at(line, unknown(keys, section, name)))?;
        if let Some(values) = texts(key, node)? {
            check(key, &values).map_err(|e| at(line, e))?;
            self.said.insert(key.id().into(), Said { values, source: format!("{file}:{line}") });
        }
        Ok(())
    }

    /// Sets these settings as the defaults of a command that has all keys.
    pub fn defaults(&self, mut command: Command) -> Command {
        for (id, said) in &self.said {
            command = command.mut_arg(id, |arg| arg.default_values(said.values.clone()));
        }
        command
    }

    /// Returns the settings of decoding.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let matches = self.defaults(command()).try_get_matches_from([""; 0])?;
        Ok(Keys::from_arg_matches(&matches)?.settings)
    }
}

/// Returns the entries of a map, or none for null.
fn entries(node: Node, what: &str) -> Result<Vec<(String, Node)>, String> {
    match node.value {
        Value::Map(entries) => Ok(entries),
        Value::Null => Ok(Vec::new()),
        _ => Err(at(node.line, format!("{what} has lines of `key: value`"))),
    }
}

/// Returns the texts of a value; `None` for null, which sets nothing.
fn texts(key: &Key, node: Node) -> Result<Option<Vec<OsString>>, String> {
    let wrong = |what: &str| at(node.line, format!("`{}` takes {what}", key.name()));
    match node.value {
        Value::Null => Ok(None),
        Value::Text(text) => Ok(Some(vec![text.into()])),
        Value::List(items) if key.is_list() => {
            let text = |item: Node| match item.value {
                Value::Text(text) => Ok(OsString::from(text)),
                _ => Err(wrong("a list of texts")),
            };
            let texts = items.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
            Ok(Some(texts).filter(|texts| !texts.is_empty()))
        }
        Value::List(_) => Err(wrong("one value, not a list")),
        Value::Map(_) => Err(wrong("a value, and is no section")),
    }
}

/// Checks values as the key's flag would.
fn check(key: &Key, values: &[OsString]) -> Result<(), String> {
    let flag = key.arg.get_long().expect("every key has a flag");
    // A flag that only turns something off takes no value on the command line.
    let command = command().mut_arg(key.id(), |arg| match arg.get_action() {
        ArgAction::SetFalse => arg.action(ArgAction::Set),
        _ => arg,
    });
    let option = |value: &OsString| {
        let mut option = OsString::from(format!("--{flag}="));
        option.push(value);
        option
    };
    let matches = command.try_get_matches_from(values.iter().map(option));
    let matches = matches.map_err(|error| {
        let value = if key.is_secret() {
            "***".into()
        } else {
            values.join(OsStr::new(", ")).to_string_lossy().into_owned()
        };
        format!("`{}` cannot be `{value}`{}", key.name(), reason(&error, &value))
    })?;
    let keys = Keys::from_arg_matches(&matches).map_err(|e| e.to_string())?;
    keys.settings.check().map_err(|e| e.to_string())
}

/// Returns the reason for which clap refuses a value.
fn reason(error: &clap::Error, value: &str) -> String {
    if error.kind() == ErrorKind::InvalidUtf8 {
        return ": it is not UTF-8".into();
    }
    match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(cause), _) => match parse::expected(cause, value) {
            Some(expected) => format!(": {expected}"),
            None => format!(": {cause}"),
        },
        (None, Some(ContextValue::Strings(valid))) => {
            let meant = nearest(value, valid.iter().map(String::as_str));
            format!(": there is {}{}", valid.join(", "), did_you_mean(meant))
        }
        (None, _) => ": a value is missing".into(),
    }
}

/// Returns the error for a key that no section of this name has.
fn unknown(keys: &[Key], section: &str, name: &str) -> String {
    let here = || keys.iter().filter(|key| key.section == section).map(Key::name);
    let sections = SECTIONS.into_iter().filter(|_| section.is_empty());
    let valid: Vec<&str> = here().chain(sections).collect();
    let place = if section.is_empty() { String::new() } else { format!(" in section `{section}`") };
    let text = format!("unknown key `{name}`{place}");
    match (keys.iter().find(|key| key.name() == name), nearest(name, valid.iter().copied())) {
        (Some(key), _) if key.section.is_empty() => {
            format!("{text}: it stands outside of sections")
        }
        (Some(key), _) => format!("{text}: it belongs in section `{}`", key.section),
        (None, meant @ Some(_)) => text + &did_you_mean(meant),
        (None, None) => format!("{text}: expected one of {}", valid.join(", ")),
    }
}

#[cfg(test)]
mod tests;
