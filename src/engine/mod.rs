//! The engine: continuous batching of requests on one model.
//!
//! A caller [submits](Engine::submit) requests, calls [`Engine::step`] in a loop, and
//! [polls](Engine::poll) the events. A step is one forward pass over the rows of all sequences that are
//! due. The engine has no thread, clock, file or socket; these belong to the caller.
//!
//! The output of a request does not depend on the requests next to it.

mod drafts;
mod pending_states;
mod request;
mod schedule;
mod sequence;
mod sharing;
mod snapshots;

pub use crate::decode::{FinishReason, NOT_FINITE, Slot};
pub use request::{EngineStats, Event, EventKind, MessageEnds, Request, SeqId, Step, SubmitError};

use crate::cache::{
    KvConfig, KvPool, Namespace, NoMemory, PAGE, SaltHash, SavedError, SavedPrefix, StateLimits,
};
use crate::decode::{DecodeMode, DraftCounts, DraftNet, DraftNetKind, PassCosts};
use crate::model::{Model, Output, Runtime, Workspace};
use crate::text::Tokenizer;
use schedule::{Scheduler, StepPlan};
use sequence::Sequence;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Time of a step for grammars. The last one that begins in time may take longer.
const GRAMMAR_TIME: Duration = Duration::from_millis(20);

/// Number of drafts from which a drafter is judged.
const JUDGED_DRAFTS: u64 = 64;

/// Limits and sizes of an engine.
///
/// The default has pages for one sequence of 2,048 positions, which up to 16 sequences share, and passes
/// of up to 512 rows. A program that serves several long sequences at a time needs more pages.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Maximum number of positions in a sequence, prompt and output together.
    pub max_context: usize,
    /// Number of KV pages, each of [`PAGE`] positions, for all sequences together.
    pub kv_pages: usize,
    /// Maximum number of sequences that run at the same time; others wait.
    pub max_sequences: usize,
    /// Maximum number of rows (tokens) in one forward pass.
    pub max_batch_tokens: usize,
    /// Costs of passes by their number of rows. The length of drafts depends on them, unless a request has a
    /// cost of a row of its own. [`Model::pass_costs`] measures them.
    pub pass_costs: PassCosts,
    /// Keeps the keys and values of finished sequences, for texts with the same beginning.
    pub prefix_cache: bool,
    /// Storage types of keys and values, and the page selection.
    pub kv: KvConfig,
}

impl Default for EngineConfig {
    fn default() -> Self {
        let max_context = 2048;
        Self {
            max_context,
            kv_pages: max_context / PAGE,
            max_sequences: 16,
            max_batch_tokens: 512,
            pass_costs: PassCosts::default(),
            prefix_cache: true,
            kv: KvConfig::default(),
        }
    }
}

impl EngineConfig {
    /// The configuration of its pool: a recurrent state for each running sequence.
    fn pool(&self) -> KvConfig {
        let states = StateLimits { sequences: self.max_sequences.max(1), ..self.kv.states };
        KvConfig { states, ..self.kv }
    }

    /// Maximum number of positions in a sequence: the configured one, or the capacity of all pages.
    fn context(&self) -> usize {
        self.max_context.min(self.kv_pages * PAGE)
    }

    /// Maximum number of positions in a sequence of this mode: block diffusion needs whole blocks.
    fn context_of(&self, mode: &DecodeMode) -> usize {
        let all = self.kv_pages * PAGE;
        let whole = match mode {
            DecodeMode::Diffusion(p) => all / p.block.max(1) * p.block,
            _ => all,
        };
        self.max_context.min(whole)
    }
}

/// Runs requests on one model; see the [module](self).
pub struct Engine {
    model: Model,
    tokenizer: Option<Arc<Tokenizer>>,
    runtime: Runtime,
    kv: KvPool,
    workspace: Workspace,
    scheduler: Scheduler,
    /// Number of requests submitted so far.
    submitted: u64,
    /// True after the report of [`weak_drafter`](Self::weak_drafter) that drafts are wrong.
    weakness_reported: bool,
    /// True after its report that a text is longer than the drafter's.
    length_reported: bool,
}

impl Engine {
    /// Makes an engine. Text and stop strings need a `tokenizer`; without one, events have token ids only.
    ///
    /// # Errors
    /// [`NoMemory`] if the KV pages cannot be allocated.
    pub fn new(
        model: Model,
        tokenizer: Option<Arc<Tokenizer>>,
        runtime: Runtime,
        config: EngineConfig,
    ) -> Result<Self, NoMemory> {
        let pool = KvConfig { drafter: model.draft_layers(), ..config.pool() };
        let kv = KvPool::new(model.spec(), config.kv_pages, pool)?;
        let model = model.with_supported_layout(&runtime);
        Ok(Self {
            model,
            tokenizer,
            runtime,
            kv,
            workspace: Workspace::default(),
            scheduler: Scheduler::new(config),
            submitted: 0,
            weakness_reported: false,
            length_reported: false,
        })
    }

