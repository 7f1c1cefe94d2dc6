//! `wf-run health`: whether a server is well, for containers that have no other program to ask with.

use serde_json::json;
use wf_run_cli::client::ServerArgs;
use wf_run_cli::config::ConfigArgs;
use wf_run_cli::out;
use wf_run_cli::result_format::ResultFormat;

/// Check if a server can answer requests
///
/// Exit code 0: it can. 1: it cannot, is not ready yet, or nothing listens there.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run health
  wf-run health localhost:8080
  wf-run health https://localhost:8443 --cacert ca.pem")]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    _config: ConfigArgs,
    #[command(flatten)]
    output: ResultFormat,
}

/// Asks.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let answer = args.server.client()?.get("/health", None)?;
    if args.output.is_json() {
        out::json(&json!({"healthy": true, "answer": answer}))
    } else {
        out::print(&(answer + "\n"))
    }
}
