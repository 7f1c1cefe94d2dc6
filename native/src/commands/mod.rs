//! The commands, one file each.

mod bench;
mod chat;
mod completions;
mod convert;
mod eval;
mod generate;
mod health;
mod inspect;
mod logits;
mod serve;
mod tune;

use clap::{Parser, Subcommand};

/// Run ternary language models on ordinary CPUs.
#[derive(Parser)]
#[command(name = "wf-run", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  wf-run generate \"Once upon a time\"               the small model inside this program
  wf-run chat --model microsoft/bitnet-b1.58-2B-4T  a model from the hub, downloaded once
  wf-run serve --port 8080                          the same for OpenAI's clients
  wf-run inspect ./my-model                         what a model is and how much memory it needs
  wf-run convert ./my-model my-model.safetensors    one packed file that loads at once
  wf-run bench --synthetic bitnet-2b -t 1,2         speed without any download
  wf-run tune                                       how many threads are best on this machine
  wf-run eval agreement                             decode modes: speed beside quality

Environment:
  WF_HOST, WF_BLOCK_SIZE…   settings of the server and of decoding: `wf-run serve --help`
  WF_LOG                    what the server logs: warn, info, debug [default: info]
  WF_ISA                    kernels: scalar, avx2, avx512, amx [default: the best of this machine]
  HF_HOME, HF_HUB_CACHE     where models from the hub are kept
  HF_ENDPOINT, HF_TOKEN     which hub, and who you are
  HF_HUB_OFFLINE=1          never touch the network";

#[derive(Subcommand)]
enum Command {
    Generate(generate::Args),
    Chat(chat::Args),
    Serve(Box<serve::Args>),
    Health(health::Args),
    Inspect(inspect::Args),
    Convert(convert::Args),
    Logits(logits::Args),
    Bench(bench::Args),
    Tune(tune::Args),
    Eval(eval::Args),
    Completions(completions::Args),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Generate(args) => generate::run(&args),
            Command::Chat(args) => chat::run(args),
            Command::Serve(args) => serve::run(&args),
            Command::Health(args) => health::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Convert(args) => convert::run(&args),
            Command::Logits(args) => logits::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Eval(args) => eval::run(&args),
            Command::Completions(args) => completions::run(&args),
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
