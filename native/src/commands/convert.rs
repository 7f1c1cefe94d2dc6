//! `wf-run convert`: any supported model in another format, checked before it counts as done.

mod export;
mod reorder;
mod target;
mod verify;

use anyhow::Context;
use clap::ValueEnum;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use target::{Head, Target, TernaryType};
use verify::{Exported, HeadCheck, Probe};
use wf_run_cli::args::{ComputeArgs, HubArgs};
use wf_run_cli::atomic_directory::DraftDirectory;
use wf_run_cli::atomic_file::Draft;
use wf_run_cli::config::ConfigArgs;
use wf_run_cli::exit::usage;
use wf_run_cli::progress::{BytesWritten, spinner};
use wf_run_cli::result_format::ResultFormat;
use wf_run_cli::{human, open, out, signals};
use wrinklefree::format::{
    Checkpoint, File, GgufOptions, LoadOptions, TextParts, ValueOrder, Vocabulary, load_with,
    write_packed,
};
use wrinklefree::loader::WeightLoader;
use wrinklefree::model::Runtime;
use wrinklefree::ternary::Layout;
use wrinklefree::text::Tokenizer;
use wrinklefree_easy::machine;
use wrinklefree_easy::models::{self, Opened, mapped, weight_sizes};

/// Convert a model into another format
///
/// A packed file holds weights in kernel layout, configuration, tokenizer and chat template; it loads
/// at once. GGUF files and directories are for other programs. Before `convert` says done it reloads
/// the result and compares every weight, the tokenizer and the logits of a probe with the input.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run convert ./my-model my-model.safetensors
  wf-run convert ./my-model my-model.gguf --type TQ2_0
  wf-run convert model-Q2_0.gguf ./my-model --to hf
  wf-run convert --head q8 microsoft/bitnet-b1.58-2B-4T bitnet-2b.safetensors
  wf-run convert ./my-model my.safetensors --reorder-ffn text.txt")]
