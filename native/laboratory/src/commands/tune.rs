//! `wf-run tune`: which instruction set and which numbers of threads are best here.

use crate::bench::plot::{self, Bar};
use crate::bench::report::{Format, table};
use crate::bench::tuning::{
    Best, Counts, IsaSpeeds, Setup, Speeds, best, best_set, measure, measure_sets, setups,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use wf_run_cli::args::{self, ModelArgs};
use wf_run_cli::config;
use wf_run_cli::exit::usage;
use wf_run_cli::{out, progress};
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::model::{Model, Runtime};
use wrinklefree_easy::machine::{self, cores};
use wrinklefree_easy::models::{OpenedWeights, Synthetic};

/// Find the best numbers of threads for this machine
///
/// Measures the instruction sets first if the processor has several, by turns: the widest is
/// the default, and if another is faster, the result says so. Then measures decoding and prompts
/// with several numbers of threads, pinned to cores and not. Memory
/// bounds decoding, so fewer threads than cores may be enough; arithmetic bounds prompts. The
/// fewest threads within 3 % of the fastest are the best, and pinning is if it is 3 % faster. Run
/// nothing else meanwhile.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run tune --synthetic bitnet-2b           a large model, without a download
  wf-run tune -m ./my-model --config wf.yaml  for `serve --config wf.yaml`")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Random weights instead of a model
    #[arg(long, value_parser = args::synthetic(),
        conflicts_with_all = ["model_path", "rope_scaling"])]
    synthetic: Option<Synthetic>,
    /// Write the best to this configuration
    ///
    /// The file is created if it does not exist.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format: md or json
    #[arg(short, long, value_enum, default_value = "md")]
    output: Format,
    /// Draw the speeds in this file too
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Time for all measurements together
    ///
    /// Measurements cannot be cut arbitrarily short, so more time may pass.
    #[arg(long, value_name = "N", default_value = "90")]
    seconds: u64,
}

/// Columns of the table.
const COLUMNS: [&str; 4] = ["threads:", "pinned", "decode t/s:", "prompt t/s:"];

