//! `wf-run bench`: how fast a model runs on this machine.

use crate::args::{self, ModelArgs};
use crate::bench::report::{Format, Report, Row};
use crate::bench::synthetic::Synthetic;
use crate::bench::{bandwidth, measure};
use crate::exit::usage;
use crate::{loaded, machine, out, sizes};
use anyhow::Context;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use wrinklefree::model::Model;

/// Measure prefill and decode speed
///
/// Tests are ppN (a prompt of N tokens) and tgN (N generated tokens from an empty context), each
/// warmed up once and repeated. The memory bandwidth is measured too: it bounds decoding, which
/// reads every weight once per token.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run bench --synthetic bitnet-2b -t 1,2
  wf-run bench --model ./my-model -p 128,512 -n 64 -r 3 -o json
  wf-run bench --synthetic tiny -p 0 -n 32        decode only")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Random weights of a known shape instead of a model
    #[arg(long, value_enum, conflicts_with = "model")]
    synthetic: Option<Synthetic>,
    /// Prompt lengths; 0 for none
    #[arg(short = 'p', long, value_name = "N,…", value_delimiter = ',', default_value = "512")]
    prompt: Vec<usize>,
    /// Numbers of generated tokens; 0 for none
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_value = "128")]
    generate: Vec<usize>,
    /// Repetitions of each test
    #[arg(short, long, value_name = "N", default_value = "5")]
    repetitions: NonZeroUsize,
    /// Numbers of threads [default: one per available core]
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', value_parser = args::threads())]
    threads: Vec<usize>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "md")]
    output: Format,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let tests = tests(args);
    if tests.is_empty() {
        return Err(usage("nothing to measure: -p and -n are both 0"));
    }
    let threads: Vec<usize> = match args.threads[..] {
        [] => vec![available_parallelism().map_or(1, NonZeroUsize::get)],
        ref list => list.to_vec(),
    };
    let kernels = machine::kernels()?;
    let (name, model) = model(args)?;
    let longest = tests.iter().map(measure::Test::positions).max().unwrap_or(0);
    if longest > model.spec().context_length {
        return Err(usage(format!(
            "a test of {longest} tokens: the model holds {}",
            model.spec().context_length
        )));
    }
    let mut report = Report::new(args.output);
    out::print(&report.head())?;
    let bandwidths = bandwidth::measure(&threads);
    for (threads, bandwidth) in threads.into_iter().zip(bandwidths) {
        let runtime = machine::runtime(threads)?;
        for &test in &tests {
            let samples = measure::run(&model, &runtime, test, args.repetitions.get())?;
            let row = Row {
                model: name.clone(),
                size_bytes: sizes::bytes(model.weights()),
                parameters: model.parameters() as u64,
                backend: kernels.isa().name(),
                threads,
                test,
                samples,
                bytes_per_token: model.bytes_per_token() as u64,
                bandwidth,
            };
            out::print(&report.row(row))?;
        }
    }
    out::print(&report.tail())
}

fn tests(args: &Args) -> Vec<measure::Test> {
    let prompts = args.prompt.iter().map(|&n| measure::Test::Prompt(n));
    let generates = args.generate.iter().map(|&n| measure::Test::Generate(n));
    prompts.chain(generates).filter(|t| t.positions() > 0).collect()
}

fn model(args: &Args) -> anyhow::Result<(String, Model)> {
    let (name, spec, weights) = match args.synthetic {
        Some(shape) => (format!("{} (synthetic)", shape.name()), shape.spec(), shape.weights()),
        None => {
            let (name, c) =
                loaded::checkpoint(args.model.model.as_deref(), &args.model.hub.revision)?;
            (name, c.spec, c.weights)
        }
    };
    let model = Model::new(spec, weights).with_context(|| format!("cannot run {name}"))?;
    Ok((name, model))
}