    /// Drops all sequences and returns the model and the tokenizer.
    pub fn into_parts(self) -> (Model, Option<Arc<Tokenizer>>) {
        (self.model, self.tokenizer)
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_deref()
    }

    /// Returns the number of sequences and the use of KV pages at this moment.
    pub fn stats(&self) -> EngineStats {
        self.scheduler.stats(&self.kv)
    }

    /// Costs of passes by which the length of drafts is chosen.
    #[must_use]
    pub fn pass_costs(&self) -> PassCosts {
        self.scheduler.config().pass_costs
    }

    /// Returns the maximum number of positions (tokens) in a sequence: the configured one, or the
    /// capacity of all pages.
    pub fn context(&self) -> usize {
        self.scheduler.config().context()
    }

    /// Returns the prompt cache's keys and values of the first tokens, for requests with this salt and this
    /// [block](crate::decode::DecodeMode::clean_block). A model with recurrent states continues only where
    /// one is kept, so the prefix ends at the last of them.
    #[must_use]
    pub fn save_prefix(&self, (salt, block): (&str, usize), tokens: &[u32]) -> SavedPrefix {
        self.kv.save(&Namespace { salt: SaltHash::new(salt), block }, tokens)
    }

    /// Puts keys, values and states of the first tokens into the prompt cache, as
    /// [`save_prefix`](Self::save_prefix) returned them for the same model and configuration. Returns the
    /// number of positions.
    ///
    /// # Errors
    /// [`SavedError`] if the bytes have another length, or the cache has no room.
    pub fn restore_prefix(
        &mut self,
        (salt, block): (&str, usize),
        tokens: &[u32],
        saved: &SavedPrefix,
    ) -> Result<usize, SavedError> {
        self.kv.restore(&Namespace { salt: SaltHash::new(salt), block }, tokens, saved)
    }

    /// Returns some of the first pages of a text in the prompt cache, as [`save_prefix`](Self::save_prefix)
    /// does; `None` if they are not cached any more.
    #[must_use]
    pub fn save_pages(
        &self,
        (salt, block): (&str, usize),
        tokens: &[u32],
        pages: Range<usize>,
    ) -> Option<Vec<u8>> {
        self.kv.save_pages(&Namespace { salt: SaltHash::new(salt), block }, tokens, pages)
    }

    /// Returns the recurrent states that the prompt cache keeps at the end of a text.
    #[must_use]
    pub fn save_states(&self, (salt, block): (&str, usize), tokens: &[u32]) -> Option<Vec<u8>> {
        self.kv.save_states(&Namespace { salt: SaltHash::new(salt), block }, tokens)
    }

    /// Puts the pages of a text from page `first` on into the prompt cache, as
    /// [`save_pages`](Self::save_pages) returned them.
    ///
    /// # Errors
    /// [`SavedError`] if the bytes have another length, earlier pages are not cached, or the cache has no
    /// room.
    pub fn restore_pages(
        &mut self,
        (salt, block): (&str, usize),
        tokens: &[u32],
        first: usize,
        bytes: &[u8],
    ) -> Result<(), SavedError> {
        let namespace = Namespace { salt: SaltHash::new(salt), block };
        self.kv.restore_pages(&namespace, tokens, first, bytes)
    }

    /// Puts recurrent states at the end of a text into the prompt cache, as
    /// [`save_states`](Self::save_states) returned them.
    ///
    /// # Errors
    /// [`SavedError`] if the bytes have another length, pages of the text are not cached, or the states that
    /// are kept are worth more.
    pub fn restore_states(
        &mut self,
        (salt, block): (&str, usize),
        tokens: &[u32],
        bytes: &[u8],
    ) -> Result<(), SavedError> {
        self.kv.restore_states(&Namespace { salt: SaltHash::new(salt), block }, tokens, bytes)
    }

    /// Returns the number of first positions of a text that the prompt cache has, and the number from which a
    /// request would continue. They differ for models with recurrent states.
    #[must_use]
    pub fn cached_prefix(&self, (salt, block): (&str, usize), tokens: &[u32]) -> (usize, usize) {
        let namespace = Namespace { salt: SaltHash::new(salt), block };
        let continued = self.kv.cached_prefix(&namespace, tokens).unwrap_or(0);
        (self.kv.known_prefix(&namespace, tokens), continued)
    }

    /// Drops the first tokens from the prompt cache, unless a running sequence or another cached text
    /// needs them. Returns the number of positions.
    pub fn forget_prefix(&mut self, (salt, block): (&str, usize), tokens: &[u32]) -> usize {
        self.kv.forget(&Namespace { salt: SaltHash::new(salt), block }, tokens)
    }

    /// Returns the positions of a text where a request could continue: those of its kept recurrent states, or
    /// the end of its cached pages for a model without such states.
    pub fn continuations(&self, (salt, block): (&str, usize), tokens: &[u32]) -> Vec<usize> {
        self.kv.continuations(&Namespace { salt: SaltHash::new(salt), block }, tokens)
    }

