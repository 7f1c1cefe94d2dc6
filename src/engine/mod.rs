//! The engine: submit, step, poll, cancel. No thread, clock, file or socket inside.
//!
//! A step is one forward pass over everything that is due; `schedule` says what that is.

mod request;
mod schedule;
mod sequence;

pub use crate::decode::FinishReason;
pub use request::{Event, Load, Rejected, Request, SeqId, Step};

use crate::cache::{KvConfig, KvPool, KvSeq, NoMemory, PAGE};
use crate::decode::DecodeMode;
use crate::model::{Model, Runtime, Span, Workspace};
use crate::text::Tokenizer;
use sequence::Sequence;
use std::collections::VecDeque;
use std::sync::Arc;

/// Sizes of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Positions a sequence may have, prompt and output together.
    pub context: usize,
    /// KV pages of all sequences together.
    pub pages: usize,
    /// Sequences that run at the same time at most; others wait.
    pub sequences: usize,
    /// Rows of one forward pass at most.
    pub rows: usize,
    /// What one more row adds to a pass, as a share of a pass of one row (0: rows are free): how
    /// long drafts pay depends on it, where a request does not say.
    pub row_cost: f32,
    /// Keep what was computed for texts whose beginnings may come again.
    pub prefix_cache: bool,
    /// What is kept of keys and values, and what is read of them.
    pub kv: KvConfig,
}

/// Runs requests on one model.
pub struct Engine {
    model: Model,
    tokenizer: Option<Arc<Tokenizer>>,
    runtime: Runtime,
    config: EngineConfig,
    kv: KvPool,
    workspace: Workspace,
    /// Both by age; whoever runs is older than all who wait.
    running: Vec<Running>,
    waiting: VecDeque<Sequence>,
    events: VecDeque<Event>,
    submitted: u64,
    preempted: u64,
}

/// A sequence that has pages.
struct Running {
    kv: KvSeq,
    sequence: Sequence,
}

impl Engine {
    /// An engine; `tokenizer` is needed for text and stop strings, ids work without.
    ///
    /// # Errors
    /// When there is no memory for the pages.
    pub fn new(
        model: Model,
        tokenizer: Option<Arc<Tokenizer>>,
        runtime: Runtime,
        config: EngineConfig,
    ) -> Result<Self, NoMemory> {
        let kv = KvPool::new(model.spec(), config.pages, config.kv)?;
        let model = model.with_supported_layout(&runtime);
        Ok(Self {
            model,
            tokenizer,
            runtime,
            config,
            kv,
            workspace: Workspace::default(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
            submitted: 0,
            preempted: 0,
        })
    }

    /// Ends all sequences and gives back what the engine was made of.
    pub fn into_parts(self) -> (Model, Option<Arc<Tokenizer>>) {
        (self.model, self.tokenizer)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_deref()
    }

    /// How busy it is.
    pub fn load(&self) -> Load {
        Load {
            running: self.running.len(),
            waiting: self.waiting.len(),
            free: self.kv.free_pages(),
            idle: self.kv.idle_pages(),
            pages: self.kv.pages(),
            preempted: self.preempted,
        }
    }

    /// Positions a sequence may have: what was configured, or what all pages hold.
    pub fn context(&self) -> usize {
        self.config.context.min(self.config.pages * PAGE)
    }

    /// Positions that a sequence of this mode can fill.
    fn room(&self, mode: &DecodeMode) -> usize {
        let all = self.config.pages * PAGE;
        let whole = match mode {
            DecodeMode::Diffusion(p) => all / p.block.max(1) * p.block,
            _ => all,
        };
        self.config.context.min(whole)
    }

    /// Queues a request. Its output ends with the context, whatever `max_tokens` says, unless it
    /// [shifts](Request::context_shift).
    ///
    /// # Errors
    /// When the request can never run.
    pub fn submit(&mut self, mut request: Request) -> Result<SeqId, Rejected> {
        let context = self.room(&request.mode);
        let vocab = self.model.spec().vocab_size;
        request.check(vocab, context, self.config.rows, self.tokenizer.is_some())?;
        let id = SeqId(self.submitted);
        self.submitted += 1;
        let (tokenizer, row_cost) = (self.tokenizer.as_deref(), self.config.row_cost);
        self.waiting.push_back(Sequence::new(id, request, context, tokenizer, row_cost));
        Ok(id)
    }

    /// Runs one forward pass over whatever is due.
    pub fn step(&mut self) -> Step {
        self.admit();
        self.grow();
        let (output, shares) = self.shares();
        for (Running { sequence, .. }, &share) in self.running.iter_mut().zip(&shares) {
            sequence.waited = if share == 0 { sequence.waited + 1 } else { 0 };
        }
        let due = || self.running.iter().zip(&shares).filter(|(_, share)| **share > 0);
        let spans: Vec<Span<'_>> = due().map(|(r, &share)| r.sequence.span(r.kv, share)).collect();
        if spans.is_empty() {
            return Step::Idle;
        }
        let rows = |prefill: bool| {
            let prefills = |r: &Running| r.sequence.decoder.prefilling();
            let asked = due().zip(&spans).filter(|((r, _), _)| prefills(r) == prefill);
            asked.map(|(_, span)| span.tokens.len()).sum()
        };
        let step = Step::Ran { prefill_rows: rows(true), decode_rows: rows(false) };
        let counts: Vec<usize> = spans.iter().map(|s| s.logits.count(s.tokens.len())).collect();
        let mut logits =
            self.model.compute(&self.runtime, &mut self.kv, &spans, &mut self.workspace, output);
        let due = self.running.iter_mut().zip(&shares).filter(|(_, share)| **share > 0);
        for ((Running { kv, sequence }, &share), count) in due.zip(counts) {
            let (own, rest) = logits.split(count);
            let committed = sequence.take(share, own, &mut self.events);
            self.kv.commit(*kv, committed);
            self.kv.publish(*kv, sequence.decoder.tokens());
            logits = rest;
        }
        self.release();
        self.shift();
        step
    }

    /// The next event.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends a sequence early; its pages are free at once. An ended sequence is left alone.
    pub fn cancel(&mut self, id: SeqId) {
        let running = self.running.iter_mut().map(|r| &mut r.sequence);
        let Some(sequence) = running.chain(&mut self.waiting).find(|s| s.id == id) else { return };
        sequence.finish(FinishReason::Cancelled, &mut self.events);
        self.release();
    }

    /// Lets go of ended sequences and their pages.
    fn release(&mut self) {
        let kv = &mut self.kv;
        self.running.retain(|running| {
            if running.sequence.finished {
                kv.close(running.kv);
            }
            !running.sequence.finished
        });
        self.waiting.retain(|sequence| !sequence.finished);
    }
}
