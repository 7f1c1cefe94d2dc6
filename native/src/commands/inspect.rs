//! `wf-run inspect`: what a model is and what it needs.

use crate::cli::args::{self, HubArgs, KvArgs};
use crate::cli::{human, open, out};
use crate::machine;
use crate::models::engine::MAX_BATCH_TOKENS;
use crate::models::weight_sizes::{self, Group};
use crate::models::{self, Opened};
use anyhow::Context;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use wrinklefree::cache::{KvConfig, KvPool, KvType, PAGE};
use wrinklefree::format::{DlmConfig, GenerationDefaults, Spec, TextParts};
use wrinklefree::model::{Model, Workspace};

/// Show architecture, sizes, types, kernels and memory of a model
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run inspect                         the embedded model
  wf-run inspect ./my-model --context 8192
  wf-run inspect org/name:Q2_0 --json | jq .spec
  wf-run inspect ./my-model --template")]
pub struct Args {
    /// File, directory or hub id [default: embedded]
    #[arg(value_name = "PATH|ID")]
    model: Option<OsString>,
    #[command(flatten)]
    hub: HubArgs,
    /// Positions for the memory estimate
    ///
    /// [default: the model's, at most 4096]
    #[arg(short, long, value_name = "N", value_parser = args::positions())]
    context: Option<usize>,
    #[command(flatten)]
    kv: KvArgs,
    /// Print the chat template instead
    #[arg(long, conflicts_with = "json")]
    template: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// All that is shown.
#[derive(Serialize)]
struct Report {
    model: String,
    spec: Spec,
    parameters: u64,
    bytes: u64,
    bytes_per_token: u64,
    tied_head: bool,
    /// Number of subnormal weights that loading sets to zero.
    subnormal_weights: usize,
    tensors: Vec<Group>,
    tokenizer: bool,
    chat_template: Option<String>,
    generation: GenerationDefaults,
    diffusion: Option<DlmConfig>,
    kernels: &'static str,
    kernels_available: Vec<&'static str>,
    memory: Memory,
}

/// Bytes at a context length.
#[derive(Serialize)]
struct Memory {
    context: usize,
    weights: u64,
    kv_cache: u64,
    /// Resident memory that building the tokenizer takes; 0 where the system does not say.
    tokenizer: u64,
    /// Buffers of the largest forward pass of a server.
    buffers: u64,
    /// Size of the key/value cache in each type.
    kv_cache_by_type: BTreeMap<&'static str, u64>,
    total: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let Opened { name, checkpoint, .. } =
        open::checkpoint(args.model.as_deref(), &args.hub.revision, &machine::all_cores()?)?;
    if args.template {
        let template = checkpoint.text.chat_template;
        return out::print(&(template.context("the model has no chat template")? + "\n"));
    }
    let tied_head = checkpoint.weights.head.is_none();
    let model = Model::new(checkpoint.spec, checkpoint.weights).context(name.clone())?;
    let spec = model.spec().clone();
    let tensors = weight_sizes::groups(model.weights());
    let bytes = tensors.iter().map(|g| g.bytes).sum();
    let context = args::context(args.context, &spec);
    args::warn_beyond(context, &spec);
    let cache = |kv: &KvConfig| KvPool::bytes(&spec, context.div_ceil(PAGE), kv) as u64;
    let kv_cache = cache(&args.kv.config());
    let in_type =
        |t: KvType| (t.name(), cache(&KvConfig { keys: t, values: t, ..args.kv.config() }));
    let kv_cache_by_type = KvType::ALL.into_iter().map(in_type).collect();
    let tokenizer = tokenizer_memory(&name, &checkpoint.text, spec.vocab_size);
    let buffers = Workspace::bytes(&spec, MAX_BATCH_TOKENS) as u64;
    let report = Report {
        model: name,
        parameters: model.parameters() as u64,
        bytes,
        bytes_per_token: model.bytes_per_token() as u64,
        tied_head,
        subnormal_weights: checkpoint.flushed,
        tensors,
        tokenizer: checkpoint.text.vocabulary.is_some(),
        chat_template: checkpoint.text.chat_template,
        generation: checkpoint.generation,
        diffusion: checkpoint.dlm,
        kernels: machine::kernels()?.isa().name(),
        kernels_available: machine::available(),
        memory: Memory {
            context,
            weights: bytes,
            kv_cache,
            tokenizer,
            buffers,
            kv_cache_by_type,
            total: [bytes, kv_cache, tokenizer, buffers].into_iter().fold(0, u64::saturating_add),
        },
        spec,
    };
    if args.json { out::json(&report) } else { out::print(&text(&report)) }
}

/// Builds the tokenizer, if it can be used, and returns the memory that it takes.
fn tokenizer_memory(name: &str, text: &TextParts, vocab: usize) -> u64 {
    let before = machine::resident_memory();
    let tokenizer = models::tokenizer(name, text, vocab);
    let after = machine::resident_memory();
    drop(tokenizer);
    after.zip(before).map_or(0, |(after, before)| after.saturating_sub(before))
}

fn text(report: &Report) -> String {
    let (spec, memory) = (&report.spec, &report.memory);
    let yes = |b: bool| if b { "yes" } else { "no" };
    let architecture = serde_json::to_value(spec.architecture).unwrap_or_default();
    let diffusion = report.diffusion.as_ref().map_or("no".into(), |d| {
        format!("blocks of {}, {} attention among clean tokens", d.bd_size, d.clean_attention)
    });
    let types = KvType::ALL
        .map(|t| format!("{} {}", t.name(), human::bytes(memory.kv_cache_by_type[t.name()])));
    let subnormal = match report.subnormal_weights {
        0 => "none".into(),
        count => format!("{count}, set to zero"),
    };
    let facts = [
        ("model", report.model.clone()),
        ("architecture", architecture.as_str().unwrap_or_default().into()),
        ("parameters", human::count(report.parameters)),
        ("weights", human::bytes(report.bytes)),
        ("read per token", human::bytes(report.bytes_per_token)),
        ("layers", spec.layers.to_string()),
        ("hidden size", spec.hidden_size.to_string()),
        ("feed-forward size", spec.intermediate_size.to_string()),
        ("heads", format!("{} ({} key/value) of {}", spec.heads, spec.kv_heads, spec.head_dim)),
        ("vocabulary", spec.vocab_size.to_string()),
        ("context length", spec.context_length.to_string()),
        ("head tied", yes(report.tied_head).into()),
        ("subnormal weights", subnormal),
        ("tokenizer", yes(report.tokenizer).into()),
        ("chat template", yes(report.chat_template.is_some()).into()),
        ("block diffusion", diffusion),
        (
            "kernels",
            format!(
                "{} (this machine has {})",
                report.kernels,
                report.kernels_available.join(", ")
            ),
        ),
        (
            "memory",
            format!(
                "{} at {} positions: weights {}, key/value cache {}, tokenizer {}, buffers {}",
                human::bytes(memory.total),
                memory.context,
                human::bytes(memory.weights),
                human::bytes(memory.kv_cache),
                human::bytes(memory.tokenizer),
                human::bytes(memory.buffers),
            ),
        ),
        ("key/value cache", types.join(", ")),
    ];
    let facts: Vec<_> = facts.into_iter().map(|(name, value)| vec![name.into(), value]).collect();
    human::table(&facts) + "\n" + &human::table(&tensor_rows(&report.tensors))
}

fn tensor_rows(groups: &[Group]) -> Vec<Vec<String>> {
    let heading = ["tensors", "type", "count", "shape", "parameters", "bytes"];
    let row = |g: &Group| {
        vec![
            g.role.into(),
            g.kind.clone(),
            g.count.to_string(),
            format!("{} × {}", g.shape[0], g.shape[1]),
            human::count(g.parameters),
            human::bytes(g.bytes),
        ]
    };
    let heading = heading.map(String::from).to_vec();
    std::iter::once(heading).chain(groups.iter().map(row)).collect()
}
