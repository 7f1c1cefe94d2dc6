//! `wf-run compare`: two models, or a model and the logits of another program.

use crate::bench::report::Format;
use crate::eval::logits::{self, Difference};
use crate::eval::tensors::{self, Compared};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use wf_run_cli::args::{self, ComputeArgs, HubArgs};
use wf_run_cli::config::ConfigArgs;
use wf_run_cli::exit::usage;
use wf_run_cli::{human, npy, open, out};
use wrinklefree::format::{Checkpoint, ValueOrder};
use wrinklefree::model::{Model, Runtime};
use wrinklefree_easy::machine;
use wrinklefree_easy::models::{self, Opened};

/// Tokens that are compared when the user names none.
const PROBE: usize = 16;

/// Compare the logits and weights of two models
///
/// Prints how far the logits of B, or those of a NumPy file, are from A's: the largest difference, the
/// most likely tokens, the Kullback–Leibler divergence; and the first tensor that differs. With --atol
/// it fails if a logit differs by more.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run compare ./my-model my-model.gguf
  wf-run compare ./my-model --baseline hf.npy --tokens 1,2,3 --atol 1e-3
  wf-run compare ./my-model my-model.gguf -o json | jq .logits")]
pub struct Args {
    /// A directory, a file or a hub id
    #[arg(value_name = "A")]
    a: OsString,
    /// The model to compare with A
    #[arg(value_name = "B", required_unless_present = "baseline")]
    b: Option<OsString>,
    /// Logits of another program, f32 [tokens, vocab]
    ///
    /// A NumPy file as `wf-run logits` writes it: row i is what the model predicts after token i.
    #[arg(long, value_name = "FILE.npy", requires = "input")]
    baseline: Option<PathBuf>,
    /// Token ids [default: 16 of the vocabulary]
    #[arg(long, value_name = "IDS", value_delimiter = ',', group = "input")]
    tokens: Vec<u32>,
    /// A text instead of token ids
    #[arg(long, value_name = "TEXT", group = "input")]
    text: Option<String>,
    /// Fail if a logit differs by more
    #[arg(long, value_name = "X", value_parser = tolerance, allow_negative_numbers = true)]
    atol: Option<f64>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "md")]
    output: Format,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    _config: ConfigArgs,
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x >= 0.0 && x.is_finite() => Ok(x),
        _ => Err("expected a number from 0".into()),
    }
}

/// Logits that were compared with A's.
struct Comparison {
    with: String,
    difference: Difference,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if !matches!(args.output, Format::Md | Format::Json) {
        return Err(usage("-o: the result is no table; take md or json"));
    }
    let runtime = machine::runtime(args.compute.threads())?;
    let a = Named::open(&args.a, args, &runtime)?;
    let tokens = tokens(args, &a)?;
    let vocab = a.checkpoint.spec.vocab_size;
    let baseline =
        args.baseline.as_ref().map(|path| read(path, tokens.len(), vocab)).transpose()?;
    let reference = a.logits(&runtime, &tokens)?;
    let mut compared = Vec::new();
    if let (Some(path), Some(baseline)) = (&args.baseline, &baseline) {
        let with = path.display().to_string();
        compared.push(Comparison { with, difference: Difference::of(baseline, &reference, vocab) });
    }
    let mut weights = None;
    if let Some(b) = &args.b {
        let b = Named::open(b, args, &runtime)?;
        ensure!(
            b.checkpoint.spec.vocab_size == vocab,
            "{} has {vocab} tokens and {} has {}: their logits cannot be compared",
            a.name,
            b.name,
            b.checkpoint.spec.vocab_size
        );
        let found = b.logits(&runtime, &tokens)?;
        let difference = Difference::of(&reference, &found, vocab);
        compared.push(Comparison { with: b.name, difference });
        weights = Some(tensors(a.checkpoint, b.checkpoint)?);
    }
    match args.output {
        Format::Json => out::json(&fields(&a.name, &compared, weights.as_deref()))?,
        _ => out::print(&table(&a.name, &compared, weights.as_deref()))?,
    }
    let Some(atol) = args.atol else { return Ok(()) };
    for Comparison { with, difference: Difference { largest, at, .. } } in &compared {
        ensure!(
            *largest <= atol,
            "the logits of {with} differ by {largest:.3e}, more than --atol {atol}: at position {}, \
             token {}",
            at.0,
            at.1
        );
    }
    Ok(())
}

/// A model and its name.
struct Named {
    name: String,
    checkpoint: Checkpoint,
}

