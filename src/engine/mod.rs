//! The engine: submit, step, poll, cancel. No thread, clock, file or socket inside.
//!
//! A step is one forward pass over everything that is due: what each sequence that decodes asks
//! for, and as much of waiting prompts as the row budget leaves room for. What gets no rows in one
//! step comes first in the next. A sequence gets its pages for
//! prompt and output when it is admitted, first come first served, so it can always finish.

mod request;
mod running;

pub use crate::decode::FinishReason;
pub use request::{Event, Load, Rejected, Request, SeqId, Step};

use crate::cache::{KvPool, NoMemory, PAGE};
use crate::decode::DecodeMode;
use crate::model::{Model, Runtime, Span, Workspace};
use crate::text::Tokenizer;
use running::Running;
use std::cmp::Reverse;
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
}

/// Runs requests on one model.
pub struct Engine {
    model: Model,
    tokenizer: Option<Arc<Tokenizer>>,
    runtime: Runtime,
    config: EngineConfig,
    kv: KvPool,
    workspace: Workspace,
    queue: VecDeque<(SeqId, Request)>,
    running: Vec<Running>,
    events: VecDeque<Event>,
    submitted: u64,
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
        let kv = KvPool::new(model.spec(), config.pages)?;
        Ok(Self {
            model,
            tokenizer,
            runtime,
            config,
            kv,
            workspace: Workspace::default(),
            queue: VecDeque::new(),
            running: Vec::new(),
            events: VecDeque::new(),
            submitted: 0,
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
        let (free, pages) = (self.kv.free_pages(), self.kv.pages());
        Load { running: self.running.len(), waiting: self.queue.len(), free, pages }
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
            DecodeMode::Autoregressive | DecodeMode::Verify { .. } => all,
        };
        self.config.context.min(whole)
    }

    /// Queues a request. Its output ends with the context, whatever `max_tokens` says.
    ///
    /// # Errors
    /// When the request can never run.
    pub fn submit(&mut self, mut request: Request) -> Result<SeqId, Rejected> {
        let context = self.room(&request.mode);
        let vocab = self.model.spec().vocab_size;
        request.check(vocab, context, self.config.rows, self.tokenizer.is_some())?;
        request.max_tokens = request.max_tokens.min(context - request.tokens.len());
        let id = SeqId(self.submitted);
        self.submitted += 1;
        self.queue.push_back((id, request));
        Ok(id)
    }

    /// Runs one forward pass over whatever is due.
    pub fn step(&mut self) -> Step {
        self.admit();
        let shares = self.shares();
        for (running, &share) in self.running.iter_mut().zip(&shares) {
            running.waited = if share == 0 { running.waited + 1 } else { 0 };
        }
        let due = || self.running.iter().zip(&shares).filter(|(_, share)| **share > 0);
        let spans: Vec<Span<'_>> = due().map(|(r, &share)| r.span(share)).collect();
        if spans.is_empty() {
            return Step::Idle;
        }
        let rows = |prefill: bool| {
            let asked = due().zip(&spans).filter(|((r, _), _)| r.decoder.prefilling() == prefill);
            asked.map(|(_, span)| span.tokens.len()).sum()
        };
        let step = Step::Ran { prefill_rows: rows(true), decode_rows: rows(false) };
        let counts: Vec<usize> = spans.iter().map(|s| s.logits.count(s.tokens.len())).collect();
        let mut logits =
            self.model.forward(&self.runtime, &mut self.kv, &spans, &mut self.workspace);
        let due = self.running.iter_mut().zip(&shares).filter(|(_, share)| **share > 0);
        for ((running, &share), count) in due.zip(counts) {
            let (own, rest) = logits.split(count);
            let committed = running.take(share, own, &mut self.events);
            self.kv.commit(running.kv, committed);
            logits = rest;
        }
        self.release();
        step
    }

    /// The next event.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends a sequence early; its pages are free at once. An ended sequence is left alone.
    pub fn cancel(&mut self, id: SeqId) {
        if let Some(at) = self.queue.iter().position(|(queued, _)| *queued == id) {
            self.queue.remove(at);
            let reason = FinishReason::Cancelled;
            self.events.push_back(Event::Finished {
                seq: id,
                reason,
                text: String::new(),
                passes: 0,
            });
        }
        if let Some(running) = self.running.iter_mut().find(|r| r.id == id) {
            running.finish(FinishReason::Cancelled, &mut self.events);
            self.release();
        }
    }

    /// Starts queued requests, in order, as long as there are pages for them.
    fn admit(&mut self) {
        while let Some((_, request)) = self.queue.front() {
            if self.running.len() >= self.config.sequences.max(1) {
                return;
            }
            let length = request.tokens.len() + request.max_tokens;
            let Ok(kv) = self.kv.open(request.mode.positions(length)) else { return };
            let (id, request) = self.queue.pop_front().expect("it was there just now");
            let (tokenizer, row_cost) = (self.tokenizer.as_deref(), self.config.row_cost);
            self.running.push(Running::new(id, kv, request, tokenizer, row_cost));
        }
    }

    /// Rows for each running sequence. Who got none in the last steps comes first, the longest wait
    /// before the others; then those that decode, then prompts, both by age.
    fn shares(&self) -> Vec<usize> {
        let mut left = self.config.rows.max(1);
        let mut shares = vec![0; self.running.len()];
        let mut order: Vec<usize> = (0..self.running.len()).collect();
        order.sort_by_key(|&i| {
            let running = &self.running[i];
            (Reverse(running.waited), running.decoder.prefilling())
        });
        for i in order {
            if let Some(ask) = self.running[i].decoder.ask(left.max(1)).filter(|_| left > 0) {
                shares[i] = ask.tokens.len();
                left -= shares[i];
            }
        }
        shares
    }

    /// Returns the pages of ended sequences.
    fn release(&mut self) {
        let kv = &mut self.kv;
        self.running.retain(|running| {
            if running.finished {
                kv.close(running.kv);
            }
            !running.finished
        });
    }
}