pub struct Args {
    /// A directory, a file or a hub id
    #[arg(value_name = "IN")]
    input: OsString,
    /// The file to write; a directory with --to hf
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Format [default: by OUT, *.gguf or packed]
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Target>,
    /// Type of ternary weights in GGUF
    ///
    /// [default: the type with a matrix's own group size: TQ2_0 or Q2_0 for one scale, Q2_0 for a scale
    /// per 64 weights, PQ2_0 for one per 128]. A scale that is no f16 goes into a tensor of its own.
    #[arg(long = "type", value_enum, value_name = "TYPE", ignore_case = true)]
    ternary: Option<TernaryType>,
    /// Element type of the output head
    ///
    /// The type also holds for the embedding if head and embedding are one matrix. GGUF has no int8 with
    /// a scale per row: without this option such a head becomes f16 there.
    #[arg(long, value_enum)]
    head: Option<Head>,
    /// Ternary weights [default: the narrowest that fits]
    ///
    /// `tight` holds three weights in five bits. `two-bit` is a fifth larger, and every CPU and browser reads
    /// it in place; the tight layout costs those without AVX-512 VBMI memory of their own. `one-bit` holds
    /// eight weights in a byte, for matrices without zeros that have a scale for each 128 weights; other
    /// matrices are tight. Browsers and CPUs with AVX2 or NEON read it in place; others unpack it.
    #[arg(id = "file_layout", long = "layout", value_enum, value_name = "LAYOUT")]
    layout: Option<FileLayout>,
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
    result: ResultFormat,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    _config: ConfigArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum FileLayout {
    Tight,
    TwoBit,
    OneBit,
}

impl Args {
    /// The format to write. Refuses options that it does not have.
    fn target(&self) -> anyhow::Result<Target> {
        let target = self.to.unwrap_or_else(|| Target::of(&self.output));
        if self.ternary.is_some() && target != Target::Gguf {
            return Err(usage("--type is for GGUF files: add --to gguf"));
        }
        if self.layout.is_some() && target != Target::Packed {
            return Err(usage("--layout is for packed files: add --to packed"));
        }
        if matches!(self.head, Some(Head::Q8)) && target == Target::Hf {
            return Err(usage("--head q8 is not for directories: they hold floats; take f16"));
        }
        Ok(target)
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let target = args.target()?;
    signals::watch()?;
    let runtime = machine::runtime(args.compute.threads())?;
    let mut output = Output::new(target, args)?;
    let Opened { name, checkpoint: input, .. } =
        open::checkpoint(Some(&args.input), &args.hub.revision, &runtime)?;
    if let Some(fault) = &input.mtp_fault {
        let text = "the block for multi-token prediction is left out";
        out::note(format_args!("warning: {text}: {fault}"));
    }
    let tokenizer = models::tokenizer(&name, &input.text, input.spec.vocab_size)?;
    let mut checkpoint = input.clone();
    if let Some(head) = args.head.filter(|_| target != Target::Gguf) {
        checkpoint = checkpoint.with_head(head.into()).context("cannot change the head")?;
    }
    let mut shares = None;
    if let Some(path) = &args.reorder_ffn {
        let tokens = reorder::tokens(path, tokenizer.as_ref())?;
        let (changed, zeros) = reorder::reorder(&runtime, checkpoint, &tokens)
            .with_context(|| format!("cannot reorder {name}"))?;
        (checkpoint, shares) = (changed, Some(zeros));
    }
    let conversion = Conversion { args, runtime: &runtime, input: &input, tokenizer, shares };
    let Converted { note, bytes, compared, probe } = match &mut output {
        Output::Directory(directory) => conversion.hf(checkpoint, directory)?,
        Output::File(file) if target == Target::Gguf => conversion.gguf(checkpoint, file)?,
        Output::File(file) => conversion.packed(checkpoint, file)?,
    };
    output.keep()?;
    if args.result.is_json() {
        return out::json(&json!({
            "input": name,
            "output": args.output.to_string_lossy(),
            "format": target,
            "bytes": bytes,
            "tensors": compared,
            "logits": probe,
            "zero_blocks": conversion.shares,
        }));
    }
    if let Some(reorder::Shares { before, after }) = conversion.shares {
        out::note(format_args!(
            "blocks of 16 columns in front of down_proj that are all zero on the text: {:.1} %, were \
             {:.1} %",
            100.0 * after,
            100.0 * before
        ));
    }
    out::note(format_args!("{}: {note}", args.output.display()));
    Ok(())
}

/// The place of the result until it is checked.
enum Output {
    File(Draft),
    Directory(DraftDirectory),
}

impl Output {
    fn new(target: Target, args: &Args) -> anyhow::Result<Self> {
        match target {
            Target::Hf => {
                DraftDirectory::new(&args.output, args.force, "config.json").map(Self::Directory)
            }
            Target::Packed | Target::Gguf => Draft::new(&args.output, args.force).map(Self::File),
        }
    }

    fn keep(self) -> anyhow::Result<()> {
        match self {
            Self::File(file) => file.keep(),
            Self::Directory(directory) => directory.keep(),
        }
    }
}

/// A result that was written and checked.
struct Converted {
    /// The result in words.
    note: String,
    bytes: u64,
    compared: Exported,
    probe: Probe,
}

/// A conversion and what it starts from.
struct Conversion<'a> {
    args: &'a Args,
    runtime: &'a Runtime,
    input: &'a Checkpoint,
    tokenizer: Option<Tokenizer>,
    shares: Option<reorder::Shares>,
}

impl Conversion<'_> {
    /// Writes a packed file and checks it.
    fn packed(&self, mut checkpoint: Checkpoint, output: &mut Draft) -> anyhow::Result<Converted> {
        checkpoint.weights.set_first_layout(match self.args.layout {
            None | Some(FileLayout::OneBit) => &[Layout::OneBit, Layout::Tight],
            Some(FileLayout::Tight) => &[Layout::Tight],
            Some(FileLayout::TwoBit) => &[Layout::TwoBit],
        });
        let json = tokenizer_json(&self.input.text, self.tokenizer.as_ref());
        let expected = weight_sizes::bytes(&checkpoint.weights);
        write_packed(&checkpoint, json.as_deref(), &mut BytesWritten::new(output, expected))
            .with_context(|| format!("cannot write {}", self.args.output.display()))?;
        let (bytes, reloaded) = reloaded(output, "packed.safetensors")?;
        let spinner = spinner("comparing");
        let compared = verify::weights(&checkpoint, &reloaded)
            .and_then(|compared| self.text(&reloaded).map(|()| compared))
            .context("the new file is wrong: this is a bug")?;
        let probe = verify::probe(self.runtime, self.input, &reloaded)?;
        match (self.args.head, &self.shares) {
            (None, None) => probe.must_be_equal()?,
            (None, Some(_)) => probe.must_be_close()?,
            (Some(_), _) => {}
        }
        drop(spinner);
        let note = format!(
            "{} ({} of weights), every weight equal, {}",
            human::bytes(bytes),
            human::bytes(weight_sizes::bytes(&reloaded.weights)),
            HeadCheck(&probe)
        );
        Ok(Converted { note, bytes, compared, probe })
    }