impl Named {
    fn open(model: &OsStr, args: &Args, runtime: &Runtime) -> anyhow::Result<Self> {
        let Opened { name, checkpoint, .. } =
            open::checkpoint(Some(model), &args.hub.revision, runtime)?;
        Ok(Self { name, checkpoint })
    }

    fn logits(&self, runtime: &Runtime, tokens: &[u32]) -> anyhow::Result<Vec<f32>> {
        let Checkpoint { spec, weights, .. } = self.checkpoint.clone();
        let model = Model::new(spec, weights)?.with_supported_layout(runtime);
        logits::all(runtime, &model, tokens)
    }
}

fn tokens(args: &Args, a: &Named) -> anyhow::Result<Vec<u32>> {
    let spec = &a.checkpoint.spec;
    let tokens = match &args.text {
        Some(text) => {
            let tokenizer = models::tokenizer(&a.name, &a.checkpoint.text, spec.vocab_size)?;
            let tokenizer = tokenizer.context("--text needs a model with a tokenizer")?;
            tokenizer.encode(text, true).context("cannot encode the text")?
        }
        None if args.tokens.is_empty() => {
            logits::spread(PROBE.min(spec.context_length), spec.vocab_size)
        }
        None => args.tokens.clone(),
    };
    if tokens.is_empty() {
        return Err(usage("--text has no tokens: nothing to compare"));
    }
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= spec.vocab_size) {
        let vocab = spec.vocab_size;
        return Err(usage(format!("token id {id} is outside the vocabulary of {vocab}")));
    }
    args::warn_beyond(tokens.len(), spec);
    Ok(tokens)
}

/// Reads the logits of another program.
fn read(path: &Path, rows: usize, vocab: usize) -> anyhow::Result<Vec<f32>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (shape, values) =
        npy::read(&bytes).with_context(|| format!("cannot use {}", path.display()))?;
    ensure!(
        shape == [rows, vocab],
        "{}: expected f32 [{rows}, {vocab}], a row for each token, found {shape:?}",
        path.display()
    );
    ensure!(values.iter().all(|x| x.is_finite()), "{} has a NaN or infinity", path.display());
    Ok(values)
}

/// Compares all tensors, with the value heads of both models in one order.
fn tensors(a: Checkpoint, b: Checkpoint) -> anyhow::Result<Vec<Compared>> {
    let [a, b] = [a, b].map(|model| model.with_value_order(ValueOrder::Tiled));
    Ok(tensors::compare(&a?.weights, &b?.weights))
}

fn changed(weights: &[Compared]) -> impl Iterator<Item = &Compared> {
    weights.iter().filter(|tensor| tensor.difference.is_some())
}

fn fields(a: &str, compared: &[Comparison], weights: Option<&[Compared]>) -> Value {
    let logits: Vec<Value> = compared
        .iter()
        .map(|Comparison { with, difference }| {
            let mut fields = json!(difference);
            fields["with"] = with.as_str().into();
            fields
        })
        .collect();
    let weights = weights.map(|all| {
        json!({
            "tensors": all.len(),
            "different": changed(all).count(),
            "first": changed(all).next(),
        })
    });
    json!({"model": a, "logits": logits, "weights": weights})
}

fn table(a: &str, compared: &[Comparison], weights: Option<&[Compared]>) -> String {
    let mut rows = vec![
        ["logits", "largest", "mean", "of largest", "cosine", "top 1", "KL mean", "KL largest"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for Comparison { with, difference: d } in compared {
        rows.push(vec![
            with.clone(),
            format!("{:.3e}", d.largest),
            format!("{:.3e}", d.mean),
            format!("{:.1e}", d.relative),
            format!("{:.6}", d.cosine),
            format!("{} of {}", d.top1, d.positions),
            format!("{:.3e}", d.kl_mean),
            format!("{:.3e}", d.kl_largest),
        ]);
    }
    let mut text = format!("{a}\n\n{}", human::table(&rows));
    for Comparison { with, difference: Difference { largest, at, .. } } in compared {
        if *largest > 0.0 {
            text += &format!("\n{with}: largest at position {}, token {}\n", at.0, at.1);
        }
    }
    let Some(all) = weights else { return text };
    let different = changed(all).count();
    text +=
        &format!("\n{} of {} tensors hold the same numbers\n", all.len() - different, all.len());
    if let Some(Compared { name, kinds: [a, b], difference: Some(d) }) = changed(all).next() {
        let (what, largest) = (&d.what, d.largest);
        text += &format!(
            "first difference: {name} ({a} and {b}): {what}; at most {largest:.1e} of its largest\n"
        );
    }
    text
}
