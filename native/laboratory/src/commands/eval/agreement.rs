//! `wf-run eval agreement`: speed and quality, for one decode mode after the other.

use super::modes::{Bench, ModesArgs, said};
use crate::bench::report::{OutputArgs, Report};
use crate::eval::prompts;
use crate::eval::rows::Row;
use clap::ValueEnum;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use wf_run_cli::args::{self, ComputeArgs, DrafterArgs, KvArgs, ModelArgs};
use wf_run_cli::config::DecodeArgs;
use wf_run_cli::{open, out};
use wrinklefree::decode::{DecodeMode, DraftNetKind, SamplingParams};
use wrinklefree::settings::{Commit, Draft, Mode, Selector, Settings, describe};
use wrinklefree_easy::machine;
use wrinklefree_easy::models::Loaded;

/// Compare decode modes: speed, agreement, right answers
///
/// Every mode answers the same prompts, one after the other, always with the most likely tokens.
/// Printed are emitted tokens per second (the prompts' time included), tokens per forward pass and
/// passes per block (commits included), how many positions and texts are those of the reference, and
/// how many answers are exactly right where the prompts say what is.
///
/// A line of the prompt file is a JSON object with `prompt` (a text) or `messages` (a conversation,
/// as in the chat API), and optionally `answer` and `category`.
#[derive(clap::Args)]
#[command(mut_arg("activations", args::exact_by_default))]
#[command(after_help = "\
Examples:
  wf-run eval agreement
  wf-run eval agreement --modes iterative,adaptive --thresholds 0.5,0.7,0.9
  wf-run eval agreement -m ./my-model --prompts questions.jsonl -o json")]
pub struct Args {
    /// Prompts, one JSON object per line
    ///
    /// [default: prompts for the embedded model]
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    drafter: DrafterArgs,
    #[command(flatten)]
    modes: ModesArgs,
    /// The reference
    ///
    /// [default: ar if the model has that path, else block]
    #[arg(long, value_name = "MODE", value_enum)]
    against: Option<Against>,
    /// Tokens of an answer at most
    #[arg(short = 'n', long, value_name = "N", default_value = "160")]
    max_tokens: NonZeroUsize,
    /// Use only N prompts, evenly spread
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    kv: KvArgs,
    #[command(flatten)]
    decoding: DecodeArgs,
}

/// References.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Against {
    /// Autoregressive decoding
    Ar,
    /// Block diffusion without any approximation, one token a pass
    Block,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.modes.check(args.decoding.typed())?;
    let said = args.decoding.shared_by_modes()?;
    let threads = args.compute.threads();
    let runtime = machine::runtime(threads)?;
    let backend = runtime.kernels.isa().name();
    let loaded = args.model.open(Some((&Settings::default(), &args.drafter)), &runtime)?;
    let prompts =
        prompts::read(args.prompts.as_deref(), args.limit.map(NonZeroUsize::get), &loaded)?;
    let modes = args.modes.list(&said, &loaded, rows)?;
    let settings = reference(args, &loaded).or(said);
    let reference = settings.mode(&loaded.capabilities())?;
    open::warn(&settings.warnings(&loaded.capabilities(), &reference));

    // The reference runs once, be it a row of the table or not.
    let own = modes.iter().position(|mode| *mode == reference);
    let all: Vec<DecodeMode> =
        modes.iter().chain(own.is_none().then_some(&reference)).cloned().collect();
    let max_tokens = args.max_tokens.get();
    let mut bench = Bench::new(loaded, runtime, args.kv.config(), &prompts, (max_tokens, &all))?;
    let runs = bench.answers(prompts.iter().map(|p| (p, SamplingParams::default())), &all)?;

    let against = runs[own.unwrap_or(modes.len())].clone();
    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    for (mode, run) in modes.iter().zip(runs) {
        out::print(&report.row(Row {
            mode: describe(mode),
            backend,
            threads: threads.count(),
            against: describe(&reference),
            agreement: run.agreement(&against),
            scores: run.scores(&prompts),
            run,
        }))?;
    }
    report.finish()
}

/// Returns the settings of the reference.
fn reference(args: &Args, loaded: &Loaded) -> Settings {
    let ar = loaded.dlm.as_ref().is_none_or(|dlm| dlm.ar_path);
    match args.against.unwrap_or(if ar { Against::Ar } else { Against::Block }) {
        Against::Ar => said(Mode::Ar),
        Against::Block => Settings {
            selector: Some(Selector::Topk),
            slots_per_pass: Some(1),
            sub_block_cache: Some(false),
            commit: Some(Commit::Clean),
            ..said(Mode::Iterative)
        },
    }
}

/// The lines of the table, where the user lists none.
fn rows(args: &ModesArgs, loaded: &Loaded) -> Vec<Settings> {
    let lookup = Settings { draft: Some(Draft::Ngram), ..said(Mode::Verify) };
    let mut rows = vec![said(Mode::Ar)];
    let Some(dlm) = &loaded.dlm else {
        rows.push(lookup);
        let net = |draft| Settings { draft: Some(draft), ..said(Mode::Verify) };
        rows.extend(loaded.model.draft_net().map(|found| {
            net(match found.kind {
                DraftNetKind::Mtp => Draft::Mtp,
                DraftNetKind::Blocks => Draft::Model,
            })
        }));
        return rows;
    };
    if dlm.ar_path {
        rows.push(said(Mode::Verify));
        // However dear rows are: shows how often drafts are right.
        rows.push(Settings { row_cost: Some(0.0), ..said(Mode::Verify) });
        rows.push(lookup);
    }
    let each = |mode| args.each(mode);
    rows.extend([Mode::Greedy, Mode::Iterative, Mode::Adaptive].into_iter().flat_map(each));
    rows.push(Settings { commit: Some(Commit::Fused), ..said(Mode::Greedy) });
    let iterative = said(Mode::Iterative);
    rows.push(Settings { commit: Some(Commit::Fused), ..iterative.clone() });
    rows.push(Settings { sub_block_cache: Some(true), ..iterative.clone() });
    let selectors = [Selector::Margin, Selector::Factor, Selector::Entropy, Selector::Topk];
    let select = |s| Settings { selector: Some(s), ..iterative.clone() };
    rows.extend(selectors.map(select));
    rows
}