    /// Writes a GGUF file and checks it.
    fn gguf(&self, checkpoint: Checkpoint, output: &mut Draft) -> anyhow::Result<Converted> {
        let checkpoint = checkpoint.with_value_order(ValueOrder::Tiled)?;
        let options = GgufOptions {
            ternary: self.args.ternary.map(Into::into),
            head: self.args.head.map(Into::into),
        };
        let notes = export::gguf(&checkpoint, self.tokenizer.as_ref(), options, output)?;
        let (size, reloaded) = reloaded(output, "model.gguf")?;
        open::warn(&notes);
        self.exported(&checkpoint, &reloaded, size)
    }

    /// Writes a directory and checks it.
    fn hf(&self, checkpoint: Checkpoint, output: &DraftDirectory) -> anyhow::Result<Converted> {
        let checkpoint = checkpoint.with_value_order(ValueOrder::Grouped)?;
        let json = tokenizer_json(&self.input.text, self.tokenizer.as_ref());
        let size = export::hf(&checkpoint, json, output.path())?;
        let path = Some(output.path().as_os_str());
        let reloaded = open::checkpoint(path, &self.args.hub.revision, self.runtime)
            .context("the new directory does not load: this is a bug")?;
        self.exported(&checkpoint, &reloaded.checkpoint, size)
    }

    /// Checks what came back from another format, and says how equal it is.
    fn exported(
        &self,
        want: &Checkpoint,
        found: &Checkpoint,
        bytes: u64,
    ) -> anyhow::Result<Converted> {
        let spinner = spinner("comparing");
        let compared = verify::exported(want, found)
            .and_then(|compared| self.text(found).map(|()| compared))
            .context("the format does not hold the model")?;
        let probe = verify::probe(self.runtime, self.input, found)?;
        if compared.is_equal() {
            probe.must_be_close()?;
        }
        drop(spinner);
        let note = format!("{}, {compared}, {}", human::bytes(bytes), HeadCheck(&probe));
        Ok(Converted { note, bytes, compared, probe })
    }

    fn text(&self, found: &Checkpoint) -> anyhow::Result<()> {
        verify::text(&self.input.text, self.tokenizer.as_ref(), &found.text)
    }
}

/// Loads the file that was written; also returns its size.
fn reloaded(output: &mut Draft, name: &str) -> anyhow::Result<(u64, Checkpoint)> {
    let path = output.finish_writing()?;
    let file = File { name: name.into(), bytes: mapped::map(path)?.into() };
    let size = file.bytes.len() as u64;
    let options = LoadOptions { mtp: true };
    let loaded = load_with(vec![file], options, &mut WeightLoader::alone())
        .context("the new file does not load: this is a bug")?;
    Ok((size, loaded))
}

/// The tokenizer as JSON, whatever the input keeps it as.
fn tokenizer_json(text: &TextParts, tokenizer: Option<&Tokenizer>) -> Option<Vec<u8>> {
    match text.vocabulary.as_ref()? {
        Vocabulary::Json(bytes) => Some(bytes.to_vec()),
        Vocabulary::Gguf(_) => tokenizer.map(|t| t.to_json().into_bytes()),
    }
}
