//! Runs the engine's requests of one API request and collects their outputs.

use super::aside::aside;
use super::validation::OutputValidator;
use crate::api::prompt::history::AnswerRecorder;
use crate::engine::arrival::Arrival;
use crate::engine::disk_cache::PromptFiles;
use crate::engine::event::{RequestEvent, RequestTimes};
use crate::engine::served_model::ServedModel;
use crate::engine::slots::SlotGuard;
use crate::engine::thread::WeakEngineHandle;
use crate::error::ApiError;
use crate::operation::request_log::RequestRecord;
use axum::http::StatusCode;
use futures_util::stream::{BoxStream, Peekable, SelectAll, select_all};
use futures_util::{FutureExt, StreamExt};
use serde::Serialize;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};
use wf_run_cli::session;
use wrinklefree::chat::Snapshots;
use wrinklefree::decode::{DecodeMode, DraftCounts, Sampled};
use wrinklefree::engine::{EventKind, FinishReason, NOT_FINITE, Request};
use wrinklefree::text::ReasoningParser;
use wrinklefree_easy::models::grammar;

/// Running requests. Dropping it cancels them.
pub struct Generation {
    events: Peekable<SelectAll<IndexedEvents>>,
    /// Slot of each output.
    slots: Vec<SlotGuard>,
    /// The prompt cache on disk, where the texts are kept at the end.
    files: Option<(PromptFiles, WeakEngineHandle)>,
    /// Number of outputs.
    pub count: usize,
    /// Outputs per prompt.
    copies: usize,
    /// Outputs that are complete.
    finished: usize,
    /// Time at which all outputs must be complete.
    deadline: Instant,
    /// Tokens of the prompts, each prompt counted once.
    pub prompt_tokens: usize,
    /// Generated tokens so far, of all outputs.
    pub tokens: usize,
    /// Largest times of the outputs that are complete.
    pub times: RequestTimes,
    /// Largest number of forward passes of an output.
    pub passes: usize,
    /// Prompt tokens found in the prefix cache.
    pub cached: usize,
    /// Tokens of the prompt that were generated for earlier answers.
    pub history: usize,
    /// Remembers the outputs, and their tokens so far.
    recorder: Option<(AnswerRecorder, Vec<Vec<u32>>)>,
    /// Parser of each output's reasoning; empty if outputs have none.
    reasoning: Vec<ReasoningParser>,
    /// Tokens of reasoning so far.
    pub reasoning_tokens: usize,
    /// Drafts for each output that is complete.
    pub drafts: Vec<DraftCounts>,
    /// Makes snapshots of each output; empty if the stream has new text alone.
    pub snapshots: Vec<Snapshots>,
    /// Validates complete outputs.
    validator: Option<OutputValidator>,
    /// Texts of the outputs so far, for the validator.
    texts: Vec<String>,
    /// Reports about complete outputs.
    pub reports: Vec<Option<Value>>,
    /// The request, for the log line at the end; `None` for embeddings.
    record: Option<Arc<RequestRecord>>,
    /// Reason why the last complete output ended, or one was cut off.
    reason: Option<FinishReason>,
}

/// Events of one request with the number of its output.
type IndexedEvents = BoxStream<'static, (usize, RequestEvent)>;

/// A complete output.
#[derive(Clone, Debug, Default)]
pub struct RequestOutput {
    /// The text.
    pub text: String,
    /// Prompt tokens except the first, with their log-probabilities, if requested.
    pub scored: Vec<Sampled>,
    /// The embedding of the prompt, if requested.
    pub embedding: Vec<f32>,
    /// Generated tokens.
    pub tokens: Vec<Sampled>,
    /// Length of the text after each of them.
    pub ends: Vec<usize>,
    /// The reason of its end.
    pub reason: Option<FinishReason>,
    /// The report of the validator.
    pub report: Option<Value>,
}

/// The `usage` field of responses.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

/// The `usage.completion_tokens_details` field.
#[derive(Clone, Copy, Debug, Serialize)]
struct CompletionDetails {
    /// Tokens of reasoning.
    reasoning_tokens: usize,
    /// Drafted tokens that were right, and those that were wrong.
    #[serde(flatten)]
    predictions: Option<PredictionCounts>,
}

/// Drafted tokens under OpenAI's names.
#[derive(Clone, Copy, Debug, Serialize)]
struct PredictionCounts {
    accepted_prediction_tokens: u64,
    rejected_prediction_tokens: u64,
}

