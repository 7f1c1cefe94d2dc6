//! `POST /v1/completions`.

use super::format::Format;
use super::generation::{Answer, Generation, reason_name};
use super::openapi::{Part, part};
use super::options::{Options, parse};
use super::stream::{self, Envelope, Events};
use super::{Body, id, refuse};
use crate::serve::error::ApiError;
use crate::serve::state::{Ready, Server, now};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

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
    /// The prompt is part of the answer.
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

/// One prompt or several, as texts or as token ids.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "expected a string, an array of strings, an array of token ids, or an array of those"
)]
enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    Many(Vec<Vec<u32>>),
}

impl Prompts {
    fn encode(self, ready: &Ready) -> Result<Vec<Vec<u32>>, ApiError> {
        let encode = |text: String| {
            let tokens = ready.tokenizer.encode(&text, true);
            tokens.map_err(|e| ApiError::bad("prompt", e.to_string()))
        };
        let prompts = match self {
            Self::Text(text) => vec![encode(text)?],
            Self::Texts(texts) => texts.into_iter().map(encode).collect::<Result<_, _>>()?,
            Self::Tokens(tokens) => vec![tokens],
            Self::Many(prompts) => prompts,
        };
        match prompts.len() {
            1..=MAX_PROMPTS => Ok(prompts),
            0 => Err(ApiError::bad("prompt", "prompt is empty: give at least one")),
            n => Err(ApiError::bad("prompt", format!("{n} prompts, {MAX_PROMPTS} at most"))),
        }
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
    let (n, echo) = (options.n()?, completion.echo.unwrap_or(false));
    let logprobs = completion.logprobs;
    if let Some(top) = logprobs.filter(|&top| top > MAX_LOGPROBS) {
        return Err(ApiError::bad(
            "logprobs",
            format!("logprobs is {top}, {MAX_LOGPROBS} at most"),
        ));
    }
    if echo && logprobs.is_some() {
        let message = "echo with logprobs is not supported: the prompt's tokens get none";
        return Err(ApiError::bad("echo", message));
    }
    let best_of = completion.best_of.unwrap_or(n);
    if best_of < n || best_of > MAX_BEST_OF || (best_of > n && options.streams()) {
        return Err(ApiError::bad(
            "best_of",
            format!(
                "best_of is {best_of}: at least n ({n}), at most {MAX_BEST_OF}, and only without \
                 stream if it is more than n"
            ),
        ));
    }
    options.max_tokens.get_or_insert(MAX_TOKENS);
    // The best answers are the most likely ones.
    let needed = if best_of > n { Some(logprobs.unwrap_or(0)) } else { logprobs };
    let (prepared, own) = (options.clone(), ready.clone());
    let prepared = spawn_blocking(move || {
        let prompts = completion.prompt.encode(&own)?;
        let constraint = grammar.map(|g| own.constraint(g, "response_format")).transpose()?;
        let request = |tokens: &Vec<u32>| {
            let mut request = prepared.request(&own, &tenant, tokens.clone(), needed)?;
            request.sampling.constraint = constraint.clone();
            Ok(request)
        };
        let requests = prompts.iter().map(request).collect::<Result<Vec<_>, _>>()?;
        Ok::<_, ApiError>((prompts, requests))
    });
    let (prompts, requests) = prepared.await.map_err(ApiError::internal)??;
    let copies = requests.iter().flat_map(|request| super::copies(request, best_of)).collect();
    let mut generation =
        Generation::start(&ready.worker, copies, "prompt", server.limits.time).await?;
    let echoes: Vec<String> = match echo {
        true => prompts.iter().map(|tokens| ready.tokenizer.decode(tokens)).collect(),
        false => vec![String::new(); prompts.len()],
    };
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
        echoes,
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
    let choices: Vec<Value> =
        answers.iter().enumerate().map(|(index, answer)| shape.choice(index, answer)).collect();
    Ok(Json(shape.envelope.whole(&choices, &generation)).into_response())
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

/// How answers look.
struct Shape {
    envelope: Envelope,
    logprobs: bool,
    /// What stands before the answers to each prompt.
    echoes: Vec<String>,
    /// Answers to a prompt.
    n: usize,
    ready: Arc<Ready>,
}

impl Shape {
    fn choice(&self, index: usize, answer: &Answer) -> Value {
        let echo = &self.echoes[index / self.n];
        json!({
            "index": index,
            "text": format!("{echo}{}", answer.text),
            "logprobs": self.logprobs.then(|| self.all_logprobs(&answer.tokens)),
            "finish_reason": answer.reason.map(reason_name),
        })
    }

    /// Log-probabilities as the older API has them: lists side by side.
    fn all_logprobs(&self, tokens: &[Sampled]) -> Value {
        let text = |token: u32| self.ready.tokenizer.decode(&[token]);
        let (mut offset, mut offsets) = (0, Vec::new());
        for sampled in tokens {
            offsets.push(offset);
            offset += text(sampled.token).chars().count();
        }
        let top = |sampled: &Sampled| -> Map<String, Value> {
            sampled.top.iter().map(|&(token, p)| (text(token), json!(p))).collect()
        };
        json!({
            "tokens": tokens.iter().map(|t| text(t.token)).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(|t| t.logprob).collect::<Vec<_>>(),
            "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }

    fn chunk(&self, index: usize, text: &str, logprobs: Value, reason: Value) -> Value {
        self.envelope.chunk(json!({
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": reason,
        }))
    }
}

impl Events for Shape {
    const NAMED: bool = false;

    fn begin(&mut self) -> Vec<Value> {
        let echoed = (0..self.echoes.len() * self.n).map(|i| (i, &self.echoes[i / self.n]));
        echoed
            .filter(|(_, echo)| !echo.is_empty())
            .map(|(index, echo)| self.chunk(index, echo, Value::Null, Value::Null))
            .collect()
    }

    fn token(&mut self, index: usize, sampled: &Sampled, text: &str) -> Vec<Value> {
        if text.is_empty() && !self.logprobs {
            return Vec::new();
        }
        let logprobs = match self.logprobs {
            true => self.all_logprobs(std::slice::from_ref(sampled)),
            false => Value::Null,
        };
        vec![self.chunk(index, text, logprobs, Value::Null)]
    }

    fn finish(&mut self, index: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        vec![self.chunk(index, text, Value::Null, reason_name(reason).into())]
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        self.envelope.last(generation).into_iter().collect()
    }
}
