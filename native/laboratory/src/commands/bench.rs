//! `wf-run bench`: how fast a model runs on this machine.

use crate::bench::isa_comparison::{self, Comparison};
use crate::bench::measure::{Bench, Kind, Test};
use crate::bench::report::{OutputArgs, Report};
use crate::bench::{drafts, limits, requests, speed};
use anyhow::{Context, bail};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wf_run_cli::args::{self, DrafterArgs, KvArgs, ModelArgs};
use wf_run_cli::config::DecodeArgs;
use wf_run_cli::exit::usage;
use wf_run_cli::{kernels, open, out, progress};
use wrinklefree::cache::{KvPool, PAGE};
use wrinklefree::decode::DecodeMode;
use wrinklefree::engine::Request;
use wrinklefree::model::{Model, Runtime, SparsityRule};
use wrinklefree::settings::{Draft, Mode, Settings, describe};
use wrinklefree::ternary::Layout;
use wrinklefree_easy::machine::{self, Threads, cores};
use wrinklefree_easy::models::engine::SingleSequence;
use wrinklefree_easy::models::{DrafterType, Loaded, OpenedWeights, Synthetic};

/// Measure the speed of prompts, decoding or whole requests
///
/// A test is ppN (a prompt of N tokens) or tgN (N tokens generated one by one), after a context of
/// --depth tokens. Each is warmed up once and repeated. The memory bandwidth is measured too,
/// because it bounds decoding, which reads every weight once per token.
///
/// With --decode-mode, whole requests are measured one after the other: latency, tokens per second
/// (including the prompt's time) and tokens per forward pass. The number of tokens that a diffusion
/// pass gives depends on how sure the model is: with random weights only the cost of a pass means
/// something.
///
/// With --accept, the same text is decoded by `ar` and with drafts by turns. The drafter's passes are
/// computed, but each drafted token is right with the given probability, so random weights measure the
/// speed too. The ratio is the median of the rounds.
///
/// With --isa, instruction sets take the same tests by turns, each with the model as it is laid out
/// for it. The exit code is 1 if a set is slower than 0.9 × the next narrower one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run bench --synthetic bitnet-2b -t 1,2
  wf-run bench --model ./my-model -p 128,512 -n 64 -r 3 -o json
  wf-run bench --synthetic tiny -p 0 -n 32        decode only
  wf-run bench -p 0 -n 32 --depth 128,2048,8192   decoding in longer contexts
  wf-run bench -p 0 -n 16 --depth 32768 --depth-computed 2048
  wf-run bench --roofline --profile               what bounds speed
  wf-run bench --synthetic tiny --isa all         instruction sets side by side
  wf-run bench --decode-mode adaptive --threshold 0.7 -p 32 -n 128
  wf-run bench --synthetic bonsai2-9b --draft model --accept 0.75,0.1")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    drafter: DrafterArgs,
    /// Random weights instead of a model
    #[arg(long, value_parser = args::synthetic(),
        conflicts_with_all = ["model_path", "rope_scaling", "draft_model", "draft_layout"])]
    synthetic: Option<Synthetic>,
    /// Probability that a drafted token is right
    ///
    /// Measures --draft model or --draft mtp with drafts that are right this often, compared with `ar`.
    /// A synthetic model gets a synthetic drafter with --draft model.
    #[arg(long, value_name = "P,…", value_delimiter = ',',
        value_parser = probability, conflicts_with_all = ["isa", "roofline", "profile"])]
    accept: Vec<f64>,
    /// Weights of a synthetic drafter
    #[arg(long, value_name = "TYPE", requires = "synthetic", default_value = "q4_0",
        value_parser = args::one_of(&DrafterType::ALL, DrafterType::name))]
    draft_type: DrafterType,
    /// Prompt lengths
    ///
    /// 0 measures no prompts [default: 512; with --decode-mode 32; with --isa 4,32].
    #[arg(
        short = 'p',
        long,
        visible_alias = "prompt-tokens",
        value_name = "N,…",
        value_delimiter = ','
    )]
    prompt: Option<Vec<usize>>,
    /// Tokens to generate
    ///
    /// [default: 128; with --isa 8]
    #[arg(
        short = 'n',
        long,
        visible_alias = "max-tokens",
        value_name = "N,…",
        value_delimiter = ','
    )]
    generate: Option<Vec<usize>>,
    /// Tokens in the context before each test
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    depth: Vec<usize>,
    /// Computed tokens of a context; copies fill it
    ///
    /// A context of --depth tokens takes minutes to compute. With this option, copies of the keys and
    /// values of its first tokens, in whole pages of 32, stand for the rest: they take as long to read.
    #[arg(long, value_name = "N")]
    depth_computed: Option<NonZeroUsize>,
    /// Repetitions of each test
    ///
    /// With --isa these are rounds; more follow where a set seems too slow [default: 5; with
    /// --decode-mode 20].
    #[arg(short, long, visible_alias = "iterations", value_name = "N")]
    repetitions: Option<NonZeroUsize>,
    /// Numbers of threads [default: all cores]
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', value_parser = args::threads())]
    threads: Vec<usize>,
    /// Compare instruction sets: all, or names
    ///
    /// `all` takes all sets of this machine, from the narrowest to the widest.
    #[arg(long, value_name = "SET,…", value_delimiter = ',', value_parser = kernels::name_parser(),
        hide_possible_values = true,
        conflicts_with_all = ["decode_mode", "roofline", "profile"])]
    isa: Vec<String>,
    /// Text to take prompts from
    ///
    /// Requests take their prompt from the first tokens of this text [default: a short story,
    /// repeated].
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Generate past the end of the text
    ///
    /// Requests continue up to the number of tokens asked for.
    #[arg(long)]
    ignore_eos: bool,
    /// Compare tests with the machine's limits
    ///
    /// Measures the machine's rate of multiplications too, and the share of its limits that each
    /// test reached.
    #[arg(long, conflicts_with = "decode_mode")]
    roofline: bool,
    /// Measure each phase of a pass
    #[arg(long, conflicts_with = "decode_mode")]
    profile: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    kv: KvArgs,
    #[command(flatten)]
    decoding: DecodeArgs,
}

