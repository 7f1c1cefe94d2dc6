//! Loading of a model from its files.

use crate::error::Error;
use crate::threads;
use serde::Deserialize;
use std::sync::Arc;
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::cache::{
    KvConfig, KvPool, KvType, PAGE, PageSelection, SelectionError, StateLimits, StateShape,
};
use wrinklefree::decode::PassCosts;
use wrinklefree::engine::{Engine, EngineConfig};
use wrinklefree::format::{
    self, Checkpoint, DlmConfig, DraftLayout, File, GenerationDefaults, LoadOptions,
};
use wrinklefree::kernel::Kernels;
use wrinklefree::loader::WeightLoader;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::settings::ModelCapabilities;
use wrinklefree::ternary::Layout;
use wrinklefree::text::{ChatTemplate, EndToken, ModelText, TextOptions, Tokenizer};

/// Maximum number of rows of a forward pass: few enough that a pass ends soon on a slow machine.
const MAX_ROWS: usize = 128;
/// Default maximum length of a sequence, which bounds the memory of keys and values.
const DEFAULT_CONTEXT: usize = 2048;
/// Default number of sequences that run at the same time.
const DEFAULT_SEQUENCES: usize = 8;
/// Maximum bytes of the key-value cache beyond those of one sequence of full length.
const SHARED_KV_BYTES: usize = 64 << 20;
/// Bytes of recurrent states that limit the default number of sequences.
const STATE_BYTES: usize = 128 << 20;
/// Number of snapshots of recurrent states: the ends of two prompts and of their answers.
const SNAPSHOTS: usize = 4;

#[wasm_bindgen]
extern "C" {
    /// Returns milliseconds since an arbitrary time.
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn milliseconds() -> f64;
}

/// Options of a session.
#[derive(Deserialize)]
pub struct SessionOptions {
    /// Name of the model in messages.
    pub name: String,
    /// Number of threads of the pool, including the calling one.
    pub threads: usize,
    context: Option<usize>,
    sequences: Option<usize>,
    #[serde(default)]
    kv: KvOptions,
    /// True if control tokens that stand in messages act as such; else they are text there.
    #[serde(default)]
    allow_control_tokens: bool,
    /// Loads the block for multi-token prediction, if the model has one.
    #[serde(default)]
    mtp: bool,
    /// Layout of the drafter's blocks, instead of what its files state or let conclude.
    draft_layout: Option<String>,
    /// Names or ids of further tokens that end a text.
    #[serde(default)]
    stop_tokens: Vec<String>,
    /// Name of a known chat template, or Jinja.
    chat_template: Option<String>,
    /// False keeps chat templates that are known to be wrong.
    template_fixes: Option<bool>,
}

impl SessionOptions {
    fn draft_layout(&self) -> Result<Option<DraftLayout>, Error> {
        let Some(name) = &self.draft_layout else { return Ok(None) };
        let found = DraftLayout::ALL.into_iter().find(|layout| layout.name() == name);
        let names = DraftLayout::ALL.map(DraftLayout::name).join(" or ");
        let wrong = || Error::bad_request(format!("draft_layout: expected {names}, got {name:?}"));
        found.ok_or_else(wrong).map(Some)
    }

    fn text(&self) -> TextOptions {
        TextOptions {
            allow_control_tokens: self.allow_control_tokens,
            stop_tokens: self.stop_tokens.clone(),
            chat_template: self.chat_template.clone(),
            template_fixes: self.template_fixes.unwrap_or(true),
        }
    }
}

/// Options of the key-value cache by name. A missing one is that of [`KvConfig::default()`].
#[derive(Default, Deserialize)]
struct KvOptions {
    keys: Option<String>,
    values: Option<String>,
    attention: Option<String>,
}

impl KvOptions {
    fn config(&self) -> Result<KvConfig, Error> {
        let parse = |name: &Option<String>| match name {
            None => Ok(KvConfig::default().keys),
            Some(name) => KvType::parse(name).ok_or_else(|| {
                let names = KvType::ALL.map(KvType::name).join(", ");
                Error::bad_request(format!("kvType: expected one of {names}, got {name:?}"))
            }),
        };
        let selection = self.attention.as_deref().map_or(Ok(PageSelection::Dense), str::parse);
        let selection =
            selection.map_err(|e: SelectionError| Error::bad_request(format!("attention: {e}")))?;
        let (keys, values) = (parse(&self.keys)?, parse(&self.values)?);
        Ok(KvConfig { keys, values, selection, ..KvConfig::default() })
    }
}

/// A loaded model with its engine.
pub struct LoadedModel {
    pub name: String,
    pub threads: usize,
    pub isa: &'static str,
    pub engine: Engine,
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub template: Option<ChatTemplate>,
    pub defaults: GenerationDefaults,
    /// Tokens that end a text, with the reasons.
    pub end_tokens: Vec<EndToken>,
    /// Oddities of the files.
    pub notes: Vec<String>,
    pub dlm: Option<DlmConfig>,
    /// Bytes of the model's files.
    pub bytes: usize,
    /// Number of subnormal weights that loading has set to zero.
    pub flushed: usize,
    /// Configuration of the key-value cache.
    pub kv: KvConfig,
    /// Bytes of the key-value cache.
    pub kv_bytes: usize,
}

