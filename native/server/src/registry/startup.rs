//! Builds the engine of a loaded model and starts its thread.

use super::ModelSource;
use crate::engine::grammars::{GrammarCompiler, Tokens};
use crate::engine::prompt_pacer::PromptPacer;
use crate::engine::served_model::{ModelSize, ServedModel};
use crate::engine::shared::EngineShared;
use crate::engine::slots::Slots;
use crate::engine::thread::EngineHandle;
use crate::operation::metrics::EngineMetrics;
use crate::operation::warmup::Warmup;
use crate::time::unix_now;
use anyhow::{Context, anyhow};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use wf_run_cli::args::{self, beyond_trained};
use wf_run_cli::config::{DryArgs, SamplingDefaults};
use wf_run_cli::exit::usage;
use wrinklefree::cache::{KvConfig, PAGE, StateShape};
use wrinklefree::decode::{PassCosts, SamplingParams};
use wrinklefree::engine::{Engine, EngineConfig};
use wrinklefree::format::GenerationDefaults;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::settings::{Reasoning, Settings};
use wrinklefree::text::{Tokenizer, describe_end_tokens};
use wrinklefree_easy::machine::Threads;
use wrinklefree_easy::models::chat_prompt::hears_system;
use wrinklefree_easy::models::fit::{KvFit, KvSize, MemoryNeed, NotEnoughMemory};
use wrinklefree_easy::models::{Loaded, pass_costs, rope_scaling};

/// Limits of the engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineLimits {
    /// Maximum number of positions per sequence; `None` for the model's default.
    pub context: Option<usize>,
    /// Number of tokens kept when a full context shifts; `None` if it must not shift.
    pub context_shift: Option<usize>,
    /// Maximum number of running sequences.
    pub sequences: usize,
    /// Maximum number of waiting requests.
    pub waiting: usize,
    /// Positions in the KV cache, over all sequences; `None` to size it by free memory.
    pub kv_tokens: Option<usize>,
    /// Bytes of recurrent states that the prefix cache keeps; `None` for a quarter of what they share with
    /// the KV cache.
    pub state_memory: Option<u64>,
    /// Types of the KV cache and the attention sparsity.
    pub kv: KvConfig,
    /// Maximum number of rows per forward pass.
    pub rows: usize,
    /// Longest time between two tokens of a stream that prompts next to it should cause; zero for any.
    pub token_time: Duration,
    /// Share cached prefixes between prompts.
    pub radix_cache: bool,
    /// Give answers in prompts the tokens that were generated.
    pub exact_history: bool,
    /// Read the known part of a conversation's next prompt when the engine has nothing else to do.
    pub read_ahead: bool,
}

/// Bytes that a model needs in addition to its weights to be loaded: a short KV cache and buffers.
const LEAST_ROOM: u64 = 8 << 20;

impl EngineLimits {
    /// Returns the configuration of an engine with `pages` pages.
    fn config(
        &self,
        max_context: usize,
        kv_pages: usize,
        (pass_costs, kv): (PassCosts, KvConfig),
    ) -> EngineConfig {
        EngineConfig {
            max_context,
            kv_pages,
            max_sequences: self.sequences,
            max_batch_tokens: self.rows,
            pass_costs,
            prefix_cache: self.radix_cache,
            kv,
        }
    }

    /// Returns the sizes of the KV cache, within `memory` bytes if there is such a limit.
    ///
    /// # Errors
    /// If they do not fit in memory.
    fn kv_size(&self, model: &Model, memory: Option<u64>) -> Result<KvFit, NotEnoughMemory> {
        let spec = model.spec();
        let default_context = spec.context_length;
        let size = KvSize {
            context: self.context,
            default_context,
            sequences: self.sequences,
            tokens: self.kv_tokens,
            rows: self.rows,
            // They count with the drafter's weights.
            draft_buffers: 0,
            // Without a prefix cache, none is kept.
            state_memory: if self.radix_cache { self.state_memory } else { Some(0) },
            kv: KvConfig { drafter: model.draft_layers(), ..self.kv },
        };
        let fit = size.fitting(spec, memory)?;
        let KvFit { context, kv, .. } = fit;
        if context < default_context && self.context.is_none() {
            let model = default_context;
            tracing::info!(context, model, "memory holds a shorter context than the model's");
        }
        match StateShape::of(spec) {
            Some(shape) if self.radix_cache => {
                let (states, each) = (kv.states.snapshots, shape.snapshot_bytes());
                let bytes = states.saturating_mul(each);
                tracing::info!(states, bytes, "the prefix cache keeps recurrent states");
            }
            None if self.state_memory.is_some() => tracing::warn!(
                "--state-memory has no effect: the model has no layers with linear attention"
            ),
            _ => {}
        }
        Ok(fit)
    }
}

