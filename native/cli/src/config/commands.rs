//! The configuration in every command: settings become defaults of its options.

use super::Layers;
use super::keys::{Key, SECTIONS};
use crate::{open, out, parse};
use clap::{ArgMatches, Command};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Commands that read no settings, or read them themselves.
const OWN: [&str; 4] = ["serve", "run", "completions", "check-grammars"];
/// Commands that ask a server. Its settings lead to it, so those that they do not have are no mistakes.
const CLIENTS: [&str; 2] = ["ps", "health"];
/// The section of settings that [`DecodeArgs`](super::DecodeArgs) merges itself.
const DECODING: &str = "dlm";
/// The command whose `--config` is the file that it writes, and the keys that it writes.
const TUNE: &str = "tune";
const TUNED: [&str; 3] = ["threads", "prefill_threads", "pin_threads"];
/// Settings that count on the command line alone, by command: it compares several values of them, or it
/// measures something else with the flag.
const FLAGS_ALONE: [(&str, &[&str]); 5] = [
    ("bench", &["decode_mode"]),
    ("eval activations", &["activation_sparsity"]),
    ("eval agreement", &["decode_mode", "selector", "threshold"]),
    ("eval perplexity", &["decode_mode"]),
    ("eval quality", &["decode_mode", "selector", "threshold"]),
];

/// An option of commands that have no other settings of decoding.
#[derive(clap::Args, Debug)]
pub struct ConfigArgs {
    /// YAML file with settings [default: $WF_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Parses arguments again, with the settings of the configuration as defaults of the command that they
/// name. Warns of settings that it does not have.
///
/// # Errors
/// Names the file with the wrong line and key, or the wrong variable.
pub fn configured(
    command: Command,
    arguments: impl Iterator<Item = OsString>,
    first: ArgMatches,
) -> anyhow::Result<ArgMatches> {
    let (path, leaf) = named(&first);
    if path.first().is_none_or(|name| OWN.contains(&name.as_str())) {
        return Ok(first);
    }
    let file = leaf.try_get_one::<PathBuf>("config").ok().flatten();
    let written = path[0] == TUNE;
    let layers = Layers::read(file.filter(|file| !written || file.exists()).map(PathBuf::as_path))?;
    open::warn(&layers.warnings);
    let name = path.join(" ");
    let alone = FLAGS_ALONE.iter().find(|(command, _)| *command == name);
    let alone = alone.map_or(&[][..], |(_, ids)| ids);
    let mut unread = Vec::new();
    let command = at(command, &path, &mut |leaf| layers.apply(leaf, alone, &mut unread));
    unread.retain(|(_, name)| !(written && TUNED.contains(&name.as_str())));
    if !CLIENTS.contains(&path[0].as_str()) {
        warn(&name, unread);
    }
    parse::matches(command, arguments)
}

/// Names of the command and its matches.
fn named(matches: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut path, mut leaf) = (Vec::new(), matches);
    while let Some((name, inner)) = leaf.subcommand() {
        path.push(name.to_owned());
        leaf = inner;
    }
    (path, leaf)
}

/// Changes the command of this name below `command`.
fn at(command: Command, path: &[String], change: &mut impl FnMut(Command) -> Command) -> Command {
    match path.split_first() {
        Some((name, rest)) => command.mut_subcommand(name, |inner| at(inner, rest, change)),
        None => change(command),
    }
}

/// Prints which settings a command does not have, a line for each source.
fn warn(command: &str, unread: Vec<(String, String)>) {
    let mut sources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (source, name) in unread {
        sources.entry(source).or_default().push(name);
    }
    for (source, names) in sources {
        let verb = if names.len() == 1 { "changes" } else { "change" };
        let names = names.join(", ");
        out::note(format_args!("warning: {source}: {names} {verb} nothing in `wf-run {command}`"));
    }
}

impl Layers {
    /// Sets these settings as defaults of a command, and notes the source and name of those that it
    /// does not have, or takes from its flags alone.
    fn apply(
        &self,
        mut command: Command,
        alone: &[&str],
        unread: &mut Vec<(String, String)>,
    ) -> Command {
        for key in Key::all() {
            let Some(said) = self.said.get(key.id()) else { continue };
            let has = command.get_arguments().any(|arg| arg.get_id() == key.id());
            if !has || alone.contains(&key.id()) {
                let in_file = said.source.rsplit_once(':');
                let source = in_file.map_or("environment", |(file, _)| file);
                // Another program may mean it.
                if said.source != "MODEL_PATH" {
                    unread.push((source.into(), shown(&key)));
                }
            } else if key.section != DECODING {
                command = command.mut_arg(key.id(), |arg| arg.default_values(said.values.clone()));
            }
        }
        command
    }
}

/// The name of a key with its section.
fn shown(key: &Key) -> String {
    if SECTIONS.contains(&key.section) {
        format!("{}.{}", key.section, key.name())
    } else {
        key.name().into()
    }
}