/// The `usage.prompt_tokens_details` field.
#[derive(Clone, Copy, Debug, Serialize)]
struct PromptDetails {
    /// Prompt tokens found in the prefix cache.
    cached_tokens: usize,
    /// Prompt tokens that this server generated and the history shows.
    #[serde(skip_serializing_if = "is_zero")]
    history_tokens: usize,
}

/// The `timings` field of responses, an extension.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timings {
    first_token_seconds: f64,
    /// Computed prompt tokens divided by the time to the first token. This includes the time in the
    /// queue.
    prefill_tokens_per_second: f64,
    decode_seconds: f64,
    decode_tokens_per_second: f64,
    forward_passes: usize,
    tokens_per_pass: f64,
    cached_tokens: usize,
    #[serde(flatten)]
    llama: LlamaTimings,
}

/// The same numbers under llama-server's names, which its clients show.
#[derive(Clone, Copy, Debug, Serialize)]
struct LlamaTimings {
    cache_n: usize,
    prompt_n: usize,
    prompt_ms: f64,
    prompt_per_second: f64,
    predicted_n: usize,
    predicted_ms: f64,
    predicted_per_second: f64,
    #[serde(flatten)]
    drafts: Option<LlamaDrafts>,
}

/// Drafted tokens under llama-server's names.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LlamaDrafts {
    /// Number of drafted tokens.
    pub draft_n: u64,
    /// Number of those that were right.
    pub draft_n_accepted: u64,
}

impl LlamaDrafts {
    /// Returns the counts; `None` without drafts.
    pub fn of(DraftCounts { drafts, drafted, accepted }: DraftCounts) -> Option<Self> {
        (drafts > 0).then_some(Self { draft_n: drafted, draft_n_accepted: accepted })
    }
}

impl Generation {
    /// Submits `requests`, each `copies` times with different seeds. Their outputs must be complete
    /// in the time that their `arrival` leaves. `prompt` is the request field that holds the prompts,
    /// for errors.
    ///
    /// # Errors
    /// If the engine does not accept them.
    pub async fn start(
        model: &ServedModel,
        arrival: Arrival,
        requests: &[Request],
        copies: usize,
        prompt: &str,
    ) -> Result<Self, ApiError> {
        let generates = !requests.iter().all(|r| matches!(r.mode, DecodeMode::Embed(_)));
        let prompt_tokens = requests.iter().map(|r| r.tokens.len()).sum();
        // A grammar's state can have megabytes, of which each output has its own.
        let copy = || requests.iter().flat_map(|r| with_seeds(r, copies)).collect();
        let all: Vec<Request> = aside(copy);
        let count = all.len();
        let files = model.files.clone().filter(|_| generates);
        if let Some(files) = &files {
            // Other prompts of a list are computed.
            let loaded = files.load(&model.engine, &requests[0]);
            timeout_at(arrival.deadline, loaded).await.map_err(|_| ApiError::timeout())?;
        }
        let slots = all.iter().map(|request| model.slots.enter(None, request)).collect();
        let receivers = model.engine.submit(all, arrival).await;
        let receivers = receivers.map_err(|error| error.api_error(prompt))?;
        let events = receivers.into_iter().enumerate().map(|(index, events)| -> IndexedEvents {
            events.map(move |event| (index, event)).boxed()
        });
        Ok(Self {
            events: select_all(events).peekable(),
            slots,
            files: files.map(|files| (files, model.engine.downgrade())),
            count,
            copies,
            finished: 0,
            deadline: arrival.deadline,
            prompt_tokens,
            tokens: 0,
            times: RequestTimes::default(),
            passes: 0,
            cached: 0,
            history: 0,
            recorder: None,
            reasoning: Vec::new(),
            reasoning_tokens: 0,
            drafts: vec![DraftCounts::default(); count],
            snapshots: Vec::new(),
            validator: None,
            texts: Vec::new(),
            reports: vec![None; count],
            record: RequestRecord::current().filter(|_| generates),
            reason: None,
        })
    }

    /// Puts all outputs into a slot that the request asks for.
    pub fn in_slot(mut self, model: &ServedModel, slot: Option<usize>, request: &Request) -> Self {
        if slot.is_some() {
            self.slots.clear();
            self.slots.extend((0..self.count).map(|_| model.slots.enter(slot, request)));
        }
        self
    }

    /// Returns the slot of each output.
    pub fn slot_ids(&self) -> Vec<usize> {
        self.slots.iter().map(|slot| slot.id).collect()
    }