/// Prompts of requests when the user has none.
const STORY: &str = "Once there was a small fox named Pip. Pip lived near a quiet river. One day \
                     Pip found a red kite in the grass. ";

/// Time of a test of an instruction set in a round, at least.
const SET_TIME: Duration = Duration::from_millis(200);

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let typed = args.decoding.typed();
    if typed.decode_mode.is_some() || !args.accept.is_empty() {
        if args.depth != [0] || args.depth_computed.is_some() {
            return Err(usage("--depth is for tests without --decode-mode and --accept"));
        }
        return answer(args, &args.decoding.settings()?);
    }
    if *typed != Settings::default() || args.prompt_file.is_some() || args.ignore_eos {
        return Err(usage("decoding options measure requests: say which --decode-mode"));
    }
    let tests = tests(args);
    if tests.is_empty() {
        return Err(usage("nothing to measure: -p and -n are both 0"));
    }
    let threads = threads(args);
    if !args.isa.is_empty() {
        return compare_sets(args, &threads, &tests);
    }
    let kernels = machine::kernels()?;
    let OpenedWeights { name, model, stored_bytes, .. } =
        open_weights(args, &machine::all_cores()?)?;
    let longest = tests.iter().map(Test::positions).max().unwrap_or(0);
    args::warn_beyond(longest, model.spec());
    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    let bandwidths = limits::bandwidths(&kernels, &threads);
    let products = args.roofline.then(|| limits::products(&kernels, &threads));
    let repetitions = args.repetitions.map_or(5, NonZeroUsize::get);
    let bar = progress::bar(threads.len() * tests.len());
    for (i, &threads) in threads.iter().enumerate() {
        let runtime = machine::runtime(Threads::all(threads))?;
        let mut rows = Vec::new();
        for &test in &tests {
            let mut bench = Bench::new(&model, &runtime, args.kv.config(), test)?;
            rows.push(speed::Row {
                model: name.clone(),
                size_bytes: stored_bytes,
                parameters: model.parameters() as u64,
                isa: kernels.isa(),
                threads,
                test,
                samples: bench.samples(repetitions),
                bandwidth: bandwidths[i],
                work: model.work(),
                position_bytes: KvPool::bytes(model.spec(), 1, &args.kv.config()) / PAGE,
                products: products.as_ref().map(|products| products[i]),
                phases: args.profile.then(|| bench.phases()),
            });
            bar.inc(1);
        }
        speed::raise_limits(&mut rows);
        bar.suspend(|| rows.into_iter().try_for_each(|row| out::print(&report.row(row))))?;
    }
    bar.finish_and_clear();
    report.finish()
}

/// Opens the model for a runtime. Its name says what is special in how it computes.
fn open_weights(args: &Args, runtime: &Runtime) -> anyhow::Result<OpenedWeights> {
    let opened = args.model.open_weights(args.synthetic, runtime)?;
    Ok(OpenedWeights { name: described(opened.name, &opened.model), ..opened })
}

