//! `wf-run completions`: tab completion for shells.

use super::{Cli, PROGRAM, VERSION};
use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use wf_run_cli::out;

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run completions bash > ~/.local/share/bash-completion/completions/wf-run
  wf-run completions zsh > ~/.zfunc/_wf-run
  wf-run completions fish > ~/.config/fish/completions/wf-run.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown(), PROGRAM, &mut script);
    out::print(&corrected(args.shell, String::from_utf8(script)?))
}

/// Returns the program without its hidden commands, which clap_complete offers like others.
fn shown() -> Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new(PROGRAM)
        .version(VERSION)
        .args(all.get_arguments().cloned())
        .subcommands(shown.collect::<Vec<_>>())
}

/// Corrects a script of clap_complete (4.6). For bash it writes the hyphen of the program's name in one way
/// where it sets the command, and in another way where it looks for it. For fish it has no values of
/// positional arguments.
fn corrected(shell: Shell, script: String) -> String {
    match shell {
        Shell::Bash => script.replace("wf__subcmd__run", "wf__run"),
        Shell::Fish => script + &fish_shells(),
        _ => script,
    }
}

/// Returns the line that makes fish complete the names of shells.
fn fish_shells() -> String {
    let names: Vec<String> = Shell::value_variants().iter().map(Shell::to_string).collect();
    let names = names.join(" ");
    format!(
        "complete -c {PROGRAM} -n \"__fish_seen_subcommand_from completions\" -f -a \"{names}\"\n"
    )
}
