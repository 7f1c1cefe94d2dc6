//! `wf-run tune`: which numbers of threads are best here.

use crate::bench::provenance;
use crate::bench::report::{Format, heading, line};
use crate::bench::tuning::{Best, Counts, Setup, Speeds, best, measure, setups};
use crate::cli::args::{self, ModelArgs};
use crate::cli::exit::usage;
use crate::cli::out;
use crate::config;
use crate::machine::{self, cores};
use crate::models::{Loaded, Synthetic};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Find the best numbers of threads for this machine
///
/// Measures decoding and prompts with several numbers of threads, pinned to cores and not. Memory
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
    /// Time for all measurements together
    ///
    /// Measurements cannot be cut arbitrarily short, so more time may pass.
    #[arg(long, value_name = "N", default_value = "90")]
    seconds: u64,
}

/// Columns of the table.
const COLUMNS: [&str; 4] = ["threads:", "pinned", "decode t/s:", "prompt t/s:"];

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if !matches!(args.output, Format::Md | Format::Json) {
        return Err(usage("-o: take md or json"));
    }
    let table = args.output == Format::Md;
    let runtime = &machine::all_cores()?;
    let (name, model) = match args.synthetic {
        Some(shape) => {
            let Loaded { name, model, .. } = args.model.prepare(shape.loaded(), runtime);
            (name, model)
        }
        None => args.model.open_weights(runtime)?,
    };
    let counts =
        Counts { performance: cores::count(), cores: cores::all(), cpus: cores::cpus().len() };
    let isa = machine::kernels()?.isa().name();
    if table {
        let title = format!("{name} on {}, {isa}\n\n", machine_name(counts));
        out::print(&(title + &heading(&COLUMNS)))?;
    }
    let setups: Vec<Setup> = setups(counts);
    let time = Duration::from_secs(args.seconds) / setups.len() as u32;
    let mut measured = Vec::new();
    for setup in setups {
        let speeds = measure(&model, setup, time)?;
        let pinned = if setup.pinned { "yes" } else { "no" };
        if table {
            out::print(&line([
                setup.threads.to_string(),
                pinned.into(),
                format!("{:.1}", speeds.decode),
                format!("{:.1}", speeds.prompt),
            ]))?;
        }
        measured.push((setup, speeds));
    }
    let Best { decode, prefill, pinned } = best(&measured);
    let pin = if pinned { " --pin-threads" } else { "" };
    if table {
        out::print(&format!("\nbest: --threads {decode} --prefill-threads {prefill}{pin}\n"))?;
    } else {
        let best = json!({"threads": decode, "prefill_threads": prefill, "pin_threads": pinned});
        out::json(&record(&name, isa, &measured, best))?;
    }
    let Some(path) = &args.config else { return Ok(()) };
    let keys = [
        ("threads", decode.to_string()),
        ("prefill_threads", prefill.to_string()),
        ("pin_threads", pinned.to_string()),
    ];
    config::set(path, &keys)?;
    match table {
        true => out::print(&format!("written to {}\n", path.display())),
        false => Ok(()),
    }
}

/// The cores and CPUs in words.
fn machine_name(Counts { performance, cores, cpus }: Counts) -> String {
    match cores - performance {
        0 => format!("{cores} cores ({cpus} CPUs)"),
        slow => format!("{performance} performance and {slow} efficiency cores ({cpus} CPUs)"),
    }
}

/// All measurements as an object.
fn record(name: &str, isa: &str, measured: &[(Setup, Speeds)], best: Value) -> Map<String, Value> {
    let row = |(setup, speeds): &(Setup, Speeds)| {
        json!({
            "threads": setup.threads,
            "pinned": setup.pinned,
            "decode_tokens_per_second": speeds.decode,
            "prompt_tokens_per_second": speeds.prompt,
        })
    };
    let mut fields = Map::new();
    fields.insert("model".into(), name.into());
    fields.insert("backend".into(), isa.into());
    fields.insert("measured".into(), measured.iter().map(row).collect());
    fields.insert("best".into(), best);
    fields.append(&mut provenance::fields());
    fields
}
