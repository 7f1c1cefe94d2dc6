//! `wf-run health`: whether a server is well, for containers that have no other program to ask with.

use crate::cli::out;
use anyhow::Context;
use std::env;
use std::time::Duration;
use ureq::Agent;

/// Check if a server can answer requests
///
/// Exit code 0: it can. 1: it cannot, is not ready yet, or nothing listens there.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run health
  wf-run health http://127.0.0.1:8080")]
pub struct Args {
    /// Address of the server
    ///
    /// [default: 127.0.0.1, at the port of WF_PORT or 30000]
    url: Option<String>,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value = "3")]
    timeout: u64,
}

/// Asks.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let time = Duration::from_secs(args.timeout);
    // The server is meant and no proxy between.
    let agent: Agent =
        Agent::config_builder().timeout_global(Some(time)).proxy(None).build().into();
    let here = || {
        let port = env::var_os("WF_PORT").filter(|port| !port.is_empty());
        format!("http://127.0.0.1:{}", port.unwrap_or("30000".into()).display())
    };
    let url = format!("{}/health", args.url.clone().unwrap_or_else(here).trim_end_matches('/'));
    let mut answer = agent.get(&url).call().with_context(|| format!("{url} is not well"))?;
    out::print(&format!("{}\n", answer.body_mut().read_to_string()?))
}
