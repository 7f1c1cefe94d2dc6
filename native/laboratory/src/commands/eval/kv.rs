//! `wf-run eval kv`: compares KV cache types and page selections.

use crate::bench::report::{OutputArgs, Record, Report};
use crate::eval::kv::{Probe, Results, cosines, first_layer};
use anyhow::Context;
use serde_json::{Value, json};
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use wf_run_cli::args::{self, ComputeArgs, ModelArgs, kv_type};
use wf_run_cli::exit::usage;
use wf_run_cli::{human, out, progress};
use wrinklefree::cache::{KvConfig, KvPool, KvType, PAGE, PageSelection};
use wrinklefree_easy::machine;
use wrinklefree_easy::models::{Loaded, Synthetic};

/// Compare KV cache types and page selections
///
/// Each cache is filled with the beginning of the text (again and again where it is shorter). The
/// last 256 positions tell what changes: the cosine, mean and least, of attention's output and of
/// the logits with those of an f32 cache that is read whole, and the perplexity. In the first layer
/// the change is the cache's own; in the last one and in the logits all layers' changes have added
/// up. Then all caches of a context take turns at one more token: how long a pass takes, and what
/// of it the context costs. All caches of a context are in memory together.
#[derive(clap::Args)]
#[command(mut_arg("activations", args::exact_by_default))]
#[command(after_help = "\
Examples:
  wf-run eval kv models/eval/text.txt
  wf-run eval kv --context 8192 --attention topk:1024 text.txt
  wf-run eval kv --synthetic tiny --types bf16,int8   speed alone")]
pub struct Args {
    /// The text, UTF-8
    #[arg(required_unless_present = "synthetic")]
    text: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Random weights instead of a model
    #[arg(long, value_parser = args::synthetic(),
        conflicts_with_all = ["model_path", "rope_scaling", "text"])]
    synthetic: Option<Synthetic>,
    /// Positions
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1024,4096,8192,16384", value_parser = args::positions())]
    context: Vec<usize>,
    /// Types of keys and values
    ///
    /// [default: all, or f32 if --attention is given]
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', value_parser = kv_type())]
    types: Vec<KvType>,
    /// Page selections; repeatable
    ///
    /// Each is measured with each type [default: dense].
    #[arg(long, value_name = "WHAT")]
    attention: Vec<PageSelection>,
    /// Rounds of timing
    #[arg(short, long, value_name = "N", default_value = "15")]
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
    context: usize,
    config: KvConfig,
    bytes: u64,
    /// Seconds of a pass at the context's end, and of one at its beginning.
    seconds: [f64; 2],
    /// Time of the f32 cache that is read whole, as a multiple of this one.
    speed: f64,
    read: f64,
    /// Cosines, mean and least: of attention in the first and in the last layer, and of the logits.
    cosines: [[f64; 2]; 3],
    perplexity: f64,
}

impl Row {
    /// Microseconds that a token's attention to the context takes, in all layers.
    fn attention_us(&self) -> f64 {
        1e6 * (self.seconds[0] - self.seconds[1]).max(0.0)
    }
}

impl Record for Row {
    const COLUMNS: &[&str] = &[
        "context:",
        "type",
        "attention",
        "memory:",
        "pages read:",
        "t/s:",
        "× f32:",
        "attention µs:",
        "cosine, first layer:",
        "last layer:",
        "logits:",
        "perplexity:",
    ];

    fn cells(&self) -> Vec<String> {
        let [first, last, logits] =
            self.cosines.map(|[mean, least]| format!("{mean:.5} ≥ {least:.5}"));
        vec![
            self.context.to_string(),
            name(&self.config),
            self.config.selection.to_string(),
            human::bytes(self.bytes),
            format!("{:.0} %", 100.0 * self.read),
            format!("{:.1}", 1.0 / self.seconds[0]),
            format!("{:.2}", self.speed),
            format!("{:.0}", self.attention_us()),
            first,
            last,
            logits,
            format!("{:.3}", self.perplexity),
        ]
    }

    fn label(&self) -> String {
        format!("{}, {}, {}", self.context, name(&self.config), self.config.selection)
    }

    fn fields(&self) -> Value {
        json!({
            "model": self.model,
            "backend": self.backend,
            "threads": self.threads,
            "context": self.context,
            "keys": self.config.keys.name(),
            "values": self.config.values.name(),
            "attention": self.config.selection.to_string(),
            "bytes": self.bytes,
            "share_of_pages_read": self.read,
            "tokens_per_second": 1.0 / self.seconds[0],
            "speed_against_f32": self.speed,
            "attention_microseconds": self.attention_us(),
            "first_layer_cosine": self.cosines[0][0],
            "first_layer_cosine_least": self.cosines[0][1],
            "last_layer_cosine": self.cosines[1][0],
            "last_layer_cosine_least": self.cosines[1][1],
            "logits_cosine": self.cosines[2][0],
            "logits_cosine_least": self.cosines[2][1],
            "perplexity": self.perplexity,
        })
    }
}

