//! `wf-run inspect`: what a model is and what it needs.

use anyhow::Context;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use wf_run_cli::args::{self, DrafterArgs, HubArgs, KvArgs};
use wf_run_cli::config::ConfigArgs;
use wf_run_cli::progress::Progress;
use wf_run_cli::result_format::ResultFormat;
use wf_run_cli::suggest::opening;
use wf_run_cli::{human, kernels, open, out};
use wrinklefree::cache::{KvConfig, KvPool, KvType, PAGE, StateShape};
use wrinklefree::format::{
    Checkpoint, DlmConfig, DrafterConfig, GenerationDefaults, LayerWeights, Spec,
    TrainingStatement, Weights,
};
use wrinklefree::model::{Model, Workspace};
use wrinklefree::text::{EndToken, ModelText, describe_end_tokens};
use wrinklefree_easy::machine;
use wrinklefree_easy::models::engine::MAX_BATCH_TOKENS;
use wrinklefree_easy::models::weight_sizes::{self, ADAPTER, Group};
use wrinklefree_easy::models::{DrafterOptions, OpenOptions, Opened};

/// Show architecture, sizes, types, kernels and memory of a model
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run inspect                         the embedded model
  wf-run inspect ./my-model --context 8192
  wf-run inspect org/name:Q2_0 -o json | jq .spec
  wf-run inspect ./my-model --template")]
pub struct Args {
    /// File, directory or hub id [default: embedded]
    #[arg(id = "model_path", value_name = "PATH|ID")]
    model: Option<OsString>,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    drafter: DrafterArgs,
    /// Positions for the memory estimate
    ///
    /// [default: the model's, at most 4096]
    #[arg(short, long, value_name = "N", value_parser = args::positions())]
    context: Option<usize>,
    #[command(flatten)]
    kv: KvArgs,
    #[command(flatten)]
    _config: ConfigArgs,
    /// Print the chat template instead
    #[arg(long, conflicts_with_all = ["json", "output_format"])]
    template: bool,
    #[command(flatten)]
    output: ResultFormat,
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
    rotation: Option<RotatedWeights>,
    /// Reason why the block for multi-token prediction of the files cannot be used.
    mtp_fault: Option<String>,
    /// How the drafter drafts, if one is named.
    drafter: Option<DrafterConfig>,
    /// Number of subnormal weights that loading sets to zero.
    subnormal_weights: usize,
    tensors: Vec<Group>,
    /// Number of tensors of each type in the files; empty for packed files.
    stored_types: BTreeMap<&'static str, usize>,
    tokenizer: bool,
    end_tokens: Vec<EndToken>,
    /// Oddities of the text parts.
    notes: Vec<String>,
    chat_template: Option<String>,
    generation: GenerationDefaults,
    diffusion: Option<DlmConfig>,
    training: Option<TrainingStatement>,
    kernels: &'static str,
    /// Reason why these kernels run.
    kernels_chosen: &'static str,
    kernels_available: Vec<&'static str>,
    memory: Memory,
}

/// Matrices in a rotated basis.
#[derive(Serialize)]
struct RotatedWeights {
    matrices: usize,
    of: usize,
    embeddings: bool,
    /// Sizes of the blocks that are transformed.
    blocks: BTreeSet<usize>,
}

