//! `wf-run`: ternary language models on ordinary CPUs, from the command line.
//!
//! Models and the machine are the library's, `wrinklefree-easy`. Upon it, modules in layers, lowest
//! first: `cli`, `config`, then `bench`, `eval` and `serve`, then `commands`. A module imports only
//! from layers below its own.
//!
//! Exit codes: 0 done, 1 failure, 2 wrong usage, 130 interrupted.

mod bench;
mod cli;
mod commands;
mod config;
mod eval;
mod serve;

use std::process::ExitCode;
use wrinklefree_easy::{machine, models};

fn main() -> ExitCode {
    let prepared = cli::signals::report_file_failures();
    match prepared.and_then(|()| commands::Cli::from_arguments()?.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cli::report(&error),
    }
}