    /// Queues a request. Its output ends when the context is full, whatever `max_tokens` is, unless it
    /// has a [context shift](Request::context_shift).
    ///
    /// # Errors
    /// [`SubmitError`] if the request is invalid or can never run.
    pub fn submit(&mut self, mut request: Request) -> Result<SeqId, SubmitError> {
        let config = *self.scheduler.config();
        let (vocab, context) = (self.model.spec().vocab_size, config.context_of(&request.mode));
        if self.kv.state_shape().is_some() {
            request.check_causal()?;
        }
        let kind = |net: DraftNet| net.kind;
        if let Some(wanted) = request.mode.draft_net().map(kind)
            && self.model.draft_net().map(kind) != Some(wanted)
        {
            return Err(match wanted {
                DraftNetKind::Mtp => SubmitError::NoMtp,
                DraftNetKind::Blocks => SubmitError::NoDrafter,
            });
        }
        if let Some(net) = self.model.draft_net() {
            request.mode.measured(net);
        }
        request.check(vocab, context, config.max_batch_tokens, self.tokenizer.is_some())?;
        let id = SeqId(self.submitted);
        self.submitted += 1;
        let tokenizer = self.tokenizer.as_deref();
        self.scheduler.enqueue(Sequence::new(id, request, context, tokenizer, config.pass_costs));
        Ok(id)
    }

    /// Takes a sequence out of the queue. If it runs, it is preempted: it gives its pages back. It gets
    /// no rows until it is [resumed](Self::resume), and its output does not change. Does nothing if it
    /// has ended or is parked already.
    pub fn park(&mut self, id: SeqId) {
        self.scheduler.park(id, &mut self.kv);
    }

    /// Puts a parked sequence at the end of the queue. It continues where it was.
    pub fn resume(&mut self, id: SeqId) {
        self.scheduler.resume(id);
    }

    /// Sets the maximum number of rows of prompts in a pass next to sequences that decode; at least 1. So a
    /// caller with a clock bounds the time that these sequences wait.
    pub fn set_prompt_rows(&mut self, rows: usize) {
        self.scheduler.prompt_rows = rows.max(1);
    }

    /// Sets the maximum number of rows of prompts in a pass without sequences that decode; at least 1. So a
    /// caller can end prompts that nobody waits for soon after a request arrives. By default there is no
    /// maximum.
    pub fn set_lone_prompt_rows(&mut self, rows: usize) {
        self.scheduler.lone_prompt_rows = rows.max(1);
    }

    /// Runs one forward pass over all rows that are due. Before it, the net that drafts does so for the
    /// sequences that want it.
    pub fn step(&mut self) -> Step {
        let Self { model, runtime, kv, workspace, scheduler, .. } = self;
        let mut budget = GRAMMAR_TIME;
        scheduler.prepare(&mut budget, kv);
        while scheduler.is_blocked() {
            budget = GRAMMAR_TIME;
            scheduler.prepare(&mut budget, kv);
        }
        scheduler.draft(model, runtime, kv, workspace);
        let plan = scheduler.schedule(kv);
        let StepPlan { spans, keeps, scheduled, output, prefill_rows, decode_rows } = plan;
        if spans.is_empty() {
            return Step::Idle;
        }
        let (logits, states) = match output {
            Output::Logits => model.forward_keeping(runtime, kv, &spans, &keeps, workspace),
            Output::Hidden => (model.compute(runtime, kv, &spans, workspace, output), &[][..]),
        };
        scheduler.keep(&scheduled, states, model.state_width());
        scheduler.accept(&scheduled, logits, kv);
        scheduler.guide(&mut budget, kv);
        Step::Ran { prefill_rows, decode_rows }
    }

    /// Returns, once each, that a text is longer than those that the drafter was trained for, and that the
    /// drafter's tokens are nearly always wrong, with how it was read. Then it belongs to another model, chat
    /// template or layout, or its files were read in a way that it was not trained for.
    pub fn weak_drafter(&mut self) -> Option<String> {
        let (config, trained) = (self.model.drafter()?, self.model.drafter_context()?);
        if !self.length_reported && self.scheduler.longest_drafted > trained {
            self.length_reported = true;
            return Some(format!(
                "a text is longer than the {trained} tokens that the drafter was trained for: its drafts \
                 may be worse from here on, and it drafts only where that pays off"
            ));
        }
        let DraftCounts { drafts, drafted, accepted } = self.stats().drafts;
        if self.weakness_reported || drafts < JUDGED_DRAFTS || accepted * 5 >= drafts {
            return None;
        }
        self.weakness_reported = true;
        Some(format!(
            "{accepted} of {drafted} tokens that the drafter drafted were right, in {drafts} drafts: it may \
             belong to another model, chat template or layout. It was read so: {}",
            config.describe()
        ))
    }

    /// Returns the next event, oldest first.
    pub fn poll(&mut self) -> Option<Event> {
        self.scheduler.next_event()
    }

    /// Ends a sequence early and frees its pages at once. Does nothing if the sequence has ended.
    pub fn cancel(&mut self, id: SeqId) {
        self.scheduler.cancel(id, &mut self.kv);
    }
}
