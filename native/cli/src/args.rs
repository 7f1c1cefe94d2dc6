//! Options that several commands share.

use super::exit::usage;
use super::out;
use super::typed::Typed;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use std::ffi::OsString;
use wrinklefree::cache::{KvConfig, KvType, PageSelection};
use wrinklefree::decode::DecodeMode;
use wrinklefree::engine::SubmitError;
use wrinklefree::format::{DraftLayout, Spec};
use wrinklefree::model::{Model, Sparsity};
use wrinklefree_easy::machine::{Threads, cores};
use wrinklefree_easy::models::rope_scaling::{self, RopeRule, beyond};
use wrinklefree_easy::models::{
    ActivationBits, DrafterOptions, LayoutChoice, Logits, OpenOptions, Placement, Synthetic,
};

/// Options that name a model and how it is opened.
#[derive(Args, Debug)]
pub struct ModelArgs {
    /// File, directory or hub id [default: embedded]
    ///
    /// A directory, a .safetensors or .gguf file, or a hub id: org/name, org/name:QUANT or
    /// org/name/file.gguf. Without it, the small model embedded in this program runs.
    #[arg(id = "model_path", short, long = "model", value_name = "PATH|ID")]
    pub model: Option<OsString>,
    /// The revision of a model on the hub.
    #[command(flatten)]
    pub hub: HubArgs,
    /// Positions: none, linear:F, ntk:F or yarn:F
    ///
    /// Stretches the positions that the model was trained for F times. `none` removes the scaling
    /// of the model's files [default: what these files say].
    #[arg(long, value_name = "RULE")]
    pub rope_scaling: Option<RopeRule>,
    /// Zero small activations (experimental)
    ///
    /// Sets small inputs of ternary layers to zero. The rules: off; threshold:T keeps inputs of at
    /// least T times the largest of their row; topk:R keeps the largest share R; adaptive keeps the
    /// fewest that hold 99 % of the row's sum of squares. A rule that ends in @down applies to the
    /// inputs of down_proj only. AVX2 kernels skip blocks of zeros, others do not; `wf-run eval
    /// activations` measures what a rule gains and costs.
    #[arg(long, value_name = "RULE", default_value_t)]
    pub activation_sparsity: Sparsity,
    /// Logits: all exact, or screened
    ///
    /// `exact` computes all logits exactly. `screened` reads half of the bits of an int8 head first and
    /// computes the logits of promising tokens exactly, the others approximately. It saves almost
    /// half of the reads of the head, which helps if few requests run at a time. Draws at a temperature,
    /// answers that follow a grammar and log-probabilities may change. 16-bit heads and small
    /// vocabularies stay exact.
    #[arg(long, value_name = "HOW", value_parser = one_of(Logits::ALL, Logits::name),
        default_value = Logits::default().name())]
    pub logits: Logits,
    /// Activations: auto, exact (15 bits), or int8
    ///
    /// Bits of the inputs of matrices that were not trained with eight bits. `exact` keeps 15 bits in two
    /// int8 planes. `int8` takes one plane, half of the arithmetic of prompts and batches; answers change
    /// a little. `auto` takes int8 for matrices in a rotated basis (Ternary-Bonsai-2), where that changes
    /// least. Models that were trained with eight bits have these anyway.
    #[arg(long, value_name = "BITS", value_parser = one_of(ActivationBits::ALL, ActivationBits::name),
        default_value = ActivationBits::default().name())]
    pub activations: ActivationBits,
    /// Ternary weights in memory
    ///
    /// Layout of ternary weights in memory. `two-bit` holds four weights in a byte. `tight` holds
    /// three in five bits, which is a sixth less to read, and needs AVX-512 VBMI. `one-bit` holds eight in
    /// a byte, for weights without zeros with a scale for each 128. `auto` takes the one that decodes
    /// faster here, measured if the model is larger than caches. Results are the same, bit for bit.
    #[arg(long, value_name = "LAYOUT", value_parser = one_of(LayoutChoice::ALL, LayoutChoice::name),
        default_value = LayoutChoice::default().name())]
    pub layout: LayoutChoice,
    /// Weights of a packed file
    ///
    /// Where the weights of a packed file are kept. `mapped`: in the file's pages, which all
    /// processes that run it share. `copied`: in huge pages of this process, which decode faster.
    /// `auto`: copied if the file is larger than caches and twice its size is free. Results are the
    /// same, bit for bit.
    #[arg(long, value_name = "PLACE", value_parser = one_of(Placement::ALL, Placement::name),
        default_value = Placement::default().name())]
    pub weights: Placement,
    /// Control tokens in messages act as such
    ///
    /// By default a control token that stands in a message (<|eot_id|>, <|mask|>) is text there, so that
    /// a message cannot forge turns. With this option it is that token, as in other programs.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "false")]
    pub allow_control_tokens: bool,
    /// Token that ends a text too; repeatable
    ///
    /// The exact name of a token, or its id. Texts also end at the tokens that the model's files name,
    /// and at those of known names (<|eot_id|>, <|im_end|>, <end_of_turn> and others).
    #[arg(long, value_name = "TOKEN|ID")]
    pub stop_token: Vec<String>,
    /// Chat template: a name, a file, or Jinja
    ///
    /// Replaces the chat template of the model's files. Known names: bitnet, chatml, gemma, hunyuan,
    /// llama3, phi3, zephyr. A text with {{ or {% is Jinja, and anything else is a file.
    #[arg(long, value_name = "NAME|FILE|TEXT")]
    pub chat_template: Option<String>,
    /// Replace chat templates known to be wrong
    ///
    /// Some files have a chat template that their model was not trained with. `false` keeps it.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "true")]
    pub template_fixes: bool,
}

