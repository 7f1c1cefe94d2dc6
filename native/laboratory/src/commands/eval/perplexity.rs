//! `wf-run eval perplexity`: how well a model predicts a text.

use crate::bench::report::{OutputArgs, Record, Report};
use crate::eval::perplexity::{Loss, MASKED, Scorer};
use anyhow::Context;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use wf_run_cli::args::{self, ComputeArgs, KvArgs, ModelArgs};
use wf_run_cli::config::DecodeArgs;
use wf_run_cli::exit::usage;
use wf_run_cli::{out, progress};
use wrinklefree::decode::{DecodeMode, DiffusionParams};
use wrinklefree::settings::{Mode, Settings};
use wrinklefree_easy::machine;
use wrinklefree_easy::models::Loaded;

/// Measure how well a model predicts a text
///
/// The text is cut into independent windows; every token of a window except the first counts. Beside the autoregressive loss, models that denoise blocks get the loss of masked tokens,
/// for several shares of masked tokens in a block: each block after its clean predecessors, with
/// masks that are the same every time. Markers of special tokens in the text are special tokens.
#[derive(clap::Args)]
#[command(mut_arg("activations", args::exact_by_default))]
#[command(after_help = "\
Examples:
  wf-run eval perplexity held-out.txt
  wf-run eval perplexity --model ./my-model --window 2048 -o json wiki.txt")]
pub struct Args {
    /// The text, UTF-8
    text: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of a window
    ///
    /// [default: 512, or the model's context if it is shorter]
    #[arg(short, long, value_name = "N", value_parser = args::positions())]
    window: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    kv: KvArgs,
    #[command(flatten)]
    decoding: DecodeArgs,
}

struct Row {
    model: String,
    what: String,
    window: usize,
    loss: Loss,
}

impl Record for Row {
    const COLUMNS: &[&str] = &["loss", "tokens:", "nats/token:", "perplexity:"];

    fn cells(&self) -> Vec<String> {
        let mean = self.loss.mean();
        vec![
            self.what.clone(),
            self.loss.tokens.to_string(),
            format!("{mean:.4}"),
            format!("{:.3}", mean.exp()),
        ]
    }

    fn fields(&self) -> Value {
        json!({
            "model": self.model,
            "loss": self.what,
            "window": self.window,
            "tokens": self.loss.tokens,
            "nats_per_token": self.loss.mean(),
            "perplexity": self.loss.mean().exp(),
        })
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.decoding.typed().decode_mode.is_some() {
        return Err(usage("decode_mode changes nothing: perplexity decodes nothing"));
    }
    let said = args.decoding.settings()?;
    let path = args.text.display();
    let text = fs::read_to_string(&args.text).with_context(|| format!("cannot read {path}"))?;
    let runtime = machine::runtime(args.compute.threads())?;
    let loaded = args.model.open(None, &runtime)?;
    let window = super::window(args.window, &loaded)?;
    let params = diffusion(said, &loaded)?;
    let tokens = loaded.tokenizer()?.encode(&text, true).context("cannot encode the text")?;
    if tokens.len() < 2 {
        return Err(usage(format!("{path} has {} tokens: nothing to predict", tokens.len())));
    }
    let windows: Vec<&[u32]> = tokens.chunks(window).filter(|w| w.len() > 1).collect();
    let block = params.as_ref().map_or(1, |p| p.block);
    let mut scorer = Scorer::new(&loaded.model, &runtime, (window, args.kv.config()), block)?;
    let (mut ar, mut masked) = (Loss::default(), [Loss::default(); MASKED.len()]);
    let bar = progress::bar(windows.len());
    for window in windows {
        scorer.autoregressive(window, &mut ar)?;
        if let Some(p) = &params {
            scorer.masked(window, p, &mut masked)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();

    let row = |what: String, loss: Loss| Row { model: loaded.name.clone(), what, window, loss };
    let mut rows = vec![row("autoregressive".into(), ar)];
    if params.is_some() {
        let percent = |share: f64| format!("{:.0} % of a block masked", 100.0 * share);
        let single = MASKED.iter().zip(masked).map(|(&share, loss)| row(percent(share), loss));
        rows.extend(single.filter(|row| row.loss.tokens > 0));
    }
    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    rows.into_iter().try_for_each(|row| out::print(&report.row(row)))?;
    report.finish()
}

/// Returns the parameters of block diffusion for a model that denoises.
fn diffusion(said: Settings, loaded: &Loaded) -> anyhow::Result<Option<DiffusionParams>> {
    if loaded.dlm.is_none() && said.mask_token_id.is_none() {
        return Ok(None);
    }
    let iterative = Settings { decode_mode: Some(Mode::Iterative), ..Settings::default() };
    match iterative.or(said).mode(&loaded.capabilities())? {
        DecodeMode::Diffusion(params) => Ok(Some(params)),
        _ => Ok(None),
    }
}