impl RotatedWeights {
    /// Counts them; `None` if there are none.
    fn of(weights: &Weights) -> Option<Self> {
        let linears = || weights.layers.iter().flat_map(LayerWeights::linears).chain(&weights.head);
        let rotations = || linears().filter_map(|linear| linear.rotation.as_deref());
        let table = weights.embed_rotation.as_deref();
        let found = Self {
            matrices: rotations().count(),
            of: linears().count(),
            embeddings: table.is_some(),
            blocks: rotations().chain(table).map(|rotation| rotation.block).collect(),
        };
        (!found.blocks.is_empty()).then_some(found)
    }
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
    /// Weights of the drafter.
    drafter: u64,
    /// Recurrent states of a sequence.
    states: u64,
    /// A copy of them in the prefix cache.
    state_snapshot: u64,
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
    let (text_parts, tokenizer) = text_parts(&name, &checkpoint);
    let tied_head = checkpoint.weights.head.is_none();
    let model = Model::new(checkpoint.spec, checkpoint.weights).context(name.clone())?;
    let model = match args.drafter.options()? {
        None => model,
        Some(drafter) => with_drafter(model, &drafter)?,
    };
    let spec = model.spec().clone();
    let tensors = weight_sizes::groups(model.weights());
    let bytes = tensors.iter().map(|g| g.bytes).sum();
    let context = args::context(args.context, &spec);
    args::warn_beyond(context, &spec);
    let cache = |kv: &KvConfig| {
        let kv = KvConfig { drafter: model.draft_layers(), ..*kv };
        KvPool::bytes(&spec, context.div_ceil(PAGE), &kv) as u64
    };
    let kv_cache = cache(&args.kv.config());
    let in_type =
        |t: KvType| (t.name(), cache(&KvConfig { keys: t, values: t, ..args.kv.config() }));
    let kv_cache_by_type = KvType::ALL.into_iter().map(in_type).collect();
    let buffers = Workspace::bytes(&spec, MAX_BATCH_TOKENS) as u64;
    let buffers = buffers.saturating_add(model.draft_buffer_bytes(MAX_BATCH_TOKENS) as u64);
    let drafter_bytes = model.drafter_bytes() as u64;
    let (shape, isa) = (StateShape::of(&spec), machine::kernels()?.isa());
    let states = shape.map_or(0, |shape| shape.bytes() as u64);
    let report = Report {
        model: name,
        parameters: model.parameters() as u64,
        bytes,
        bytes_per_token: model.bytes_per_token() as u64,
        tied_head,
        rotation: RotatedWeights::of(model.weights()),
        mtp_fault: checkpoint.mtp_fault.map(|fault| fault.to_string()),
        drafter: model.drafter().cloned(),
        subnormal_weights: checkpoint.flushed,
        tensors,
        stored_types: checkpoint.stored_types,
        tokenizer: checkpoint.text.vocabulary.is_some(),
        end_tokens: text_parts.end_tokens,
        notes: checkpoint.notes.into_iter().chain(text_parts.notes).collect(),
        chat_template: checkpoint.text.chat_template,
        generation: checkpoint.generation,
        diffusion: checkpoint.dlm,
        training: checkpoint.training,
        kernels: isa.name(),
        kernels_chosen: kernels::why(isa),
        kernels_available: machine::available(),
        memory: Memory {
            context,
            weights: bytes,
            kv_cache,
            tokenizer,
            buffers,
            states,
            state_snapshot: shape.map_or(0, |shape| shape.snapshot_bytes() as u64),
            kv_cache_by_type,
            drafter: drafter_bytes,
            total: [bytes, kv_cache, states, tokenizer, buffers, drafter_bytes]
                .into_iter()
                .fold(0, u64::saturating_add),
        },
        spec,
    };
    if args.output.is_json() { out::json(&report) } else { out::print(&text(&report)) }
}

/// Adds a drafter to the model.
fn with_drafter(model: Model, drafter: &DrafterOptions) -> anyhow::Result<Model> {
    let runtime = machine::all_cores()?;
    let added = drafter.add_to(model, &runtime, &mut Progress::default()).map_err(opening)?;
    open::warn(&added.1.into_iter().collect::<Vec<_>>());
    Ok(added.0)
}

/// The memory of the drafter, if there is one.
fn drafter(memory: &Memory) -> String {
    match memory.drafter {
        0 => String::new(),
        bytes => format!(", drafter {}", human::bytes(bytes)),
    }
}

/// Builds the text parts, and returns them with the memory that they take. Those that cannot be used
/// are a note.
fn text_parts(name: &str, checkpoint: &Checkpoint) -> (ModelText, u64) {
    let before = machine::resident_memory();
    let (text, stated) = (checkpoint.text.clone(), &checkpoint.generation.eos);
    let built = OpenOptions::default().text(name, text, stated, None);
    let after = machine::resident_memory();
    let memory = after.zip(before).map_or(0, |(after, before)| after.saturating_sub(before));
    let unusable = |error| ModelText {
        tokenizer: None,
        template: None,
        end_tokens: Vec::new(),
        notes: vec![format!("{:#}", anyhow::Error::new(error))],
    };
    (built.unwrap_or_else(unusable), memory)
}

