//! From a loaded model to an engine that answers.

use super::rehearsal::Rehearsal;
use super::state::{Ready, Server, now};
use super::worker::Worker;
use crate::cli::args;
use crate::machine::{self, Threads};
use crate::models::chat_prompt::hears_system;
use crate::models::rope_scaling::beyond;
use crate::models::{Loaded, row_cost};
use anyhow::{Context, anyhow};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use wrinklefree::cache::{KvConfig, KvPool, PAGE};
use wrinklefree::engine::{Engine, EngineConfig};
use wrinklefree::format::Spec;
use wrinklefree::model::Runtime;
use wrinklefree::settings::Settings;

/// Sizes of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Positions of a sequence, if not the usual.
    pub context: Option<usize>,
    /// Tokens that stay when a sequence's context is full, if it goes on then.
    pub shift: Option<usize>,
    /// Sequences at the same time.
    pub sequences: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Positions of all sequences together, if not as many as fit.
    pub kv_tokens: Option<usize>,
    /// What is kept of keys and values, and what is read of them.
    pub kv: KvConfig,
    /// Rows of a forward pass.
    pub rows: usize,
    /// Prompts share what was computed for the same beginning.
    pub radix_cache: bool,
}

impl Sizes {
    /// Positions that a sequence may have, and pages of all sequences together.
    fn room(&self, spec: &Spec) -> (usize, usize) {
        let context = args::context(self.context, spec);
        let each = context.div_ceil(PAGE);
        let pages = match self.kv_tokens {
            Some(tokens) => tokens.div_ceil(PAGE),
            // Half of what is free now, but enough for one sequence.
            None => {
                let wanted = self.sequences.saturating_mul(each);
                let page = KvPool::bytes(spec, 1, &self.kv) as u64;
                let fit = machine::free_memory().map_or(wanted, |free| (free / 2 / page) as usize);
                wanted.min(fit.max(each))
            }
        };
        (context.min(pages.saturating_mul(PAGE)), pages)
    }
}

/// How the engine is to be started.
pub struct Launch {
    /// The name that requests know the model by, if not its own.
    pub name: Option<String>,
    /// Threads that compute.
    pub threads: Threads,
    /// Sizes of the engine.
    pub sizes: Sizes,
    /// How answers are decoded where a request does not say.
    pub settings: Settings,
    /// What is done before anybody may ask.
    pub rehearsal: Rehearsal,
}

impl Launch {
    /// Starts the engine's thread and tells the server that it is ready. Updates of requests are handed
    /// out in `tasks`.
    ///
    /// # Errors
    /// When the model cannot do what is asked of it, or there is no memory or thread for it.
    pub fn start(
        self,
        loaded: Loaded,
        runtime: Runtime,
        (server, tasks): (&Server, &Handle),
    ) -> anyhow::Result<JoinHandle<()>> {
        let Self { name, threads, sizes, settings, rehearsal } = self;
        // What cannot be decoded is said now and not to every request.
        let mode = settings.mode(&loaded.capabilities())?;
        for warning in
            loaded.warnings.iter().chain(&settings.warnings(&loaded.capabilities(), &mode))
        {
            tracing::warn!("{warning}");
        }
        let Loaded { name: own, model, tokenizer, template, defaults, dlm, time, .. } = loaded;
        let Some(tokenizer) = tokenizer else {
            return Err(anyhow!(
                "{own} has no tokenizer: put its tokenizer.json beside the weights"
            ));
        };
        let (name, isa) = (name.unwrap_or(own), runtime.kernels.isa().name());
        let (spec, activation_sparsity) = (model.spec().clone(), model.sparsity);
        let (tight, screened) = (model.is_tight(), model.is_screened());
        let (context, pages) = sizes.room(&spec);
        if let Some(warning) = beyond(context, &spec) {
            tracing::warn!("{warning}");
        }
        if template.as_ref().is_some_and(|template| !hears_system(template)) {
            tracing::info!("the model's chat template leaves system messages out");
        }
        let context_shift = args::shift(sizes.shift, &mode, context)?;
        let Sizes { sequences, waiting, rows, radix_cache, kv, .. } = sizes;
        let row_cost = row_cost::measure(&model, &runtime, kv)?;
        let config = EngineConfig {
            max_context: context,
            kv_pages: pages,
            max_sequences: sequences,
            max_batch_tokens: rows,
            row_cost,
            prefix_cache: radix_cache,
            kv,
        };
        let mut engine = Engine::new(model, Some(tokenizer.clone()), runtime, config)?;
        let ends = || server.draining.load(Ordering::Relaxed);
        rehearsal.run(&mut engine, &tokenizer, &mode, ends)?;
        let context = engine.context();
        let most = sequences.saturating_add(waiting);
        let (worker, thread) = Worker::start(engine, most, server.metrics.clone(), tasks)
            .context("cannot start the engine's thread")?;
        let ready = Ready {
            name,
            created: now(),
            worker,
            tokenizer,
            template,
            defaults,
            dlm,
            settings,
            vocab: spec.vocab_size,
            hidden: spec.hidden_size,
            context,
            kv,
            rope: spec.rope,
            activation_sparsity,
            tight,
            screened,
            context_shift,
            isa,
            threads,
            grammars: OnceLock::new(),
        };
        tracing::info!(
            model = ready.name,
            isa,
            threads = threads.decode,
            prefill_threads = threads.prefill,
            context,
            kv_tokens = pages * PAGE,
            kv_keys = kv.keys.name(),
            kv_values = kv.values.name(),
            attention = %kv.selection,
            sequences,
            radix_cache,
            seconds = time.as_secs_f64(),
            "ready"
        );
        let set = server.ready.set(Arc::new(ready));
        assert!(set.is_ok(), "one model is loaded");
        Ok(thread)
    }
}
