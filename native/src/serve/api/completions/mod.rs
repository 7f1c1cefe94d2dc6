//! `POST /v1/completions`.

mod shape;

use super::format::Format;
use super::generation::{Answer, Generation};
use super::openapi::{Part, part};
use super::options::{Options, parse};
use super::prompts::Prompts;
use super::stream::{self, Envelope};
use super::{Body, id, refuse};
use crate::serve::error::ApiError;
use crate::serve::state::{Server, now};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use shape::Shape;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

/// Prompts of one request at most.
const MAX_PROMPTS: usize = 32;
/// Log-probabilities of a token at most.
const MAX_LOGPROBS: usize = 5;
/// Answers of which the best are chosen at most.
const MAX_BEST_OF: usize = 8;
/// OpenAI's default.
const MAX_TOKENS: usize = 16;

/// What the document says of a body.
pub const BODY: &[Part] = &[part::<Options>, part::<Completion>, part::<Format>];

/// The fields that only plain completions have.
#[derive(Deserialize, ToSchema)]
struct Completion {
    prompt: Prompts,
    #[serde(default)]
    /// The prompt is part of the answer, and of its log-probabilities.
    echo: Option<bool>,
    #[serde(default)]
    /// Log-probabilities of so many tokens in each place.
    #[schema(maximum = 5)]
    logprobs: Option<usize>,
    #[serde(default)]
    /// The best `n` of so many answers, 8 at most.
    #[schema(minimum = 1, maximum = 8)]
    best_of: Option<usize>,
}

impl Completion {
    /// How many of the likeliest tokens come with each.
    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        match self.logprobs {
            Some(top) if top > MAX_LOGPROBS => {
                let message = format!("logprobs is {top}, {MAX_LOGPROBS} at most");
                Err(ApiError::bad("logprobs", message))
            }
            logprobs => Ok(logprobs),
        }
    }

    /// How many answers a prompt gets, and of how many they are the best.
    fn answers(&self, options: &Options) -> Result<(usize, usize), ApiError> {
        let n = options.n()?;
        let best_of = self.best_of.unwrap_or(n);
        if best_of < n || best_of > MAX_BEST_OF || (best_of > n && options.streams()) {
            let message = format!(
                "best_of is {best_of}: at least n ({n}), at most {MAX_BEST_OF}, and only without \
                 stream if it is more than n"
            );
            return Err(ApiError::bad("best_of", message));
        }
        Ok((n, best_of))
    }
}

/// Continues texts.
pub async fn completions(
    State(server): State<Arc<Server>>,
    Body { value: body, tenant }: Body,
) -> Result<Response, ApiError> {
    let ready = server.ready()?;
    let mut options: Options = parse(&body)?;
    let completion: Completion = parse(&body)?;
    options.check_model(&ready)?;
    refuse(&body, &["suffix"])?;
    let grammar = parse::<Format>(&body)?.grammar()?;
    let echo = completion.echo.unwrap_or(false);
    let logprobs = completion.logprobs()?;
    let (n, best_of) = completion.answers(&options)?;
    let max_tokens = *options.max_tokens.get_or_insert(MAX_TOKENS);
    // Of nothing but the prompt something must be computed, or the prompt may be too long.
    let score_prompt = echo && (logprobs.is_some() || max_tokens == 0);
    // The best answers are the most likely ones.
    let needed = if best_of > n { Some(logprobs.unwrap_or(0)) } else { logprobs };
    let (prepared, own) = (options.clone(), ready.clone());
    let prepared = spawn_blocking(move || {
        let prompts = completion.prompt.encode(&own, "prompt", MAX_PROMPTS)?;
        let constraint = grammar.map(|asked| own.constraint(asked)).transpose()?;
        let request = |tokens: &Vec<u32>| {
            let mut request = prepared.request(&own, &tenant, tokens.clone(), needed)?;
            request.sampling.constraint = constraint.clone();
            request.sampling.score_prompt = score_prompt;
            Ok(request)
        };
        let requests = prompts.iter().map(request).collect::<Result<Vec<_>, _>>()?;
        Ok::<_, ApiError>((prompts, requests))
    });
    let (prompts, requests) = prepared.await.map_err(ApiError::internal)??;
    let time = server.limits.time;
    let mut generation =
        Generation::start(&ready.worker, (&requests, best_of), "prompt", time).await?;
    let shape = Shape {
        envelope: Envelope {
            id: id("cmpl"),
            whole: "text_completion",
            chunk: "text_completion",
            created: now(),
            model: ready.name.clone(),
            include_usage: options.include_usage(),
        },
        logprobs: logprobs.is_some(),
        count: prompts.len() * n,
        places: vec![0; prompts.len() * n],
        echoes: echo.then_some(prompts),
        n,
        ready,
    };
    if options.streams() {
        return Ok(stream::respond(generation, shape));
    }
    let mut answers = generation.collect().await?;
    if best_of > n {
        answers = answers.chunks(best_of).flat_map(|of| best(of, n)).collect();
    }
    Ok(Json(shape.whole(&answers, &generation)).into_response())
}

/// The `n` answers with the highest log-probability per token, best first.
fn best(answers: &[Answer], n: usize) -> Vec<Answer> {
    let mean = |answer: &Answer| {
        let sum: f32 = answer.tokens.iter().filter_map(|t| t.logprob).sum();
        sum / answer.tokens.len().max(1) as f32
    };
    let mut answers = answers.to_vec();
    answers.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    answers.truncate(n);
    answers
}