impl ModelArgs {
    /// Returns these options without the command line and without the drafter. `mtp` asks for the block for
    /// multi-token prediction.
    pub fn options(&self, mtp: bool) -> OpenOptions {
        OpenOptions {
            model: self.model.clone(),
            revision: self.hub.revision.clone(),
            rope_scaling: self.rope_scaling,
            activation_sparsity: self.activation_sparsity,
            logits: self.logits,
            activations: self.activations,
            layout: self.layout,
            weights: self.weights,
            allow_control_tokens: self.allow_control_tokens,
            mtp,
            drafter: None,
            stop_tokens: self.stop_token.clone(),
            chat_template: self.chat_template.clone(),
            template_fixes: self.template_fixes,
        }
    }
}

/// Options that name a drafter.
#[derive(Args, Debug)]
pub struct DrafterArgs {
    /// Drafter for this model: file, folder or id
    ///
    /// A small model (DFlash, DSpark) that was trained to draft for this one: a GGUF file, a directory, or a
    /// hub id. `--draft model`, the default with it, drafts with it; the text stays that of the model.
    #[arg(long, value_name = "PATH|ID")]
    pub draft_model: Option<OsString>,
    /// Layout of its blocks [default: its files']
    ///
    /// Tokens that the rows of a block predict: those at their own positions (dflash), or those after them,
    /// from the newest token on (dspark). Few files state it. Without a statement, a Markov head tells
    /// dspark.
    #[arg(long, value_name = "LAYOUT", value_parser = one_of(&DraftLayout::ALL, DraftLayout::name))]
    pub draft_layout: Option<DraftLayout>,
}

impl DrafterArgs {
    /// The drafter that they name, if they name one.
    ///
    /// # Errors
    /// If there is a layout without a drafter.
    pub fn options(&self) -> anyhow::Result<Option<DrafterOptions>> {
        let layout = self.draft_layout;
        if layout.is_some() && self.draft_model.is_none() {
            return Err(usage("--draft-layout is the layout of --draft-model: name the drafter"));
        }
        Ok(self.draft_model.clone().map(|model| DrafterOptions { model, layout }))
    }
}

/// Makes the activations of a command exact by default, because it compares numbers.
pub fn exact_by_default(activations: clap::Arg) -> clap::Arg {
    activations.default_value(ActivationBits::Exact.name())
}

/// Options about the hub.
#[derive(Args, Debug)]
pub struct HubArgs {
    /// Hub branch, tag or commit
    #[arg(long, value_name = "REV", default_value = "main")]
    pub revision: String,
}

/// Options about threads. The environment variable `WF_ISA` chooses the kernels.
#[derive(Args, Debug)]
pub struct ComputeArgs {
    /// Threads [default: one for each core]
    #[arg(short, long, value_name = "N", value_parser = threads())]
    pub threads: Option<usize>,
    /// For prompts, batches [default: --threads]
    ///
    /// Threads for prompts and batches; `wf-run tune` measures the best number of both.
    #[arg(long, value_name = "N", value_parser = threads())]
    pub prefill_threads: Option<usize>,
    /// Pin each thread to a core
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "false")]
    pub pin_threads: bool,
}

impl ComputeArgs {
    /// Returns the number of threads that the user asked for, or one for each core.
    pub fn threads(&self) -> Threads {
        let decode = self.threads.unwrap_or_else(cores::count);
        let prefill = self.prefill_threads.unwrap_or(decode);
        Threads { decode, prefill, pinned: self.pin_threads }
    }
}

