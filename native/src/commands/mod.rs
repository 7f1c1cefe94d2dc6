//! The commands, one file each.

mod chat;
mod check_grammars;
mod completions;
mod convert;
mod generate;
mod health;
mod inspect;
mod serve;
mod short_help;
mod store;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::env;
use std::ffi::OsString;
use wf_run_cli::config;
use wf_run_cli::parse;
use wf_run_laboratory::commands::{bench, compare, eval, logits, tune};

/// Run ternary language models on ordinary CPUs.
#[derive(Parser)]
#[command(name = PROGRAM, version = VERSION, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Name of the program.
const PROGRAM: &str = "wf-run";

/// Version, commit and target.
const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILT_COMMIT"), ", ", env!("BUILT_TARGET"), ")");

const EXAMPLES: &str = "\
Examples:
  wf-run generate \"Once upon a time\"         the small embedded model
  wf-run chat -m microsoft/bitnet-b1.58-2B-4T  from the hub, downloaded once
  wf-run serve --port 8080                     a server for OpenAI's clients
  wf-run pull org/name --name small            a model for the local store
  wf-run serve --models store                  a server of the store's models
  wf-run inspect ./my-model                    architecture, sizes, memory
  wf-run convert ./my-model my.safetensors     a file that loads at once
  wf-run bench --synthetic bitnet-2b -t 1,2    speed without any download
  wf-run tune                                  the best numbers of threads
  wf-run eval agreement                        speed and quality of decode modes

Environment:
  WF_HOST, WF_BLOCK_SIZE…  settings, as in `wf-run serve --help`
  WF_LOG                   server log: warn, info, debug [default: info]
  WF_ISA                   kernels: scalar, avx2, avxvnni, avx512, amx; on ARM
                           scalar, neon, dotprod, i8mm [default: best]
  HF_HOME, HF_HUB_CACHE    where models from the hub are kept
  HF_ENDPOINT, HF_TOKEN    the hub, and your access token
  HF_HUB_OFFLINE=1         use no network";

#[derive(Subcommand)]
enum Command {
    Generate(generate::Args),
    Chat(chat::Args),
    Serve(Box<serve::Args>),
    Pull(store::PullArgs),
    Add(store::AddArgs),
    #[command(visible_alias = "ls")]
    List(store::ListArgs),
    Rm(store::RemoveArgs),
    Ps(store::PsArgs),
    Run(store::RunArgs),
    Health(health::Args),
    Inspect(inspect::Args),
    Convert(convert::Args),
    Compare(compare::Args),
    Logits(logits::Args),
    Bench(bench::Args),
    Tune(tune::Args),
    Eval(eval::Args),
    Completions(completions::Args),
    #[command(name = wf_run_server::CHECK_GRAMMARS, hide = true)]
    CheckGrammars(check_grammars::Args),
}

impl Cli {
    /// Parses the arguments of the program, with the settings of the configuration as defaults. Ends it
    /// where they are wrong or ask for help.
    ///
    /// # Errors
    /// If the configuration is wrong.
    pub fn from_arguments() -> anyhow::Result<Self> {
        Self::configured(env::args_os().collect())
    }

    /// Parses these arguments, the program's name first, as [`from_arguments`](Self::from_arguments) does.
    ///
    /// # Errors
    /// If the configuration is wrong.
    fn configured(arguments: Vec<OsString>) -> anyhow::Result<Self> {
        let command = if short_help::is_asked(arguments.iter().cloned()) {
            short_help::shorten(Self::command())
        } else {
            Self::command()
        };
        let command = parse::with_negative_values(command);
        let first = parse::matches(command.clone(), arguments.iter().cloned())?;
        let matches = config::configured(command, arguments.into_iter(), first)?;
        Ok(Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
    }

    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Generate(args) => generate::run(&args),
            Command::Chat(args) => chat::run(args),
            Command::Serve(args) => serve::run(&args),
            Command::Pull(args) => store::pull(&args),
            Command::Add(args) => store::add(&args),
            Command::List(args) => store::list(&args),
            Command::Rm(args) => store::remove(&args),
            Command::Ps(args) => store::ps(&args),
            Command::Run(args) => store::run(args),
            Command::Health(args) => health::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Convert(args) => convert::run(&args),
            Command::Compare(args) => compare::run(&args),
            Command::Logits(args) => logits::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Eval(args) => eval::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::CheckGrammars(args) => check_grammars::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