/// Settings of the engine, from which [`start`](Self::start) builds it.
#[derive(Clone)]
pub struct EngineBuilder {
    /// Name of the model in requests; `None` for its own.
    pub name: Option<String>,
    /// Compute threads.
    pub threads: Threads,
    /// Limits of the engine.
    pub limits: EngineLimits,
    /// Decode settings for requests that do not set their own.
    pub settings: Settings,
    /// Sampling of requests that do not set their own.
    pub sampling: SamplingDefaults,
    /// Settings of DRY for requests that do not set their own.
    pub dry: DryArgs,
    /// Settings of reasoning for requests that do not set their own.
    pub reasoning: Reasoning,
    /// Work to do before the server is ready.
    pub warmup: Warmup,
    /// Bytes that the model may take; `None` for all that are left.
    pub memory: Option<u64>,
}

impl EngineBuilder {
    /// Returns the least number of bytes that a model with files of `weights` bytes needs.
    pub fn least_bytes(&self, weights: u64) -> u64 {
        weights.saturating_add(LEAST_ROOM)
    }

    /// Returns the settings for one of several models, which may take `memory` bytes.
    pub fn of_source(&self, source: &ModelSource, memory: Option<u64>) -> Self {
        let limits =
            EngineLimits { context: source.context.or(self.limits.context), ..self.limits };
        let name = Some(source.name.clone()).filter(|name| !name.is_empty());
        let draft_threshold = source.draft_threshold.or(self.settings.draft_threshold);
        let settings = Settings { draft_threshold, ..self.settings.clone() };
        Self { name: name.or(self.name.clone()), limits, settings, memory, ..self.clone() }
    }

    /// Builds the engine, warms it up and starts its thread. Events of requests are delivered by a task
    /// of `tasks`. Returns also the bytes that the model may take.
    ///
    /// # Errors
    /// If the model does not support the settings, or memory or a thread is missing.
    pub fn start(
        self,
        loaded: Loaded,
        runtime: Runtime,
        shared: &EngineShared,
        tasks: &Handle,
    ) -> anyhow::Result<(ServedModel, JoinHandle<()>, u64)> {
        let Self { name, threads, limits, settings, sampling, dry, reasoning, warmup, memory } =
            self;
        // Unsupported settings fail here and not in every request.
        let mode = settings.mode(&loaded.capabilities())?;
        let warnings = settings.warnings(&loaded.capabilities(), &mode);
        loaded.warnings.iter().chain(&warnings).for_each(|warning| tracing::warn!("{warning}"));
        tracing::info!("{}", describe_end_tokens(&loaded.end_tokens));
        let Loaded { name: own, model, tokenizer, template, defaults, dlm, time, .. } = loaded;
        let defaults = sampling.over(defaults)?;
        let tokenizer = checked_tokenizer(&own, tokenizer, &dry)?;
        let (name, isa) = (name.unwrap_or(own), runtime.kernels.isa().name());
        let (spec, activation_sparsity) = (model.spec().clone(), model.sparsity);
        let size = ModelSize::of(model.weights());
        let (layout, screened) = (model.layout(), model.is_screened());
        let (draft_net, drafter_config) = (model.draft_net(), model.drafter().cloned());
        let weights = size.bytes.saturating_add(drafter_bytes(&model, limits.rows));
        let memory = memory.map(|memory| memory.saturating_sub(weights));
        let KvFit { context, pages, kv } = limits.kv_size(&model, memory)?;
        log_limits(context, &model, template.as_ref());
        let model = allow(model, context);
        let long_rope = model.has_long_rope();
        let context_shift = args::shift(limits.context_shift, &mode, context)?;
        let EngineLimits { sequences, waiting, radix_cache, .. } = limits;
        let bytes = MemoryNeed::engine(&spec, &kv, pages, limits.rows).total() + weights;
        let pass_costs = pass_costs::measure(&model, &runtime, kv)?;
        let config = limits.config(context, pages, (pass_costs, kv));
        let mut engine = Engine::new(model, Some(tokenizer.clone()), runtime, config)?;
        warmup.run(&mut engine, &tokenizer, &mode, || shared.draining.load(Ordering::Relaxed))?;
        let context = engine.context();
        let limit = sequences.saturating_add(waiting);
        let pacer = PromptPacer::new(limits.token_time, limits.rows);
        let parts = (EngineMetrics::new(&shared.metrics), shared.turns.engine(), pacer);
        let (engine, thread) = EngineHandle::start(engine, sequences, limit, parts, tasks)
            .context("cannot start the engine's thread")?;
        let tokens = grammar_tokens(&tokenizer, spec.vocab_size, &defaults);
        let mut served = ServedModel {
            name,
            created: unix_now(),
            engine,
            tokenizer,
            template,
            defaults,
            dlm,
            settings,
            sampling: sampling.samplers(),
            dry,
            reasoning,
            vocab: spec.vocab_size,
            long_rope,
            draft_net,
            drafter: drafter_config,
            context,
            slots: Slots::new(sequences),
            kv,
            size,
            activation_sparsity,
            layout,
            screened,
            context_shift,
            isa,
            threads,
            grammars: GrammarCompiler::new(tokens),
            history: (radix_cache && limits.exact_history).then(Arc::default),
            reading_ahead: limits.read_ahead.then(|| Semaphore::new(1)),
            spec,
            files: None,
        };
        served.files = shared.disk_cache.as_ref().map(|cache| served.prompt_files(cache));
        log_ready(&served, pages, sequences, radix_cache, time);
        Ok((served, thread, bytes))
    }
}