/// Options about the KV cache and page selection.
#[derive(Args, Clone, Debug)]
#[group(id = "kv")]
#[command(next_help_heading = "KV cache")]
pub struct KvArgs {
    /// Type of keys and values
    ///
    /// Types of 8 bits take half of the memory of the default, and one scale for each position and
    /// head. f32 is exact and takes twice as much.
    #[arg(long, value_name = "TYPE", value_parser = kv_type(), default_value = KvConfig::default().keys.name())]
    pub kv_dtype: KvType,
    /// Type of keys [default: --kv-dtype]
    #[arg(long, value_name = "TYPE", value_parser = kv_type())]
    pub kv_k: Option<KvType>,
    /// Type of values [default: --kv-dtype]
    #[arg(long, value_name = "TYPE", value_parser = kv_type())]
    pub kv_v: Option<KvType>,
    /// Positions that a token attends to
    ///
    /// Selects the positions that a token attends to, in pages of 32: dense (all); window:W or
    /// window:W,sinks:S (the last W positions and the first S); topk:K (the most promising K
    /// positions); threshold:T (pages with at least T times the weight of the best); dynamic or
    /// dynamic:MIN,MAX (a share of the context that grows with the entropy of the pages' weights).
    #[arg(long, value_name = "WHAT", default_value_t)]
    pub attention: PageSelection,
}

impl KvArgs {
    /// For a pool.
    pub fn config(&self) -> KvConfig {
        KvConfig {
            keys: self.kv_k.unwrap_or(self.kv_dtype),
            values: self.kv_v.unwrap_or(self.kv_dtype),
            selection: self.attention,
            ..KvConfig::default()
        }
    }
}

/// Parses one of `values` by its name.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values.iter().map(|&value| name(value))).map(move |text| {
        let named = values.iter().find(|&&value| name(value) == text);
        *named.expect("clap lets only these names pass")
    })
}

/// Parses the type of keys or values.
pub fn kv_type() -> impl TypedValueParser<Value = KvType> {
    one_of(&KvType::ALL, KvType::name)
}

/// Parses the shape of a synthetic model.
pub fn synthetic() -> impl TypedValueParser<Value = Synthetic> {
    let value = |shape: &Synthetic| PossibleValue::new(shape.name()).help(shape.describe());
    PossibleValuesParser::new(Synthetic::ALL.iter().map(value))
        .map(|text| Synthetic::parse(&text).expect("clap lets only these names pass"))
}

/// Numbers of threads that make sense: more than machines have cores only hang.
pub fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}

/// Positions when the user does not say: plenty for a conversation, modest in memory.
const CONTEXT: usize = 4096;

/// The value of `--context`.
pub fn context(asked: Option<usize>, spec: &Spec) -> usize {
    asked.unwrap_or(CONTEXT.min(spec.context_length))
}

/// Numbers of positions that a text may have.
pub fn positions() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1 << 30)
}

/// Allows texts of so many positions, and prints which factors a model with LongRoPE takes for them.
pub fn allow(model: Model, positions: usize) -> Model {
    let (model, note) = rope_scaling::allow(model, positions);
    if let Some(note) = note {
        out::note(format_args!("{note}"));
    }
    model
}

/// Warns if there are more positions than the model was trained for.
pub fn warn_beyond(positions: usize, spec: &Spec) {
    if let Some(warning) = beyond_trained(positions, spec) {
        out::note(format_args!("warning: {warning}"));
    }
}

/// Returns a warning if there are more positions than the model was trained for, with the flag that
/// helps.
pub fn beyond_trained(positions: usize, spec: &Spec) -> Option<String> {
    let warning = beyond(positions, spec)?;
    Some(format!("{warning}. --rope-scaling yarn:F stretches them F times"))
}

/// The option for texts that fill their context.
#[derive(Args, Debug)]
pub struct ShiftArgs {
    /// If full: drop half, keep KEEP tokens
    ///
    /// When the context is full, generation continues without the older half of the text. The first
    /// KEEP tokens stay (4 if no number is given), and the rest is computed again [default: the
    /// answer ends].
    #[arg(long, value_name = "KEEP", num_args = 0..=1, require_equals = true, default_missing_value = KEEP)]
    context_shift: Option<usize>,
}

/// Tokens that stay where the user does not say: attention rests on a text's first few
/// (arXiv 2309.17453).
pub(crate) const KEEP: &str = "4";

impl Typed<ShiftArgs> {
    /// Tokens to keep, if texts shift at all. The configuration changes nothing in modes that cannot shift.
    pub fn keep(&self, mode: &DecodeMode, context: usize) -> anyhow::Result<Option<usize>> {
        let keep = self.options.context_shift.filter(|_| self.is_typed || mode.restarts());
        shift(keep, mode, context)
    }
}

/// Refuses a shift that cannot be.
pub fn shift(
    keep: Option<usize>,
    mode: &DecodeMode,
    context: usize,
) -> anyhow::Result<Option<usize>> {
    match keep {
        Some(_) if !mode.restarts() => Err(usage(SubmitError::NoContextShift.to_string())),
        Some(keep) if keep >= context => {
            Err(usage(SubmitError::KeepsAll { keep, context }.to_string()))
        }
        _ => Ok(keep),
    }
}
