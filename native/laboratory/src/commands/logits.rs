//! `wf-run logits`: raw numbers for comparing with other implementations.

use crate::eval::logits;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use wf_run_cli::args::{self, ComputeArgs, ModelArgs};
use wf_run_cli::atomic_file::Draft;
use wf_run_cli::config::ConfigArgs;
use wf_run_cli::exit::usage;
use wf_run_cli::{npy, signals};
use wrinklefree::format::Spec;
use wrinklefree::model::AttentionMask;
use wrinklefree_easy::machine;

/// Write the logits of given tokens as a NumPy file
///
/// The file holds f32 [tokens, vocab]: row i is what the model predicts after token i.
#[derive(clap::Args)]
#[command(mut_arg("activations", args::exact_by_default))]
#[command(after_help = "\
Examples:
  wf-run logits -m ./my-model --tokens 1,2,3 --output logits.npy
  wf-run logits --tokens 1,2,3,4 --attention-mask blocks:32 --output blocks.npy")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids
    #[arg(long, value_name = "IDS", required = true, value_delimiter = ',')]
    tokens: Vec<u32>,
    /// causal, or blocks:N
    ///
    /// Positions that a token attends to. `causal`: itself and all before. `blocks:N`: its whole
    /// block of N positions and all before. The flag was called --sight before, which still works.
    #[arg(long, alias = "sight", value_name = "MASK", default_value = "causal", value_parser = attention_mask)]
    attention_mask: AttentionMask,
    /// The file to write
    #[arg(short, long, value_name = "FILE.npy")]
    output: PathBuf,
    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    _config: ConfigArgs,
}

fn attention_mask(text: &str) -> Result<AttentionMask, String> {
    let blocks = text.strip_prefix("blocks:").and_then(|n| usize::from_str(n).ok());
    match (text, blocks) {
        ("causal", _) => Ok(AttentionMask::Causal),
        (_, Some(n)) if n > 0 => Ok(AttentionMask::BlockCausal(n)),
        _ => Err("expected causal or blocks:N".into()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    signals::watch()?;
    let runtime = machine::runtime(args.compute.threads())?;
    let mut output = Draft::new(&args.output, args.force)?;
    let model = args.model.open_weights(None, &runtime)?.model;
    check(&args.tokens, model.spec())?;

    output.write_all(&npy::header(args.tokens.len(), model.spec().vocab_size))?;
    logits::each_row(&runtime, &model, &args.tokens, args.attention_mask, |row| {
        Ok(output.write_all(&npy::row(row))?)
    })?;
    output.keep()
}

fn check(tokens: &[u32], spec: &Spec) -> anyhow::Result<()> {
    if let Some(id) = tokens.iter().find(|&&t| t as usize >= spec.vocab_size) {
        return Err(usage(format!(
            "token id {id} is outside the vocabulary of {}",
            spec.vocab_size
        )));
    }
    args::warn_beyond(tokens.len(), spec);
    Ok(())
}
