//! `wf-run eval activations`: what zeros among activations cost and give.

use crate::bench::report::{OutputArgs, Record, Report};
use crate::eval::activation_stats::Zeros;
use crate::eval::activations::{Quality, Speed, quality, speeds};
use anyhow::Context;
use serde_json::{Value, json};
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use wf_run_cli::args::{self, ComputeArgs, ModelArgs};
use wf_run_cli::exit::usage;
use wf_run_cli::{out, progress};
use wrinklefree::model::Sparsity;
use wrinklefree_easy::machine;

/// Rules to compare when the user does not say.
const POLICIES: &str = "off,threshold:0.02@down,threshold:0.05@down,topk:0.3@down,topk:0.1@down,\
                        adaptive@down,threshold:0.02,topk:0.7,topk:0.5,topk:0.3,adaptive";

/// Compare rules for activation sparsity
///
/// For each --activation-sparsity: the share of zeros among the inputs of ternary layers, and of
/// blocks of 16 columns that are all zero, which a product can skip, in all of them and in front of
/// down_proj alone; the speed of decoding, also as a multiple of what a kernel does that skips
/// nothing (run in turn; medians); the cosine of its logits with those of `off`, on average and at
/// worst; and the perplexity of the text.
#[derive(clap::Args)]
#[command(mut_arg("activations", args::exact_by_default))]
#[command(after_help = "\
Examples:
  wf-run eval activations held-out.txt
  wf-run eval activations -m ./my-model --policies off,topk:0.5 wiki.txt")]
pub struct Args {
    /// The text, UTF-8
    text: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    /// Rules to compare
    #[arg(
        long,
        value_name = "RULE,…",
        value_delimiter = ',',
        default_value = POLICIES
    )]
    policies: Vec<Sparsity>,
    /// Tokens of a window
    ///
    /// [default: 512, or the model's context if it is shorter]
    #[arg(short, long, value_name = "N", value_parser = args::positions())]
    window: Option<usize>,
    /// Windows of the text at most
    #[arg(long, value_name = "N", default_value = "4")]
    windows: NonZeroUsize,
    /// Tokens to decode in each round
    #[arg(short = 'n', long, value_name = "N", default_value = "64")]
    decode: NonZeroUsize,
    /// Rounds of decoding
    #[arg(short, long, value_name = "N", default_value = "25")]
    repetitions: NonZeroUsize,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

struct Row {
    model: String,
    backend: &'static str,
    threads: usize,
    policy: Sparsity,
    quality: Quality,
    speed: Speed,
}

impl Record for Row {
    const COLUMNS: &[&str] = &[
        "activations",
        "zeros:",
        "zero blocks:",
        "zeros, down:",
        "zero blocks, down:",
        "t/s:",
        "× dense:",
        "cosine:",
        "least:",
        "perplexity:",
    ];

    fn cells(&self) -> Vec<String> {
        let Self { quality: Quality { loss, cosines, counts }, speed, .. } = self;
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let shares = |zeros: &Zeros| [percent(zeros.share()), percent(zeros.block_share())];
        let ratio = format!("{:.2}", speed.times_dense());
        let rest = [
            format!("{:.0}", speed.tokens_per_second()),
            if speed.equal { format!("{ratio}, equal bits") } else { ratio },
            format!("{:.4}", cosines.mean()),
            format!("{:.4}", cosines.min),
            format!("{:.3}", loss.mean().exp()),
        ];
        let shares = [shares(&counts.all), shares(&counts.down)].concat();
        [&[self.policy.to_string()], &shares[..], &rest].concat()
    }

    fn fields(&self) -> Value {
        let Self { quality: Quality { loss, cosines, counts }, speed, .. } = self;
        json!({
            "model": self.model,
            "backend": self.backend,
            "threads": self.threads,
            "activation_sparsity": self.policy.to_string(),
            "zeros": counts.all.share(),
            "zero_blocks": counts.all.block_share(),
            "down_zeros": counts.down.share(),
            "down_zero_blocks": counts.down.block_share(),
            "tokens_per_second": speed.tokens_per_second(),
            "times_dense": speed.times_dense(),
            "equals_dense": speed.equal,
            "samples": speed.samples,
            "cosine": cosines.mean(),
            "least_cosine": cosines.min,
            "tokens": loss.tokens,
            "nats_per_token": loss.mean(),
            "perplexity": loss.mean().exp(),
        })
    }

    fn summary(_: &[Self]) -> String {
        "\n\"dense\" is off with a kernel that skips no zeros; \"equal bits\": the logits are its own.\n"
            .into()
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.model.activation_sparsity != Sparsity::default() {
        return Err(usage("--activation-sparsity chooses one: --policies lists those to compare"));
    }
    let path = args.text.display();
    let text = fs::read_to_string(&args.text).with_context(|| format!("cannot read {path}"))?;
    let threads = args.compute.threads();
    let mut runtime = machine::runtime(threads)?;
    let mut loaded = args.model.open(None, &runtime)?;
    let tokens = loaded.tokenizer()?.encode(&text, true).context("cannot encode the text")?;
    let window = super::window(args.window, &loaded)?;
    let windows: Vec<&[u32]> =
        tokens.chunks(window).filter(|w| w.len() > 1).take(args.windows.get()).collect();
    let Some(first) = windows.first() else {
        return Err(usage(format!("{path} has {} tokens: nothing to predict", tokens.len())));
    };
    let first = &first[..args.decode.get().min(first.len())];
    let bar = progress::bar(args.policies.len() + 1);
    let model = &mut loaded.model;
    let rounds = args.repetitions.get();
    let speeds = speeds(model, &mut runtime, &args.policies, first, rounds)?;
    bar.inc(1);
    let mut rows = Vec::new();
    for (&policy, speed) in args.policies.iter().zip(speeds) {
        rows.push(Row {
            model: loaded.name.clone(),
            backend: runtime.kernels.isa().name(),
            threads: threads.count(),
            policy,
            quality: quality(model, &runtime, policy, &windows)?,
            speed,
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    rows.into_iter().try_for_each(|row| out::print(&report.row(row)))?;
    report.finish()
}
