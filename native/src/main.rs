//! `wf-run`: ternary language models on ordinary CPUs, from the command line.
//!
//! This crate lists the commands. Three libraries hold most of them: `wf-run-cli` has what commands share,
//! `wf-run-server` the server, and `wf-run-laboratory` the measurements. Models and the machine are
//! `wrinklefree-easy`'s.
//!
//! Exit codes: 0 done, 1 failure, 2 wrong usage, 130 interrupted.

mod commands;

use std::process::ExitCode;
use wf_run_cli::{provenance, signals};

fn main() -> ExitCode {
    provenance::set_build(env!("BUILT_COMMIT"), env!("BUILT_TARGET"));
    let prepared = signals::report_file_failures();
    match prepared.and_then(|()| commands::Cli::from_arguments()?.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => wf_run_cli::report(&error),
    }
}
