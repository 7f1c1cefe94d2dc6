//! Builds an engine: opens the model on the engine's thread.

use crate::Error;
use crate::engine::{Engine, Served, Shared};
use crate::machine::{self, Threads, cores};
use crate::models::engine::MAX_BATCH_TOKENS;
use crate::models::fit::{KvFit, KvSize};
use crate::models::{DrafterOptions, Loaded, NoTokenizer, OpenOptions, pass_costs, rope_scaling};
use crate::worker::Worker;
use std::ffi::OsString;
#[cfg(feature = "grammar")]
use std::sync::OnceLock;
use std::sync::{Arc, mpsc};
use std::thread;
use wrinklefree::cache::{KvConfig, KvType};
use wrinklefree::engine::{Engine as CoreEngine, EngineConfig};
use wrinklefree::format::DraftLayout;
use wrinklefree::model::Model;
use wrinklefree::settings::{Mode, Settings};

/// Default number of positions in a sequence, if the model was trained for as many.
const CONTEXT: usize = 4096;
/// Default number of sequences that run at the same time.
const SEQUENCES: usize = 4;

/// Settings of an [`Engine`]; made by [`Engine::builder`].
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    open: OpenOptions,
    threads: Threads,
    context: Option<usize>,
    max_sequences: usize,
    kv: KvConfig,
    settings: Settings,
}

impl EngineBuilder {
    pub(crate) fn new(model: Option<OsString>) -> Self {
        Self {
            open: OpenOptions { model, ..OpenOptions::default() },
            threads: Threads::all(cores::count()),
            context: None,
            max_sequences: SEQUENCES,
            kv: KvConfig::default(),
            settings: Settings::default(),
        }
    }

    /// Sets the number of threads that compute; by default one for each core.
    #[must_use]
    pub fn threads(mut self, count: usize) -> Self {
        let count = count.max(1);
        (self.threads.decode, self.threads.prefill) = (count, count);
        self
    }