/// Columns of the table of instruction sets.
const SET_COLUMNS: [&str; 3] = ["kernels", "decode t/s:", "prompt t/s:"];

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if !matches!(args.output, Format::Md | Format::Json) {
        return Err(usage("-o: take md or json"));
    }
    let counts =
        Counts { performance: cores::count(), cores: cores::all(), cpus: cores::cpus().len() };
    let setups: Vec<Setup> = setups(counts);
    let sets = kernel_sets()?;
    let bar = progress::bar(setups.len() + sets.len());
    let time = Duration::from_secs(args.seconds) / (setups.len() + sets.len()) as u32;
    let by_set = match &sets[..] {
        [_] => Vec::new(),
        sets => {
            let (threads, time) = (counts.performance, time * sets.len() as u32);
            measure_sets(sets, threads, time, |runtime| load(args, runtime), || bar.inc(1))?
        }
    };
    let best_isa = best_set(&by_set).unwrap_or(sets[0].isa());
    let kernels = Kernels::for_isa(best_isa).expect("it was measured");
    let (name, model) = load(args, &Runtime { kernels, ..machine::all_cores()? })?;
    let title = format!("{name} on {}, {}", machine_name(counts), best_isa.name());
    let mut measured = Vec::new();
    for setup in setups {
        measured.push((setup, measure(&model, kernels, setup, time)?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let best @ Best { decode, prefill, pinned } = best(&measured);
    match args.output {
        Format::Md => {
            out::print(&set_text(&by_set, best_isa))?;
            out::print(&text(&title, &measured, best))?;
        }
        _ => out::json(&record(&name, best_isa, (&by_set, &measured), best))?,
    }
    if let Some(path) = &args.plot {
        plot::write(path, &title, &bars(&measured))?;
    }
    let Some(path) = &args.config else { return Ok(()) };
    let keys = [
        ("threads", decode.to_string()),
        ("prefill_threads", prefill.to_string()),
        ("pin_threads", pinned.to_string()),
    ];
    config::set(path, &keys)?;
    match args.output {
        Format::Md => out::print(&format!("written to {}\n", path.display())),
        _ => Ok(()),
    }
}

/// The instruction sets to choose from: the one of `WF_ISA`, or all of this machine. Scalar code is never
/// the fastest where there is another.
fn kernel_sets() -> anyhow::Result<Vec<Kernels>> {
    let chosen = machine::kernels()?;
    if chosen.isa() != Kernels::best().isa() {
        return Ok(vec![chosen]);
    }
    let sets: Vec<Kernels> = Kernels::all().filter(|set| set.isa() != Isa::Scalar).collect();
    Ok(if sets.is_empty() { vec![chosen] } else { sets })
}

/// Loads the model for a runtime.
fn load(args: &Args, runtime: &Runtime) -> anyhow::Result<(String, Model)> {
    let OpenedWeights { name, model, .. } = args.model.open_weights(args.synthetic, runtime)?;
    Ok((name, model))
}

/// The speeds of instruction sets as a table, and what follows from them; empty if none were compared.
fn set_text(measured: &[IsaSpeeds], best: Isa) -> String {
    let Some(widest) = measured.last() else { return String::new() };
    let row = |IsaSpeeds { isa, speeds }: &IsaSpeeds| {
        vec![isa.name().into(), format!("{:.1}", speeds.decode), format!("{:.1}", speeds.prompt)]
    };
    let rows: Vec<_> = measured.iter().map(row).collect();
    let why = if best == widest.isa {
        format!("kernels: {}, the widest set, is as fast as any", best.name())
    } else {
        format!("kernels: {0} is faster than {1}; set WF_ISA={0}", best.name(), widest.isa.name())
    };
    format!("{}\n{why}\n\n", table(&SET_COLUMNS, &rows))
}

/// The cores and CPUs in words.
fn machine_name(Counts { performance, cores, cpus }: Counts) -> String {
    match cores - performance {
        0 => format!("{cores} cores ({cpus} CPUs)"),
        slow => format!("{performance} performance and {slow} efficiency cores ({cpus} CPUs)"),
    }
}

/// All measurements as a table, with the best setup below.
fn text(title: &str, measured: &[(Setup, Speeds)], best: Best) -> String {
    let row = |(setup, speeds): &(Setup, Speeds)| {
        vec![
            setup.threads.to_string(),
            if setup.pinned { "yes" } else { "no" }.into(),
            format!("{:.1}", speeds.decode),
            format!("{:.1}", speeds.prompt),
        ]
    };
    let rows: Vec<_> = measured.iter().map(row).collect();
    let Best { decode, prefill, pinned } = best;
    let pin = if pinned { " --pin-threads" } else { "" };
    format!(
        "{title}\n\n{}\nbest: --threads {decode} --prefill-threads {prefill}{pin}\n",
        table(&COLUMNS, &rows)
    )
}

/// A bar for each speed; those of decoding first.
fn bars(measured: &[(Setup, Speeds)]) -> Vec<Bar> {
    /// Its name, its unit, and how it is read.
    type Kind = (&'static str, &'static str, fn(&Speeds) -> f64);
    let kinds: [Kind; 2] =
        [("decode", "t/s", |s| s.decode), ("prompt", "prompt t/s", |s| s.prompt)];
    let of_kind = |(kind, unit, speed): Kind| {
        let bar = move |(setup, speeds): &(Setup, Speeds)| {
            let plural = if setup.threads == 1 { "" } else { "s" };
            let pinned = if setup.pinned { ", pinned" } else { "" };
            let label = format!("{kind}, {} thread{plural}{pinned}", setup.threads);
            Bar { label, value: speed(speeds), unit }
        };
        measured.iter().map(bar).collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

/// All measurements as an object: of instruction sets, and of threads.
fn record(
    name: &str,
    isa: Isa,
    (sets, measured): (&[IsaSpeeds], &[(Setup, Speeds)]),
    best: Best,
) -> Value {
    let set = |IsaSpeeds { isa, speeds }: &IsaSpeeds| {
        json!({
            "backend": isa.name(),
            "decode_tokens_per_second": speeds.decode,
            "prompt_tokens_per_second": speeds.prompt,
        })
    };
    let row = |(setup, speeds): &(Setup, Speeds)| {
        json!({
            "threads": setup.threads,
            "pinned": setup.pinned,
            "decode_tokens_per_second": speeds.decode,
            "prompt_tokens_per_second": speeds.prompt,
        })
    };
    json!({
        "model": name,
        "backend": isa.name(),
        "backends": sets.iter().map(set).collect::<Vec<Value>>(),
        "measured": measured.iter().map(row).collect::<Vec<Value>>(),
        "best": {
            "backend": isa.name(),
            "threads": best.decode,
            "prefill_threads": best.prefill,
            "pin_threads": best.pinned,
        },
    })
}
