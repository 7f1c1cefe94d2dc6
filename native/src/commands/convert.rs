//! `wf-run convert`: any supported model → one packed file, checked before it counts as done.

mod reorder;
mod verify;

use crate::cli::args::{ComputeArgs, HubArgs};
use crate::cli::atomic_file::Draft;
use crate::cli::{human, open, out, signals};
use crate::machine;
use crate::models::{self, Opened, mapped, weight_sizes};
use anyhow::Context;
use clap::ValueEnum;
use std::ffi::OsString;
use std::path::PathBuf;
use verify::HeadCheck;
use wrinklefree::format::{
    File, HeadType, LoadOptions, TextParts, Vocabulary, load_with, write_packed,
};
use wrinklefree::loader::WeightLoader;
use wrinklefree::ternary::Layout;
use wrinklefree::text::Tokenizer;

/// Convert a model into one packed file
///
/// The file holds weights in kernel layout, configuration, tokenizer and chat template; it loads
/// at once. Before `convert` says done it reloads the file and compares every weight, the
/// tokenizer and the logits of a probe with the input.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run convert ./my-model my-model.safetensors
  wf-run convert --head q8 microsoft/bitnet-b1.58-2B-4T bitnet-2b.safetensors
  wf-run convert model-Q2_0.gguf model.safetensors --force
  wf-run convert ./my-model my.safetensors --reorder-ffn text.txt")]
pub struct Args {
    /// A directory, a file or a hub id
    #[arg(value_name = "IN")]
    input: OsString,
    /// The file to write
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Element type of the output head
    ///
    /// The type also holds for the embedding if head and embedding are one matrix.
    #[arg(long, value_enum)]
    head: Option<Head>,
    /// Ternary weights in the file
    ///
    /// `tight` holds three weights in five bits. `two-bit` is a fifth larger, and every CPU and browser reads
    /// it in place; the tight layout costs those without AVX-512 VBMI memory of their own. Weights
    /// with scales per group are always stored in two bits.
    #[arg(long, value_enum, value_name = "LAYOUT", default_value = "tight")]
    layout: FileLayout,
    /// Group columns that are zero together
    ///
    /// Runs the first 4096 tokens of this text and moves columns before each down_proj together
    /// that are often zero at the same time: decoding skips blocks of 16 that are all zero. No
    /// weight changes. Logits differ by rounding, because a norm sums the columns in another order.
    #[arg(long, value_name = "TEXT")]
    reorder_ffn: Option<PathBuf>,
    /// Overwrite OUT if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Head {
    /// 16-bit floats
    F16,
    /// 8-bit integers with a scale per row
    Q8,
}

#[derive(Clone, Copy, ValueEnum)]
enum FileLayout {
    Tight,
    TwoBit,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    signals::watch()?;
    let runtime = machine::runtime(args.compute.threads())?;
    let mut output = Draft::new(&args.output, args.force)?;
    let Opened { name, checkpoint: input, .. } =
        open::checkpoint(Some(&args.input), &args.hub.revision, &runtime)?;
    if let Some(fault) = &input.mtp_fault {
        let text = "the block for multi-token prediction is left out";
        out::note(format_args!("warning: {text}: {fault}"));
    }
    let head = args.head.map(|head| match head {
        Head::F16 => HeadType::F16,
        Head::Q8 => HeadType::Q8,
    });
    let tokenizer = models::tokenizer(&name, &input.text, input.spec.vocab_size)?;
    let mut checkpoint = input.clone();
    if let Some(head) = head {
        checkpoint = checkpoint.with_head(head).context("cannot change the head")?;
    }
    let mut shares = None;
    if let Some(path) = &args.reorder_ffn {
        let tokens = reorder::tokens(path, tokenizer.as_ref())?;
        let (changed, zeros) = reorder::reorder(&runtime, checkpoint, &tokens)
            .with_context(|| format!("cannot reorder {name}"))?;
        (checkpoint, shares) = (changed, Some(zeros));
    }

    checkpoint.weights.set_layout(match args.layout {
        FileLayout::Tight => Layout::Tight,
        FileLayout::TwoBit => Layout::TwoBit,
    });
    let json = tokenizer_json(&input.text, tokenizer.as_ref());
    write_packed(&checkpoint, json.as_deref(), &mut output)
        .with_context(|| format!("cannot write {}", args.output.display()))?;

    let path = output.finish_writing()?;
    let file = File { name: "packed.safetensors".into(), bytes: mapped::map(path)?.into() };
    let size = file.bytes.len() as u64;
    let mut loader = WeightLoader::alone();
    let reloaded = load_with(vec![file], LoadOptions { mtp: true }, &mut loader)
        .context("the new file does not load: this is a bug")?;
    verify::weights(&checkpoint, &reloaded)
        .and_then(|()| verify::text(&input.text, tokenizer.as_ref(), &reloaded.text))
        .context("the new file is wrong: this is a bug")?;
    let probe = verify::probe(&runtime, &input, &reloaded)?;
    match (head, &shares) {
        (None, None) => probe.must_be_equal()?,
        (None, Some(_)) => probe.must_be_close()?,
        (Some(_), _) => {}
    }
    output.keep()?;
    if let Some(reorder::Shares { before, after }) = shares {
        out::note(format_args!(
            "blocks of 16 columns in front of down_proj that are all zero on the text: {:.1} %, were \
             {:.1} %",
            100.0 * after,
            100.0 * before
        ));
    }
    out::note(format_args!(
        "{}: {} ({} of weights), every weight equal, {}",
        args.output.display(),
        human::bytes(size),
        human::bytes(weight_sizes::bytes(&reloaded.weights)),
        HeadCheck(&probe)
    ));
    Ok(())
}

/// The tokenizer as JSON, whatever the input keeps it as.
fn tokenizer_json(text: &TextParts, tokenizer: Option<&Tokenizer>) -> Option<Vec<u8>> {
    match text.vocabulary.as_ref()? {
        Vocabulary::Json(bytes) => Some(bytes.to_vec()),
        Vocabulary::Gguf(_) => tokenizer.map(|t| t.to_json().into_bytes()),
    }
}