fn text(report: &Report) -> String {
    let (spec, memory) = (&report.spec, &report.memory);
    let yes = |b: bool| if b { "yes" } else { "no" };
    let architecture = serde_json::to_value(spec.architecture).unwrap_or_default();
    let types = KvType::ALL
        .map(|t| format!("{} {}", t.name(), human::bytes(memory.kv_cache_by_type[t.name()])));
    let subnormal = match report.subnormal_weights {
        0 => "none".into(),
        count => format!("{count}, set to zero"),
    };
    let ends = describe_end_tokens(&report.end_tokens);
    let notes = if report.notes.is_empty() { "none".into() } else { report.notes.join("; ") };
    let facts = [
        ("model", report.model.clone()),
        ("architecture", architecture.as_str().unwrap_or_default().into()),
        ("parameters", human::count(report.parameters)),
        ("weights", human::bytes(report.bytes)),
        ("read per token", human::bytes(report.bytes_per_token)),
        ("layers", layers(spec)),
        ("hidden size", spec.hidden_size.to_string()),
        ("feed-forward size", spec.intermediate_size.to_string()),
        ("heads", format!("{} ({} key/value) of {}", spec.heads, spec.kv_heads, spec.head_dim)),
        ("vocabulary", spec.vocab_size.to_string()),
        ("context length", spec.context_length.to_string()),
        ("head tied", yes(report.tied_head).into()),
        ("rotated weights", rotation(report.rotation.as_ref())),
        ("drafting block (MTP)", drafting_block(report)),
        ("drafter", report.drafter.as_ref().map_or("none".into(), |drafter| drafter.describe())),
        ("subnormal weights", subnormal),
        ("tokenizer", yes(report.tokenizer).into()),
        ("end", ends),
        ("chat template", yes(report.chat_template.is_some()).into()),
        ("notes", notes),
        ("block diffusion", report.diffusion.as_ref().map_or("no".into(), diffusion)),
        ("training", training(report)),
        (
            "kernels",
            format!(
                "{}, {}; this machine has {}",
                report.kernels,
                report.kernels_chosen,
                report.kernels_available.join(", ")
            ),
        ),
        (
            "memory",
            format!(
                "{} at {} positions: weights {}, key/value cache {}{}, tokenizer {}, \
                 buffers {}{}",
                human::bytes(memory.total),
                memory.context,
                human::bytes(memory.weights),
                human::bytes(memory.kv_cache),
                states(memory),
                human::bytes(memory.tokenizer),
                human::bytes(memory.buffers),
                drafter(memory),
            ),
        ),
        ("key/value cache", types.join(", ")),
    ];
    let stored = report.stored_types.iter().map(|(name, count)| format!("{count} {name}"));
    let stored = stored.collect::<Vec<_>>().join(", ");
    let stored = (!stored.is_empty()).then_some(("tensors in the files", stored));
    let facts = facts.into_iter().chain(adapter(report).map(|rank| (ADAPTER, rank))).chain(stored);
    let facts: Vec<_> = facts.map(|(name, value)| vec![name.into(), value]).collect();
    human::table(&facts) + "\n" + &human::table(&tensor_rows(&report.tensors))
}

/// Describes the parameters of block diffusion, and which of them nothing states.
fn diffusion(d: &DlmConfig) -> String {
    let row = if d.logit_shift == 1 { "row i − 1" } else { "row i" };
    let assumed = if d.logit_shift_assumed {
        " (assumed: the files do not state it; --logit-shift decides)"
    } else {
        ""
    };
    let begin = if d.blocks_from_prompt { " from the end of the prompt on" } else { "" };
    format!(
        "blocks of {}{begin}, {} attention among clean tokens, {row} predicts token i{assumed}",
        d.bd_size, d.clean_attention
    )
}

