//! `wf-run check-grammars`: the process in which `wf-run serve` tries grammars first.

use crate::serve;

/// Check grammars for `wf-run serve`, which starts this itself
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: &Args) -> anyhow::Result<()> {
    serve::serve_checks()
}