/// Instruction sets side by side.
fn compare_sets(args: &Args, threads: &[usize], tests: &[Test]) -> anyhow::Result<()> {
    let sets = &kernels::named(&args.isa)?;
    let rounds = args.repetitions.map_or(5, NonZeroUsize::get);
    let comparison =
        Comparison { sets, threads, tests, kv: args.kv.config(), rounds, time: SET_TIME };
    let bar = progress::bar(rounds * sets.len());
    let load = |runtime: &Runtime| {
        let OpenedWeights { name, model, .. } = open_weights(args, runtime)?;
        Ok((name, model))
    };
    let rows = comparison.run(load, || bar.inc(1))?;
    bar.finish_and_clear();
    let faults = isa_comparison::faults(&rows);
    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    rows.into_iter().try_for_each(|row| out::print(&report.row(row)))?;
    report.finish()?;
    if faults.is_empty() {
        return Ok(());
    }
    let least = isa_comparison::LEAST;
    bail!("a set is slower than {least} × the next narrower one:\n{}", faults.join("\n"))
}

/// Whole requests.
fn answer(args: &Args, settings: &Settings) -> anyhow::Result<()> {
    let backend = machine::kernels()?.isa().name();
    let loader = &machine::all_cores()?;
    let assumes = !args.accept.is_empty();
    let settings = &if assumes {
        Settings { decode_mode: settings.decode_mode.or(Some(Mode::Verify)), ..settings.clone() }
    } else {
        settings.clone()
    };
    let loaded = open_for_requests(args, settings, loader)?;
    let mode = settings.mode(&loaded.capabilities())?;
    if assumes && mode.draft_net().is_none() {
        return Err(usage(
            "--accept measures a net that drafts: give --draft model or --draft mtp",
        ));
    }
    open::warn(&settings.warnings(&loaded.capabilities(), &mode));
    let prompts = args.prompt.clone().unwrap_or_else(|| vec![32]);
    let generate = args.generate.as_deref().unwrap_or(&[128]);
    let sizes: Vec<(usize, usize)> = (prompts.iter())
        .flat_map(|&p| generate.iter().map(move |&n| (p, n)))
        .filter(|&(_, n)| n > 0)
        .collect();
    let Some(context) = sizes.iter().map(|&(p, n)| p.saturating_add(n)).max() else {
        return Err(usage("nothing to measure: -n is 0"));
    };
    args::warn_beyond(context, loaded.model.spec());
    if !matches!(mode, DecodeMode::Diffusion(_)) && sizes.iter().any(|&(p, _)| p == 0) {
        return Err(usage("-p 0: only block diffusion can begin with nothing"));
    }
    let text = prompt(&loaded, args.prompt_file.as_deref())?;
    if assumes {
        return compare_drafts(args, loaded, &mode, &text, &sizes);
    }
    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    let Loaded { name, mut model, mut tokenizer, defaults, .. } = loaded;
    let name = described(name, &model);
    let threads = threads(args);
    let bar = progress::bar(threads.len() * sizes.len());
    for threads in threads {
        let runtime = machine::runtime(Threads::all(threads))?;
        let needs =
            SingleSequence { context, kv: args.kv.config(), modes: std::slice::from_ref(&mode) };
        let mut engine = needs.engine(model, tokenizer, runtime)?;
        for &(prompt_tokens, max_tokens) in &sizes {
            let eos = if args.ignore_eos { &[][..] } else { &defaults.eos };
            let request = request_of(&text, (prompt_tokens, max_tokens), eos, &mode);
            let iterations = args.repetitions.map_or(20, NonZeroUsize::get);
            let samples = requests::run(&mut engine, &request, iterations)?;
            let (model, mode) = (name.clone(), describe(&mode));
            let row =
                requests::Row { model, backend, threads, mode, prompt_tokens, max_tokens, samples };
            bar.suspend(|| out::print(&report.row(row)))?;
            bar.inc(1);
        }
        (model, tokenizer) = engine.into_parts();
    }
    bar.finish_and_clear();
    report.finish()
}

/// Opens the model for requests, with the net that drafts with these settings.
fn open_for_requests(args: &Args, settings: &Settings, loader: &Runtime) -> anyhow::Result<Loaded> {
    let Some(shape) = args.synthetic else {
        return args.model.open(Some((settings, &args.drafter)), loader);
    };
    let loaded = args.model.prepare(shape.loaded(), loader);
    if settings.draft != Some(Draft::Model) {
        return Ok(loaded);
    }
    let Some(drafter) = shape.drafter(args.draft_type) else {
        let drafted = Synthetic::ALL.iter().filter(|shape| shape.has_drafter());
        let names: Vec<&str> = drafted.map(|shape| shape.name()).collect();
        let (name, names) = (shape.name(), names.join(", "));
        return Err(usage(format!("no synthetic drafter for {name}: use one of {names}")));
    };
    let model = loaded.model.with_drafter(drafter).expect("shapes fit");
    Ok(Loaded { model, ..loaded })
}

