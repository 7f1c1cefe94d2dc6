//! `wf-run`: ternary language models on ordinary CPUs, from the command line.
//!
//! Exit codes: 0 done, 1 failure, 2 wrong usage, 130 interrupted.

mod args;
mod bench;
mod chat_prompt;
mod commands;
mod config;
mod cores;
mod decoding;
mod default_model;
mod eval;
mod exit;
mod grammar;
mod heap;
mod hub;
mod human;
mod interrupt;
mod loaded;
mod machine;
mod mapped;
mod model_source;
mod npy;
mod out;
mod progress;
mod replace;
mod row_cost;
mod select;
mod serve;
mod session;
mod sizes;
mod steps;
mod stretch;
mod tune;
mod zeros;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