    /// Counts the tokens of the prompt that were generated, and remembers the outputs for later prompts.
    pub fn with_history(mut self, generated: usize, recorder: Option<AnswerRecorder>) -> Self {
        self.history = generated;
        self.recorder = recorder.map(|recorder| (recorder, vec![Vec::new(); self.count]));
        self
    }

    /// Validates each output when it is complete.
    pub fn with_validator(mut self, validator: Option<OutputValidator>) -> Self {
        self.texts = validator.iter().flat_map(|_| vec![String::new(); self.count]).collect();
        self.validator = validator;
        self
    }

    /// Makes snapshots of the outputs, one for each.
    pub fn with_snapshots(mut self, snapshots: Vec<Snapshots>) -> Self {
        self.snapshots = snapshots;
        self
    }

    /// Returns true if the next event is there already.
    pub fn has_next(&mut self) -> bool {
        matches!(Pin::new(&mut self.events).peek().now_or_never(), Some(Some(_)))
    }

    /// Adds to the text of an output that is validated, and validates it at its end.
    async fn validate(&mut self, index: usize, kind: &EventKind) {
        let Some(validator) = &self.validator else { return };
        match kind {
            EventKind::Token { text, .. } => self.texts[index] += text,
            EventKind::Finished { text, .. } => {
                self.texts[index] += text;
                self.reports[index] = validator.report(&self.texts[index]).await;
            }
            _ => {}
        }
    }

    /// Counts the tokens of the reasoning that this parser finds in each output.
    pub fn with_reasoning(mut self, parser: Option<ReasoningParser>) -> Self {
        self.reasoning = parser.map(|parser| vec![parser; self.count]).unwrap_or_default();
        self
    }

    /// Returns the next event of any output with the output's number, or `None` at the end.
    ///
    /// # Errors
    /// If the time is over, an output cannot match its grammar, or the engine has stopped.
    pub async fn next(&mut self) -> Result<Option<(usize, EventKind)>, ApiError> {
        // Events that wait for a client that reads slowly are late, too.
        if Instant::now() >= self.deadline {
            return Err(ApiError::timeout());
        }
        let event = timeout_at(self.deadline, self.events.next()).await;
        let event = event.map_err(|_| ApiError::timeout())?;
        let Some((index, RequestEvent { kind, times })) = event else {
            return if self.finished < self.count {
                Err(ApiError::unavailable("the server shuts down: the answer is cut off"))
            } else {
                Ok(None)
            };
        };
        match &kind {
            &EventKind::Finished { reason: reason @ FinishReason::Constraint, .. } => {
                self.reason = Some(reason);
                return Err(ApiError::bad("response_format", grammar::TOO_COMPLEX));
            }
            &EventKind::Finished { reason: reason @ FinishReason::NotFinite, .. } => {
                self.reason = Some(reason);
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return Err(ApiError::new(status, "model_error", NOT_FINITE));
            }
            &EventKind::Finished { reason: reason @ FinishReason::Cancelled, .. } => {
                self.reason = Some(reason);
                let message = "the answer was cut off: too much of it waited to be read";
                return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "not_read", message));
            }
            EventKind::Token { text, sampled } => {
                self.tokens += 1;
                self.slots[index].push(sampled.token);
                if let Some((_, outputs)) = &mut self.recorder {
                    outputs[index].push(sampled.token);
                }
                if let Some(parser) = self.reasoning.get_mut(index) {
                    let reasoned = parser.reasons();
                    parser.push(text);
                    self.reasoning_tokens += usize::from(reasoned || parser.reasons());
                }
            }
            &EventKind::Finished { reason, passes, cached, drafts, .. } => {
                self.finished += 1;
                self.drafts[index] = drafts;
                self.reason = Some(reason);
                if let Some((recorder, outputs)) = &mut self.recorder {
                    recorder.remember(&std::mem::take(&mut outputs[index]));
                }
                self.times.first_token = self.times.first_token.max(times.first_token);
                self.times.decode = self.times.decode.max(times.decode);
                self.passes = self.passes.max(passes);
                // Count a prompt once: its other outputs find the first one's pages in the cache.
                if index % self.copies == 0 {
                    self.cached += cached;
                }
            }
            _ => {}
        }
        self.validate(index, &kind).await;
        Ok(Some((index, kind)))
    }

    /// Waits until all outputs are complete and returns them.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub async fn collect(&mut self) -> Result<Vec<RequestOutput>, ApiError> {
        let mut outputs = vec![RequestOutput::default(); self.count];
        while let Some((index, event)) = self.next().await? {
            let output = &mut outputs[index];
            match event {
                EventKind::Scored(tokens) => output.scored.extend(tokens),
                EventKind::Embedded(vector) => output.embedding = vector,
                EventKind::Token { sampled, text } => {
                    output.text += &text;
                    output.tokens.push(sampled);
                    output.ends.push(output.text.len());
                }
                EventKind::Finished { reason, text, .. } => {
                    output.text += &text;
                    output.reason = Some(reason);
                }
                EventKind::Logits(_) | EventKind::Slots(_) => unreachable!("no API asks for them"),
            }
        }
        for (output, report) in outputs.iter_mut().zip(&self.reports) {
            output.report.clone_from(report);
        }
        Ok(outputs)
    }

    /// Returns the drafts for all outputs that are complete.
    fn all_drafts(&self) -> DraftCounts {
        let mut all = DraftCounts::default();
        self.drafts.iter().for_each(|drafts| all.add(*drafts));
        all
    }

    /// Returns the token usage so far.
    pub fn usage(&self) -> Usage {
        let (prompt_tokens, completion_tokens) = (self.prompt_tokens, self.tokens);
        let total_tokens = prompt_tokens + completion_tokens;
        let prompt_tokens_details =
            PromptDetails { cached_tokens: self.cached, history_tokens: self.history };
        let DraftCounts { drafts, drafted, accepted } = self.all_drafts();
        let predictions = (drafts > 0).then_some(PredictionCounts {
            accepted_prediction_tokens: accepted,
            rejected_prediction_tokens: drafted - accepted,
        });
        let reasoning_tokens = self.reasoning_tokens;
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens,
            prompt_tokens_details,
            completion_tokens_details: CompletionDetails { reasoning_tokens, predictions },
        }
    }

    /// Returns the times and rates so far.
    pub fn timings(&self) -> Timings {
        let n = self.count;
        let per = |count: f64, of: f64| if of > 0.0 { count / of } else { 0.0 };
        let decode = self.times.decode.as_secs_f64();
        let first_token = self.times.first_token.as_secs_f64();
        let computed = self.prompt_tokens.saturating_sub(self.cached);
        let (prefill_rate, decode_rate) =
            (per(computed as f64, first_token), per(self.tokens.saturating_sub(n) as f64, decode));
        Timings {
            first_token_seconds: first_token,
            prefill_tokens_per_second: prefill_rate,
            decode_seconds: decode,
            decode_tokens_per_second: decode_rate,
            forward_passes: self.passes,
            tokens_per_pass: per(self.tokens as f64, (n * self.passes) as f64),
            cached_tokens: self.cached,
            llama: LlamaTimings {
                cache_n: self.cached,
                prompt_n: computed,
                prompt_ms: first_token * 1e3,
                prompt_per_second: prefill_rate,
                predicted_n: self.tokens,
                predicted_ms: decode * 1e3,
                predicted_per_second: decode_rate,
                drafts: LlamaDrafts::of(self.all_drafts()),
            },
        }
    }
}

