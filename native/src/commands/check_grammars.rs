//! `wf-run check-grammars`: the process in which `wf-run serve` tries grammars first.

/// Check grammars for `wf-run serve`, which starts this itself
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: &Args) -> anyhow::Result<()> {
    wf_run_server::serve_checks()
}
