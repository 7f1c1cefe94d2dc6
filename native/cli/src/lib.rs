//! Shared parts of the commands of `wf-run`: options, settings ([`config`]), output, exit codes, signals, files
//! that appear whole, and running one request.

pub mod answer_format;
pub mod args;
pub mod atomic_directory;
pub mod atomic_file;
pub mod client;
pub mod config;
pub mod exit;
pub mod human;
pub mod kernels;
pub mod malloc;
mod markdown;
pub mod npy;
pub mod open;
pub mod out;
pub mod parse;
pub mod progress;
pub mod provenance;
pub mod result_format;
pub mod session;
pub mod signals;
pub mod suggest;
pub mod system;
pub mod thinking;
pub mod tool_args;
pub mod typed;

use std::process::ExitCode;

/// Prints an error on standard error and returns the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let (message, code) = exit::outcome(error);
    if let Some(message) = message {
        out::note(message);
    }
    code
}
