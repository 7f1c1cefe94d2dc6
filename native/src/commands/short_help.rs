//! `-h`: one line for each flag, in 80 columns. `--help` shows everything.

use clap::{Arg, Command};
use std::collections::BTreeMap;
use std::ffi::OsStr;

/// Columns of the shortest terminal that `-h` is made for.
const COLUMNS: usize = 80;
/// Columns next to a flag and its help: indent, short flag and gap.
const AROUND: usize = 8;

/// Flags that few users need: `-h` only counts them.
const RARE: [&str; 28] = [
    "activation_sparsity",
    "allow_control_tokens",
    "block_attention",
    "chat_template",
    "chat_template_kwargs",
    "commit",
    "draft_layout",
    "draft_length",
    "draft_threshold",
    "entropy_bound",
    "factor",
    "frequency_penalty",
    "kv_k",
    "kv_v",
    "logit_bias",
    "logit_shift",
    "mask_token_id",
    "presence_penalty",
    "preserve_thinking",
    "reasoning_effort",
    "row_cost",
    "selector",
    "slots_per_pass",
    "small_block_size",
    "stop_token",
    "sub_block_cache",
    "suffix",
    "template_fixes",
];

/// Returns true if `-h` is among the arguments. As the value of another option it does no harm: only
/// help texts change.
pub fn is_asked(mut arguments: impl Iterator<Item = impl AsRef<OsStr>>) -> bool {
    arguments.any(|argument| argument.as_ref() == "-h")
}

/// Shortens the help of a command and its subcommands.
pub fn shorten(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command =
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, shorten));
    let command = command.mut_args(|arg| {
        let rare = RARE.contains(&arg.get_id().as_str());
        if rare { arg.hide_short_help(true) } else { arg }
    });
    let hidden = command.get_arguments().filter(|arg| arg.is_hide_short_help_set()).count();
    // Only a built command knows how many values its options take.
    let mut built = command.clone();
    built.build();
    let widths = widths(&built);
    let command = command.mut_args(|arg| match widths.get(&section(&arg)) {
        Some(width) => fit(arg, COLUMNS - AROUND - width),
        None => arg,
    });
    if hidden == 0 {
        return command;
    }
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command
        .after_help(format!("--help explains all options and shows {hidden} more.\n\n{examples}"))
}

/// The heading that an option is listed under; `None` for a positional argument.
fn section(arg: &Arg) -> Option<String> {
    (!arg.is_positional()).then(|| arg.get_help_heading().unwrap_or("Options").to_owned())
}

/// The width of the longest flag under each heading, with the name of its value.
fn widths(command: &Command) -> BTreeMap<Option<String>, usize> {
    let mut widths = BTreeMap::new();
    let shown = |arg: &&Arg| !arg.is_hide_set() && !arg.is_hide_short_help_set();
    for arg in command.get_arguments().filter(shown) {
        let width: &mut usize = widths.entry(section(arg)).or_default();
        *width = arg.to_string().chars().count().max(*width);
    }
    widths
}

/// Shows defaults and possible values only if the line has room for them.
fn fit(arg: Arg, width: usize) -> Arg {
    if !arg.get_action().takes_values() || arg.is_positional() {
        return arg;
    }
    let length = |text: &str| text.chars().count();
    let help = arg.get_help().map_or(0, |help| length(&help.to_string()));
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    let aliases: usize = aliases.iter().map(|alias| length(alias) + " [aliases: --]".len()).sum();
    let defaults: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    let default =
        if defaults.is_empty() { 0 } else { length(&defaults.join(" ")) + " [default: ]".len() };
    let names: Vec<_> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let values =
        if names.is_empty() { 0 } else { length(&names.join(", ")) + " [possible values: ]".len() };
    let shows_default = help + aliases + default <= width;
    let used = help + aliases + if shows_default { default } else { 0 };
    arg.hide_default_value(!shows_default).hide_possible_values(used + values > width)
}