/// Keeps the texts on disk, and logs one line at the end of a generation, also of one that its client has left.
impl Drop for Generation {
    fn drop(&mut self) {
        if let Some((files, engine)) = &self.files
            && let Some(engine) = engine.upgrade()
        {
            self.slots.iter().for_each(|slot| files.store(&engine, slot.text()));
        }
        let Some(record) = &self.record else { return };
        let reason = match self.reason {
            // These cut the response off, and the client reads an error.
            Some(reason @ (FinishReason::Constraint | FinishReason::NotFinite)) => {
                session::reason_name(reason)
            }
            Some(reason) if self.finished == self.count => session::reason_name(reason),
            _ => "cut off",
        };
        tracing::info!(
            id = record.id,
            key = record.key(),
            prompt_tokens = self.prompt_tokens,
            cached_tokens = self.cached,
            tokens = self.tokens,
            reason,
            first_token_milliseconds = self.times.first_token.as_millis() as u64,
            milliseconds = record.arrived.elapsed().as_millis() as u64,
            "answered"
        );
    }
}

/// Returns `n` copies of a request with consecutive seeds.
fn with_seeds(request: &Request, n: usize) -> impl Iterator<Item = Request> {
    (0..n).map(|index| {
        let mut request = request.clone();
        request.sampling.seed = request.sampling.seed.wrapping_add(index as u64);
        request
    })
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Returns OpenAI's name for a finish reason.
pub fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::Stop
        | FinishReason::StopString(_)
        | FinishReason::Cancelled
        | FinishReason::Constraint
        | FinishReason::NotFinite => "stop",
    }
}
