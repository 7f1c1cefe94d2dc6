//! Answers to one prompt or several, as they come.

use crate::models::grammar;
use crate::serve::error::ApiError;
use crate::serve::worker::{Times, Update, Worker};
use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, select_all};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::UnboundedReceiverStream;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::{FinishReason, Request};

/// The answers to some requests. Dropping it cancels them.
pub struct Generation {
    updates: SelectAll<Choice>,
    /// Answers.
    pub count: usize,
    /// Answers to each prompt.
    copies: usize,
    /// Answers that have ended.
    finished: usize,
    /// When all must be complete.
    deadline: Instant,
    /// Tokens of the prompts, each counted once.
    pub prompt_tokens: usize,
    /// Tokens of all answers so far.
    pub tokens: usize,
    /// Times of the answer that took longest, of those that have ended.
    pub times: Times,
    /// Tokens of the prompts that had been computed before.
    pub cached: usize,
}

type Choice = BoxStream<'static, (usize, Update)>;

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub text: String,
    /// The prompt's tokens but the first, where their log-probabilities were asked for.
    pub scored: Vec<Sampled>,
    /// The prompt's vector, where that was asked for.
    pub vector: Vec<f32>,
    pub tokens: Vec<Sampled>,
    pub reason: Option<FinishReason>,
}

/// `usage`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
}

/// `usage.prompt_tokens_details`.
#[derive(Clone, Copy, Debug, Serialize)]
struct PromptDetails {
    /// Tokens that had been computed for earlier requests.
    cached_tokens: usize,
}

/// Our own `timings`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timings {
    first_token_seconds: f64,
    /// Tokens of the prompts that were computed, over the time to the first token: what a client
    /// gets, waiting included.
    prefill_tokens_per_second: f64,
    decode_seconds: f64,
    decode_tokens_per_second: f64,
    forward_passes: usize,
    tokens_per_pass: f64,
    cached_tokens: usize,
}

impl Generation {
    /// Hands requests in, each `copies` times with other seeds, whose prompts came in the field
    /// `prompt`; their answers must be complete in `time`.
    pub async fn start(
        worker: &Worker,
        (requests, copies): (&[Request], usize),
        prompt: &str,
        time: Duration,
    ) -> Result<Self, ApiError> {
        let prompt_tokens = requests.iter().map(|r| r.tokens.len()).sum();
        let all: Vec<Request> = requests.iter().flat_map(|r| copied(r, copies)).collect();
        let count = all.len();
        let updates = worker.submit(all).await;
        let updates = updates.map_err(|refused| ApiError::refused(&refused, prompt))?;
        let choices = updates.into_iter().enumerate().map(|(index, updates)| -> Choice {
            UnboundedReceiverStream::new(updates).map(move |update| (index, update)).boxed()
        });
        let (updates, deadline) = (select_all(choices), Instant::now() + time);
        Ok(Self {
            updates,
            count,
            copies,
            finished: 0,
            deadline,
            prompt_tokens,
            tokens: 0,
            times: Times::default(),
            cached: 0,
        })
    }

    /// The next update of any answer, and the answer's number; `None` at the end.
    ///
    /// # Errors
    /// When the time is over, an answer cannot keep to its grammar, or there is no engine any more.
    pub async fn next(&mut self) -> Result<Option<(usize, Update)>, ApiError> {
        let update = timeout_at(self.deadline, self.updates.next()).await.map_err(|_| {
            ApiError::new(
                StatusCode::GATEWAY_TIMEOUT,
                "timeout",
                "the answer took longer than this server allows: ask for fewer tokens",
            )
        })?;
        match &update {
            Some((_, Update::Finished { reason: FinishReason::Constraint, .. })) => {
                return Err(ApiError::bad("response_format", grammar::TOO_COMPLEX));
            }
            Some((_, Update::Token { .. })) => self.tokens += 1,
            Some((index, Update::Finished { times, .. })) => {
                self.finished += 1;
                self.times.first_token = self.times.first_token.max(times.first_token);
                self.times.decode = self.times.decode.max(times.decode);
                self.times.passes = self.times.passes.max(times.passes);
                // The other answers to a prompt find in the cache what the first one left.
                if index % self.copies == 0 {
                    self.cached += times.cached;
                }
            }
            None if self.finished < self.count => {
                return Err(ApiError::unavailable("the engine has ended"));
            }
            Some((_, Update::Scored(_) | Update::Embedded(_))) | None => {}
        }
        Ok(update)
    }

    /// All answers, when they are complete.
    ///
    /// # Errors
    /// When they cannot be.
    pub async fn collect(&mut self) -> Result<Vec<Answer>, ApiError> {
        let mut answers = vec![Answer::default(); self.count];
        while let Some((index, update)) = self.next().await? {
            let answer = &mut answers[index];
            match update {
                Update::Scored(tokens) => answer.scored.extend(tokens),
                Update::Embedded(vector) => answer.vector = vector,
                Update::Token { sampled, text } => {
                    answer.text += &text;
                    answer.tokens.push(sampled);
                }
                Update::Finished { reason, text, .. } => {
                    answer.text += &text;
                    answer.reason = Some(reason);
                }
            }
        }
        Ok(answers)
    }

    /// Tokens so far.
    pub fn usage(&self) -> Usage {
        let (prompt_tokens, completion_tokens) = (self.prompt_tokens, self.tokens);
        let total_tokens = prompt_tokens + completion_tokens;
        let prompt_tokens_details = PromptDetails { cached_tokens: self.cached };
        Usage { prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details }
    }

    /// Where the time went.
    pub fn timings(&self) -> Timings {
        let n = self.count;
        let per = |count: f64, of: f64| if of > 0.0 { count / of } else { 0.0 };
        let decode = self.times.decode.as_secs_f64();
        let first_token = self.times.first_token.as_secs_f64();
        let computed = self.prompt_tokens.saturating_sub(self.cached);
        Timings {
            first_token_seconds: first_token,
            prefill_tokens_per_second: per(computed as f64, first_token),
            decode_seconds: decode,
            decode_tokens_per_second: per(self.tokens.saturating_sub(n) as f64, decode),
            forward_passes: self.times.passes,
            tokens_per_pass: per(self.tokens as f64, (n * self.times.passes) as f64),
            cached_tokens: self.cached,
        }
    }
}

/// The request `n` times, each with another seed.
fn copied(request: &Request, n: usize) -> impl Iterator<Item = Request> {
    (0..n).map(|index| {
        let mut request = request.clone();
        request.sampling.seed = request.sampling.seed.wrapping_add(index as u64);
        request
    })
}

/// OpenAI's name for a reason.
pub fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::Stop
        | FinishReason::StopString(_)
        | FinishReason::Cancelled
        | FinishReason::Constraint => "stop",
    }
}
