//! `wf-run`: ternary language models on ordinary CPUs, from the command line.
//!
//! Modules in layers, lowest first: `machine`, `models`, `cli`, `config`, then `bench`, `eval` and
//! `serve`, then `commands`. A module imports only from layers below its own.
//!
//! Exit codes: 0 done, 1 failure, 2 wrong usage, 130 interrupted.

mod bench;
mod cli;
mod commands;
mod config;
mod eval;
mod machine;
mod models;
mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::Cli::from_arguments().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cli::report(&error),
    }
}