/// The name of a cache's type.
fn name(config: &KvConfig) -> String {
    if config.keys == config.values {
        config.keys.name().into()
    } else {
        format!("{}/{}", config.keys.name(), config.values.name())
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let threads = args.compute.threads();
    let runtime = machine::runtime(threads)?;
    let loaded = match args.synthetic {
        Some(shape) => args.model.prepare(shape.loaded(), &runtime),
        None => args.model.open(None, &runtime)?,
    };
    if loaded.model.spec().linear_attention.is_some() {
        return Err(usage(format!(
            "{} has layers with linear attention, which keep no keys and values: this command \
             compares models that attend in every layer",
            loaded.name
        )));
    }
    let text = tokens(args, &loaded)?;
    if let Some(short) = args.context.iter().find(|&&n| n < 2) {
        return Err(usage(format!("--context {short}: 2 at least")));
    }
    let longest = args.context.iter().copied().max().unwrap_or(0);
    args::warn_beyond(longest, loaded.model.spec());
    let (configs, first) = (configs(args), first_layer(&loaded.model)?);
    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    let bar = progress::bar(args.context.len() * configs.len());
    for &context in &args.context {
        // Said before anything else takes memory.
        drop(KvPool::new(loaded.model.spec(), context.div_ceil(PAGE), KvConfig::EXACT)?);
        let tokens: Vec<u32> = text.iter().copied().cycle().take(context).collect();
        let mut probes = Vec::new();
        let mut firsts = Vec::new();
        for config in &configs {
            firsts.push(Probe::new(&first, &runtime, *config, &tokens)?.1.attention);
            probes.push(Probe::new(&loaded.model, &runtime, *config, &tokens)?);
            bar.inc(1);
        }
        let times = times(&mut probes, args.repetitions.get());
        let reference = &probes[0].1;
        for (i, ((config, (probe, results)), times)) in
            configs.iter().zip(&probes).zip(times).enumerate()
        {
            if i == 0 && !wanted(args, config) {
                continue;
            }
            let row = Row {
                model: loaded.name.clone(),
                backend: runtime.kernels.isa().name(),
                threads: threads.count(),
                context,
                config: *config,
                bytes: probe.bytes(),
                seconds: times.seconds,
                speed: times.speed,
                read: results.read,
                cosines: [
                    cosines(&firsts[i], &firsts[0])?,
                    cosines(&results.attention, &reference.attention)?,
                    cosines(&results.logits, &reference.logits)?,
                ],
                perplexity: results.loss.mean().exp(),
            };
            bar.suspend(|| out::print(&report.row(row)))?;
        }
    }
    bar.finish_and_clear();
    report.finish()
}

/// The text's tokens.
fn tokens(args: &Args, loaded: &Loaded) -> anyhow::Result<Vec<u32>> {
    let Some(path) = &args.text else {
        // A fixed walk through the vocabulary.
        let vocab = loaded.model.spec().vocab_size;
        return Ok((0..vocab).map(|i| ((i * 7919 + 1) % vocab) as u32).collect());
    };
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let tokens = loaded.tokenizer()?.encode(&text, true).context("cannot encode the text")?;
    if tokens.is_empty() { Err(usage(format!("{name} is empty"))) } else { Ok(tokens) }
}

/// The caches that are compared, that of f32 first.
fn configs(args: &Args) -> Vec<KvConfig> {
    let types = match args.types.is_empty() {
        true if args.attention.is_empty() => KvType::ALL.to_vec(),
        true => vec![KvType::F32],
        false => args.types.clone(),
    };
    let ways =
        if args.attention.is_empty() { vec![PageSelection::Dense] } else { args.attention.clone() };
    let mut configs = vec![KvConfig::EXACT];
    for selection in ways {
        for &dtype in &types {
            let config = KvConfig { keys: dtype, values: dtype, selection, ..KvConfig::EXACT };
            if !configs.contains(&config) {
                configs.push(config);
            }
        }
    }
    configs
}

/// Returns true if the first cache is a row of the table, not only the reference of the others.
fn wanted(args: &Args, first: &KvConfig) -> bool {
    let asked = args.types.is_empty() || args.types.contains(&first.keys);
    asked && (args.attention.is_empty() || args.attention.contains(&first.selection))
}

/// Medians of what a cache took in all turns.
struct Times {
    seconds: [f64; 2],
    speed: f64,
}

/// All caches in turn, again and again, so that a noisy second meets them all.
fn times(probes: &mut [(Probe<'_>, Results)], turns: usize) -> Vec<Times> {
    let samples: Vec<Vec<[f64; 2]>> =
        (0..turns).map(|_| probes.iter_mut().map(|(probe, _)| probe.sample()).collect()).collect();
    let median = |of: &dyn Fn(&Vec<[f64; 2]>) -> f64| {
        let mut all: Vec<f64> = samples.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let times = |i: usize| Times {
        seconds: [0, 1].map(|deep| median(&|turn| turn[i][deep])),
        speed: median(&|turn| turn[0][0] / turn[i][0]),
    };
    (0..probes.len()).map(times).collect()
}