/// Returns the tokens that grammars choose from.
fn grammar_tokens(
    tokenizer: &Arc<Tokenizer>,
    vocab: usize,
    defaults: &GenerationDefaults,
) -> Tokens {
    Tokens { tokenizer: Arc::clone(tokenizer), vocab, eos: defaults.eos.clone() }
}

/// Returns the tokenizer of the model `name`. The server's settings of DRY are checked with it, so that they
/// fail here and not in every request.
fn checked_tokenizer(
    name: &str,
    tokenizer: Option<Arc<Tokenizer>>,
    dry: &DryArgs,
) -> anyhow::Result<Arc<Tokenizer>> {
    let tokenizer = tokenizer.ok_or_else(|| {
        anyhow!("{name} has no tokenizer: put its tokenizer.json next to the weights")
    })?;
    let dry = dry.resolve(&tokenizer).map_err(|invalid| usage(invalid.message))?;
    let params = SamplingParams { dry, ..SamplingParams::default() };
    params.validate(usize::MAX).map_err(|error| usage(error.to_string()))?;
    Ok(tokenizer)
}

/// Allows texts of so many positions, and logs which factors a model with LongRoPE takes for them.
fn allow(model: Model, context: usize) -> Model {
    let (model, note) = rope_scaling::allow(model, context);
    if let Some(note) = note {
        tracing::info!("{note}");
    }
    model
}

/// Bytes of the drafter's weights, and of its buffers after passes of `rows` rows; 0 without one.
fn drafter_bytes(model: &Model, rows: usize) -> u64 {
    (model.drafter_bytes() + model.draft_buffer_bytes(rows)) as u64
}

/// Logs what a context and a chat template do not do as some may expect.
fn log_limits(context: usize, model: &Model, template: Option<&wrinklefree::text::ChatTemplate>) {
    let spec = model.spec();
    if let Some(drafter) = model.drafter() {
        tracing::info!("drafter: {}", drafter.describe());
    }
    if let Some(warning) = beyond_trained(context, spec) {
        tracing::warn!("{warning}");
    }
    if template.is_some_and(|template| !hears_system(template)) {
        tracing::info!("the chat template ignores system messages");
    }
}

/// Logs that a model serves requests, and with which limits.
fn log_ready(
    served: &ServedModel,
    pages: usize,
    sequences: usize,
    radix_cache: bool,
    load_time: Duration,
) {
    tracing::info!(
        model = served.name,
        isa = served.isa,
        threads = served.threads.decode,
        prefill_threads = served.threads.prefill,
        context = served.context,
        kv_tokens = pages * PAGE,
        kv_keys = served.kv.keys.name(),
        kv_values = served.kv.values.name(),
        attention = %served.kv.selection,
        sequences,
        radix_cache,
        seconds = load_time.as_secs_f64(),
        "ready"
    );
}
