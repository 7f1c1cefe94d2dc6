//! `wf-run completions`: tab completion for shells.

use super::Cli;
use crate::cli::out;
use clap::CommandFactory;
use clap_complete::Shell;

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
    clap_complete::generate(args.shell, &mut Cli::command(), "wf-run", &mut script);
    out::print(&String::from_utf8(script)?)
}