/// Describes the training that the files state: the paths, the stages, and what they ask of a runtime.
fn training(report: &Report) -> String {
    let paths = match &report.diffusion {
        None => "autoregressive",
        Some(d) if d.ar_path => "autoregressive and block diffusion",
        Some(_) => "block diffusion",
    };
    let Some(stated) = &report.training else { return paths.into() };
    let mut text = format!("{paths}, stages {}", stated.stages.join(", "));
    if let Some(sparsity) = &stated.activation_sparsity {
        text += &format!("; with sparse activations: add --activation-sparsity {sparsity}");
    }
    if stated.haar {
        text += "; ternary in the Haar basis, stored as dense weights";
    }
    text
}

/// The block for multi-token prediction, and the memory that it takes if it drafts.
fn drafting_block(report: &Report) -> String {
    if let Some(fault) = &report.mtp_fault {
        return format!("not usable: {fault}");
    }
    let bytes = report.tensors.iter().filter(|g| g.role == "drafting block").map(|g| g.bytes);
    match report.spec.mtp_layers {
        0 => "none".into(),
        count => {
            format!("{count}, {} of the weights (only with --draft mtp)", human::bytes(bytes.sum()))
        }
    }
}

/// The adapter that changes drafts, if there is one.
fn adapter(report: &Report) -> Option<String> {
    let group = report.tensors.iter().find(|group| group.role == ADAPTER)?;
    let rank = group.shape.into_iter().min()?;
    Some(format!("rank {rank}, in the drafts of `verify` alone"))
}

/// The number of layers, and their mixers where they differ.
fn layers(spec: &Spec) -> String {
    let (Some(shape), Some(states)) = (&spec.linear_attention, StateShape::of(spec)) else {
        return spec.layers.to_string();
    };
    format!(
        "{}: {} linear attention ({} key heads of {}, {} value heads of {}), {} attention",
        spec.layers,
        states.layers,
        shape.key_heads,
        shape.key_dim,
        shape.value_heads,
        shape.value_dim,
        spec.layers - states.layers,
    )
}

fn rotation(rotated: Option<&RotatedWeights>) -> String {
    let Some(rotated) = rotated else { return "none".into() };
    let blocks: Vec<String> = rotated.blocks.iter().map(usize::to_string).collect();
    let embeddings = if rotated.embeddings { " and the embeddings" } else { "" };
    let RotatedWeights { matrices, of, .. } = rotated;
    format!("{matrices} of {of} matrices{embeddings}, in blocks of {}", blocks.join(", "))
}

/// Describes the memory of recurrent states, if there are any.
fn states(memory: &Memory) -> String {
    match memory.states {
        0 => String::new(),
        states => format!(
            ", recurrent states {} (and {} for each that the prefix cache keeps)",
            human::bytes(states),
            human::bytes(memory.state_snapshot),
        ),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use wrinklefree_easy::models::Synthetic;

    #[test]
    fn an_assumed_logit_shift_is_shown() {
        let mut dlm = Synthetic::Tiny.loaded().dlm.expect("blocks");
        let stated = diffusion(&dlm);
        assert!(
            stated.ends_with("causal attention among clean tokens, row i − 1 predicts token i")
        );
        (dlm.logit_shift, dlm.logit_shift_assumed) = (0, true);
        let assumed =
            "row i predicts token i (assumed: the files do not state it; --logit-shift decides)";
        assert!(diffusion(&dlm).ends_with(assumed), "{}", diffusion(&dlm));
    }

    #[test]
    fn hybrids_show_mixers_rotation_and_states() {
        let model = Synthetic::TinyHybrid.loaded().model;
        let spec = model.spec();
        let want = "4: 3 linear attention (8 key heads of 16, 16 value heads of 16), 1 attention";
        assert_eq!(layers(spec), want);
        let rotated = RotatedWeights::of(model.weights());
        let want = "25 of 31 matrices and the embeddings, in blocks of 128";
        assert_eq!(rotation(rotated.as_ref()), want, "alpha and beta read plain inputs");

        let tiny = Synthetic::Tiny.loaded().model;
        assert_eq!(layers(tiny.spec()), "8");
        assert_eq!(rotation(RotatedWeights::of(tiny.weights()).as_ref()), "none");
    }
}