/// The request of a test: its prompt is the text, again and again, and `sizes` are the tokens of prompt and
/// answer.
fn request_of(text: &[u32], sizes: (usize, usize), eos: &[u32], mode: &DecodeMode) -> Request {
    Request {
        tokens: text.iter().copied().cycle().take(sizes.0).collect(),
        max_tokens: sizes.1,
        eos: eos.to_vec(),
        mode: mode.clone(),
        ..Request::default()
    }
}

/// Drafts that are right with given probabilities, compared with `ar`.
fn compare_drafts(
    args: &Args,
    loaded: Loaded,
    mode: &DecodeMode,
    text: &[u32],
    sizes: &[(usize, usize)],
) -> anyhow::Result<()> {
    let backend = machine::kernels()?.isa().name();
    let mut report = Report::new(&args.output);
    out::print(&report.head())?;
    let Loaded { name, mut model, mut tokenizer, defaults, .. } = loaded;
    let name = described(name, &model);
    let context = sizes.iter().map(|&(p, n)| p.saturating_add(n)).max().unwrap_or(1);
    let rounds = args.repetitions.map_or(5, NonZeroUsize::get);
    let threads = threads(args);
    let bar = progress::bar(threads.len() * sizes.len() * args.accept.len());
    for threads in threads {
        let runtime = machine::runtime(Threads::all(threads))?;
        let modes = &[DecodeMode::Autoregressive, mode.clone()];
        let needs = SingleSequence { context, kv: args.kv.config(), modes };
        let mut engine = needs.engine(model, tokenizer, runtime)?;
        let costs = drafts::Costs { passes: engine.pass_costs(), net: engine.model().draft_net() };
        for (&(prompt_tokens, max_tokens), &accept) in
            sizes.iter().flat_map(|size| args.accept.iter().map(move |accept| (size, accept)))
        {
            let eos = if args.ignore_eos { &[][..] } else { &defaults.eos };
            let request = request_of(text, (prompt_tokens, max_tokens), eos, mode);
            let pairs = drafts::run(&mut engine, &request, accept, rounds)?;
            let (model, mode) = (name.clone(), describe(mode));
            let row = drafts::Row {
                model,
                backend,
                threads,
                mode,
                accept,
                prompt_tokens,
                max_tokens,
                costs,
                pairs,
            };
            bar.suspend(|| out::print(&report.row(row)))?;
            bar.inc(1);
        }
        (model, tokenizer) = engine.into_parts();
    }
    bar.finish_and_clear();
    report.finish()
}

/// Reads a probability.
fn probability(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("expected a probability from 0 to 1, found `{text}`"))
}

/// The tokens that prompts are made of.
fn prompt(loaded: &Loaded, file: Option<&Path>) -> anyhow::Result<Vec<u32>> {
    let text = match file {
        Some(path) => fs::read_to_string(path)
            .with_context(|| format!("cannot read the prompt {}", path.display()))?,
        None => STORY.into(),
    };
    let Some(tokenizer) = &loaded.tokenizer else {
        // A fixed walk through the vocabulary.
        let vocab = loaded.model.spec().vocab_size;
        return Ok((0..vocab).map(|i| ((i * 7919 + 1) % vocab) as u32).collect());
    };
    let tokens = tokenizer.encode(&text, true).context("cannot encode the prompt")?;
    if tokens.is_empty() { Err(usage("the prompt is empty")) } else { Ok(tokens) }
}

/// The name of a model and what is special in how it computes: the rule for its activations, the
/// layout of its weights, and the head.
fn described(mut name: String, model: &Model) -> String {
    if model.sparsity.rule != SparsityRule::Off {
        name += &format!(", {}", model.sparsity);
    }
    if model.layout() != Layout::TwoBit {
        name += &format!(", {}", model.layout().name());
    }
    if model.is_screened() {
        name += ", screened head";
    }
    name
}

fn threads(args: &Args) -> Vec<usize> {
    match args.threads[..] {
        [] => vec![cores::count()],
        ref list => list.to_vec(),
    }
}

fn tests(args: &Args) -> Vec<Test> {
    let (prompts, generate): (&[_], &[_]) =
        if args.isa.is_empty() { (&[512], &[128]) } else { (&[4, 32], &[8]) };
    let prompts = args.prompt.as_deref().unwrap_or(prompts);
    let generate = args.generate.as_deref().unwrap_or(generate);
    let kinds = [(Kind::Prompt, prompts), (Kind::Generate, generate)];
    let all = kinds.into_iter().flat_map(|(kind, counts)| {
        let each = counts.iter().filter(|&&tokens| tokens > 0);
        each.flat_map(move |&tokens| {
            let computed = args.depth_computed.map(NonZeroUsize::get);
            args.depth.iter().map(move |&depth| Test { kind, tokens, depth, computed })
        })
    });
    all.collect()
}