    /// Keeps each compute thread on a CPU of its own.
    #[must_use]
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.threads.pinned = pinned;
        self
    }

    /// Sets the maximum number of positions (tokens) in a sequence, prompt and output together. The
    /// default is the length that the model was trained for, at most 4,096.
    #[must_use]
    pub fn context(mut self, positions: usize) -> Self {
        self.context = Some(positions.max(1));
        self
    }

    /// Sets the maximum number of sequences that run at the same time; others wait. The default
    /// is 4. The KV cache grows with it, up to half of the free memory.
    #[must_use]
    pub fn max_sequences(mut self, count: usize) -> Self {
        self.max_sequences = count.max(1);
        self
    }

    /// Sets the storage type of keys and values; bf16 by default.
    #[must_use]
    pub fn kv_dtype(mut self, dtype: KvType) -> Self {
        (self.kv.keys, self.kv.values) = (dtype, dtype);
        self
    }

    /// Sets the decode mode of requests that do not set their own.
    #[must_use]
    pub fn decode_mode(mut self, mode: Mode) -> Self {
        self.settings.decode_mode = Some(mode);
        self
    }

    /// Sets all decode settings of requests that do not set their own.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Lets control tokens that stand in messages (`<|eot_id|>`) act as such. By default they are text
    /// there, so that a message cannot forge turns.
    #[must_use]
    pub fn allow_control_tokens(mut self, allowed: bool) -> Self {
        self.open.allow_control_tokens = allowed;
        self
    }

    /// Adds a token that ends a text, by its exact name or its id.
    #[must_use]
    pub fn stop_token(mut self, token: impl Into<String>) -> Self {
        self.open.stop_tokens.push(token.into());
        self
    }

    /// Sets the chat template instead of that of the model's files: a known name (`chatml`), a file, or
    /// Jinja.
    #[must_use]
    pub fn chat_template(mut self, template: impl Into<String>) -> Self {
        self.open.chat_template = Some(template.into());
        self
    }

    /// Sets a drafter for this model (DFlash, DSpark): a GGUF file, a directory, or a hub id (feature `hub`).
    /// It drafts for requests that do not set another `draft` or mode; their text does not change.
    #[must_use]
    pub fn draft_model(mut self, model: impl Into<OsString>) -> Self {
        let layout = self.open.drafter.and_then(|drafter| drafter.layout);
        self.open.drafter = Some(DrafterOptions { model: model.into(), layout });
        self
    }

    /// Sets the layout of the drafter's blocks, instead of what its files state or let conclude. Call it
    /// after [`draft_model`](Self::draft_model).
    #[must_use]
    pub fn draft_layout(mut self, layout: DraftLayout) -> Self {
        if let Some(drafter) = &mut self.open.drafter {
            drafter.layout = Some(layout);
        }
        self
    }

    /// Sets how weights and logits are used; the model itself stays.
    #[must_use]
    pub fn open_options(mut self, options: OpenOptions) -> Self {
        self.open = OpenOptions { model: self.open.model, ..options };
        self
    }

    /// Opens the model and starts the engine's thread.
    ///
    /// # Errors
    /// If the model cannot be opened or does not support the settings, or if memory or threads are
    /// missing.
    pub fn build(self) -> Result<Engine, Error> {
        let (commands, receiver) = mpsc::channel();
        let (ready, opened) = mpsc::sync_channel(1);
        // The model is opened on this thread because pinning holds for the calling thread.
        let run = move || match self.open() {
            Ok((engine, served)) => {
                if ready.send(Ok(served)).is_ok() {
                    Worker::new(engine).run(&receiver);
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        let thread = thread::Builder::new().name("wf-engine".into()).spawn(run);
        let thread = thread.map_err(|error| Error::Threads(error.to_string()))?;
        let served = opened.recv().map_err(|_| Error::Stopped)??;
        Ok(Engine { shared: Arc::new(Shared::new(commands, thread, served)) })
    }

    /// Opens the model and makes the core's engine.
    fn open(&self) -> Result<(CoreEngine, Served), Error> {
        let runtime = machine::runtime(self.threads);
        let runtime = runtime.map_err(|error| Error::Threads(format!("{error:#}")))?;
        let drafter = self.open.drafter.clone();
        let open = OpenOptions {
            mtp: self.settings.may_use_mtp() && drafter.is_none(),
            drafter: drafter.filter(|_| self.settings.may_use_draft_model()),
            ..self.open.clone()
        };
        let loaded = Loaded::open(&open, &runtime, &mut ()).map_err(|error| Error::Open {
            model: self
                .open
                .model
                .as_ref()
                .map_or("the embedded model".into(), |m| m.to_string_lossy().into()),
            cause: Arc::new(error),
        })?;
        let mode = self.settings.mode(&loaded.capabilities())?;
        let mut warnings = self.settings.warnings(&loaded.capabilities(), &mode);
        let Loaded { name, model, tokenizer, template, defaults, dlm, warnings: more, .. } = loaded;
        warnings.splice(0..0, more);
        let tokenizer = tokenizer.ok_or_else(|| NoTokenizer { model: name.clone() })?;
        let KvFit { context: max_context, pages: kv_pages, kv } =
            self.kv_size(&model).fitting(model.spec(), None)?;
        let (model, rope) = rope_scaling::allow(model, max_context);
        let pass_costs = pass_costs::measure(&model, &runtime, kv);
        let config = EngineConfig {
            max_context,
            kv_pages,
            max_sequences: self.max_sequences,
            max_batch_tokens: MAX_BATCH_TOKENS.max(mode.rows()),
            pass_costs: pass_costs.map_err(|error| Error::RowCost(format!("{error:#}")))?,
            prefix_cache: true,
            kv,
        };
        let draft_net = model.draft_net();
        let (vocab, hidden) = (model.spec().vocab_size, model.spec().hidden_size);
        let recurrent = model.spec().linear_attention.is_some();
        warnings.extend(rope.into_iter().chain(rope_scaling::beyond(max_context, model.spec())));
        let engine = CoreEngine::new(model, Some(tokenizer.clone()), runtime, config)?;
        let served = Served {
            name,
            tokenizer,
            template,
            defaults,
            dlm,
            settings: self.settings.clone(),
            draft_net,
            vocab,
            hidden,
            recurrent,
            context: engine.context(),
            warnings,
            #[cfg(feature = "grammar")]
            grammars: OnceLock::new(),
        };
        Ok((engine, served))
    }

    fn kv_size(&self, model: &Model) -> KvSize {
        let spec = model.spec();
        KvSize {
            context: self.context,
            default_context: CONTEXT.min(spec.context_length),
            sequences: self.max_sequences,
            tokens: None,
            rows: MAX_BATCH_TOKENS,
            draft_buffers: model.draft_buffer_bytes(MAX_BATCH_TOKENS) as u64,
            state_memory: None,
            kv: KvConfig { drafter: model.draft_layers(), ..self.kv },
        }
    }
}
