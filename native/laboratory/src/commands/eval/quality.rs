//! `wf-run eval quality`: right answers and stories that hold together, for one decode mode after the
//! other.

use super::modes::{Bench, ModesArgs, said};
use crate::bench::report::{OutputArgs, Report};
use crate::eval::coherence::Vocabulary;
use crate::eval::prompts::{self, Prompt};
use crate::eval::quality::{Row, accepted, judge};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use wf_run_cli::args::{self, ComputeArgs, DrafterArgs, KvArgs, ModelArgs};
use wf_run_cli::config::DecodeArgs;
use wf_run_cli::out;
use wrinklefree::decode::SamplingParams;
use wrinklefree::format::GenerationDefaults;
use wrinklefree::settings::{Mode, Sampling, Settings, describe};
use wrinklefree_easy::machine;
use wrinklefree_easy::models::Loaded;

/// Measure right answers and coherent stories, by decode mode
///
/// Prompts with an answer are answered with the most likely tokens and must say exactly that.
/// Prompts without one ask for stories. These are told once with the most likely tokens, which
/// gives tokens per second, per forward pass (those over prompts and commits included) and, with
/// `row_cost` 0, accepted per draft, and then are sampled several times and checked: "spelled"
/// (every word is in the vocabulary), "asked" (all that the request names is there), "named" (every
/// name comes with who bears it), "found" (the lost thing is the found thing), "coherent" (all of
/// these), and "distinct" (the share of different words, pairs and triples of words among all).
///
/// A line of the prompt file is a JSON object as for `eval agreement`, and optionally `story`, with
/// `asked` (words that the story must have) and `thing` (what is lost and found).
#[derive(clap::Args)]
#[command(mut_arg("activations", args::exact_by_default))]
#[command(after_help = "\
Examples:
  wf-run eval quality
  wf-run eval quality --modes ar,iterative --thresholds 0.9
  wf-run eval quality -m ./my-model --prompts held-out.jsonl -o json")]
pub struct Args {
    /// Prompts, one JSON object per line
    ///
    /// [default: prompts for the embedded model]
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Words of stories, a JSON object
    ///
    /// The object has lists `words`, `names`, `species`, `colors` and `things` [default: those that
    /// the embedded model was trained on].
    #[arg(long, value_name = "FILE")]
    vocabulary: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    drafter: DrafterArgs,
    #[command(flatten)]
    modes: ModesArgs,
    /// Stories sampled for each request
    #[arg(long, value_name = "N", default_value = "4")]
    samples: NonZeroUsize,
    /// Sampling of stories: at a temperature of 0.8 by default. Every story has a
    /// seed of its own, from `--seed` on
    #[command(flatten)]
    sampling: Sampling,
    /// Tokens of an answer at most
    #[arg(short = 'n', long, value_name = "N", default_value = "320")]
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

/// Default temperature for stories.
const TEMPERATURE: f32 = 0.8;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.modes.check(args.decoding.typed())?;
    let settings = args.decoding.shared_by_modes()?;
    let vocabulary = Vocabulary::read(args.vocabulary.as_deref())?;
    let threads = args.compute.threads();
    let runtime = machine::runtime(threads)?;
    let backend = runtime.kernels.isa().name();
    let loaded = args.model.open(Some((&Settings::default(), &args.drafter)), &runtime)?;
    let prompts =
        prompts::read(args.prompts.as_deref(), args.limit.map(NonZeroUsize::get), &loaded)?;
    let modes = args.modes.list(&settings, &loaded, rows)?;
    let defaults = loaded.defaults.clone();
    let max_tokens = args.max_tokens.get();
    let mut bench = Bench::new(loaded, runtime, args.kv.config(), &prompts, (max_tokens, &modes))?;

    let (asked, stories): (Vec<&Prompt>, Vec<&Prompt>) =
        prompts.iter().partition(|prompt| prompt.answer.is_some());
    let surest = |prompt| (prompt, SamplingParams::default());
    let answers = bench.answers(asked.iter().copied().map(surest), &modes)?;
    let told = bench.answers(stories.iter().copied().map(surest), &modes)?;
    let sampled = bench.answers(samples(args, &defaults, &stories).into_iter(), &modes)?;

    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    for (((mode, answers), told), sampled) in modes.iter().zip(answers).zip(told).zip(sampled) {
        let (coherence, distinct) = judge(&sampled, &stories, &vocabulary);
        out::print(&report.row(Row {
            mode: describe(mode),
            backend,
            threads: threads.count(),
            scores: answers.scores(asked.iter().copied()),
            accepted: accepted(&told, mode),
            told,
            coherence,
            distinct,
        }))?;
    }
    report.finish()
}

/// Every request in turn, again and again, each time with a seed of its own.
fn samples<'a>(
    args: &Args,
    defaults: &GenerationDefaults,
    stories: &[&'a Prompt],
) -> Vec<(&'a Prompt, SamplingParams)> {
    let temperature = args.sampling.temperature.or(Some(TEMPERATURE));
    let sampling = Sampling { temperature, ..args.sampling.clone() };
    let again = (0..args.samples.get()).flat_map(|_| stories.iter().copied());
    let with = |(prompt, seed)| {
        (prompt, Sampling { seed: Some(seed), ..sampling.clone() }.params(defaults))
    };
    again.zip(args.sampling.seed.unwrap_or(0)..).map(with).collect()
}

/// The lines of the table, where the user lists none.
fn rows(args: &ModesArgs, loaded: &Loaded) -> Vec<Settings> {
    let mut rows = vec![said(Mode::Ar)];
    if let Some(dlm) = &loaded.dlm {
        // However dear rows are: shows how often drafts are right.
        let verify = Settings { row_cost: Some(0.0), ..said(Mode::Verify) };
        rows.extend(dlm.ar_path.then_some(verify));
        rows.extend([Mode::Greedy, Mode::Iterative].into_iter().flat_map(|mode| args.each(mode)));
    }
    rows
}