impl LoadedModel {
    /// Loads a model from its files, and a drafter from its own, and starts an engine.
    pub fn open(
        files: Vec<File>,
        drafter: Vec<File>,
        options: SessionOptions,
    ) -> Result<Self, Error> {
        let kv = options.kv.config()?;
        let layout = options.draft_layout()?;
        let bytes = files.iter().chain(&drafter).map(|f| f.bytes.len()).sum();
        // A drafter replaces the model's own block.
        let load = LoadOptions { mtp: options.mtp && drafter.is_empty() };
        let checkpoint = format::load_with(files, load, &mut WeightLoader::alone())?;
        if let Some(fault) = checkpoint.mtp_fault {
            return Err(fault.into());
        }
        let Checkpoint {
            spec, weights, text, mut generation, dlm, flushed, notes: of_files, ..
        } = checkpoint;
        let mask = dlm.as_ref().and_then(|dlm| dlm.mask_token_id);
        let ModelText { tokenizer, template, end_tokens, mut notes } =
            ModelText::open(text, &generation.eos, mask, &options.text())?;
        notes.extend(of_files);
        generation.eos = end_tokens.iter().map(|end| end.id).collect();
        let kernels = Kernels::best();
        let runtime = Runtime { kernels, thread_pool: threads::thread_pool(options.threads)? };
        let model = Model::new(spec, weights)?.with_int8_rotated_activations();
        // Memory is scarcer than arithmetic in a tab.
        let single = model.has_layout(Layout::OneBit) && kernels.reads(Layout::OneBit);
        let weights_layout = if single { Layout::OneBit } else { Layout::TwoBit };
        let mut model = model.with_layout(weights_layout, &runtime);
        if !drafter.is_empty() {
            let (with, note) = with_drafter(model, drafter, layout)?;
            model = with;
            notes.extend(note);
        }
        if let Some(tokenizer) = &tokenizer {
            tokenizer.check(model.spec().vocab_size)?;
        }
        let drafts = dlm.as_ref().is_some_and(|d| d.ar_path) || model.draft_net().is_some();
        let kv = KvConfig { drafter: model.draft_layers(), ..kv };
        let pass_costs = if drafts {
            model.pass_costs(&runtime, kv, || milliseconds() / 1e3)?
        } else {
            PassCosts::default()
        };
        let config = engine_config(&model, &options, kv, pass_costs);
        let model = model.with_context(config.max_context);
        let kv_bytes = KvPool::bytes(model.spec(), config.kv_pages, &config.kv)
            + KvPool::state_bytes(model.spec(), &config.kv);
        let engine = Engine::new(model, tokenizer.clone(), runtime, config)?;
        Ok(Self {
            name: options.name,
            threads: options.threads.max(1),
            isa: kernels.isa().name(),
            engine,
            tokenizer,
            template,
            defaults: generation,
            end_tokens,
            notes,
            dlm,
            bytes,
            flushed,
            kv,
            kv_bytes,
        })
    }

    /// Returns the properties that decide which decode modes are possible.
    pub fn capabilities(&self) -> ModelCapabilities<'_> {
        ModelCapabilities {
            name: &self.name,
            dlm: self.dlm.as_ref(),
            tokenizer: self.tokenizer.as_deref(),
            vocab: self.engine.model().spec().vocab_size,
            rows: MAX_ROWS,
            draft_net: self.engine.model().draft_net(),
        }
    }

    /// Returns the tokenizer, or an error if the files contain none.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_deref().ok_or_else(|| {
            let name = &self.name;
            Error::new(
                "no_tokenizer",
                format!("{name} has no tokenizer: add its tokenizer.json to the files"),
            )
        })
    }
}

/// Adds the drafter of these files to a model. Returns also a note if its layout is not stated.
fn with_drafter(
    model: Model,
    files: Vec<File>,
    layout: Option<DraftLayout>,
) -> Result<(Model, Option<String>), Error> {
    let mut checkpoint = format::load_drafter(files, &mut WeightLoader::alone())?;
    if let Some(layout) = layout {
        checkpoint = checkpoint.with_layout(layout)?;
    }
    let config = &checkpoint.config;
    let note = (!config.layout_stated).then(|| format!("the drafter: {}", config.describe()));
    Ok((model.with_drafter(checkpoint)?, note))
}

/// Sizes of the engine: pages for one sequence of full length, and more within [`SHARED_KV_BYTES`].
fn engine_config(
    model: &Model,
    options: &SessionOptions,
    kv: KvConfig,
    pass_costs: PassCosts,
) -> EngineConfig {
    let trained = model.spec().context_length;
    let context = options.context.unwrap_or(DEFAULT_CONTEXT).min(trained).max(1);
    let fitting = |shape: StateShape| (STATE_BYTES / shape.bytes().max(1)).min(DEFAULT_SEQUENCES);
    let default = StateShape::of(model.spec()).map_or(DEFAULT_SEQUENCES, fitting);
    let sequences = options.sequences.unwrap_or(default).max(1);
    let one_sequence = context.div_ceil(PAGE);
    let shared = SHARED_KV_BYTES / KvPool::bytes(model.spec(), 1, &kv).max(1);
    let kv = KvConfig { states: StateLimits { sequences, snapshots: SNAPSHOTS }, ..kv };
    EngineConfig {
        max_context: context,
        kv_pages: (one_sequence * sequences).min(one_sequence + shared),
        max_sequences: sequences,
        max_batch_tokens: MAX_ROWS,
        pass_costs,
        prefix_cache: true,
        kv,
    }
}
