//! `POST /v1/completions`: OpenAI's API for text completions.

pub mod body;
pub mod formatter;

use crate::api::answer::aside::aside;
use crate::api::answer::generation::RequestOutput;
use crate::api::answer::loading::{self, SignFormat};
use crate::api::answer::stream::{self, Envelope};
use crate::api::answer::validation::attach;
use crate::api::body::{
    Body, DiffusingFields, GenerationOptions, JsonBody, KnownFields, OutputFormatFields,
    StreamUsage, parse,
};
use crate::api::prompt::infill::Hole;
use crate::api::prompt::plain_text::PlainText;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use crate::ids;
use crate::time::unix_now;
use axum::Json;
use axum::response::{IntoResponse, Response};
use body::{BODY, CompletionFields, OutputCounts};
use formatter::{CompletionFormatter, Extras};
use std::sync::LazyLock;

/// Maximum number of prompts per request.
const MAX_PROMPTS: usize = 32;
/// OpenAI's default number of tokens.
const MAX_TOKENS: usize = 16;

/// Fields of the body.
static FIELDS: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::new(BODY, &[]));

/// A body that is parsed and tokenized.
struct Prepared {
    streams: bool,
    usage: StreamUsage,
    text: PlainText,
    /// The prompts, if the response repeats them.
    echoes: Option<Vec<Vec<u32>>>,
    logprobs: Option<usize>,
    counts: OutputCounts,
    extras: Extras,
}

/// Checks all of a body that can be checked without the model.
fn check(body: &Body) -> Result<(), ApiError> {
    let (options, completion): (GenerationOptions, CompletionFields) = (parse(body)?, parse(body)?);
    FIELDS.check(body)?;
    parse::<OutputFormatFields>(body)?.grammar()?;
    completion.logprobs()?;
    completion.counts(&options)?;
    replaces(body, &options, &completion)?;
    options.stream_usage().map(drop)
}

/// Returns true if the chunks of a stream have the whole output so far.
fn replaces(
    body: &Body,
    options: &GenerationOptions,
    completion: &CompletionFields,
) -> Result<bool, ApiError> {
    let logprobs = ("logprobs", completion.logprobs()?.is_some());
    let echo = ("echo", completion.echo == Some(true));
    parse::<DiffusingFields>(body)?.replaces(options, &[logprobs, echo])
}

/// Parses and tokenizes a body.
fn prepare(body: &Body, model: &ServedModel) -> Result<Prepared, ApiError> {
    let mut options: GenerationOptions = parse(body)?;
    options.speculative = parse(body)?;
    let completion: CompletionFields = parse(body)?;
    FIELDS.check(body)?;
    let grammar = parse::<OutputFormatFields>(body)?.grammar()?;
    let replaces = replaces(body, &options, &completion)?;
    let echo = completion.echo.unwrap_or(false);
    let (logprobs, counts) = (completion.logprobs()?, completion.counts(&options)?);
    let suffix = completion.suffix.filter(|suffix| !suffix.is_empty());
    if suffix.is_none() {
        options.limit_to(MAX_TOKENS);
    }
    // With max_tokens 0 scoring is the only work; it also lets the engine check the prompt's length.
    let score_prompt = echo && (logprobs.is_some() || options.max_tokens == Some(0));
    // The best outputs are the most probable ones.
    let ranked = counts.generated > counts.returned;
    let needed = if ranked { Some(logprobs.unwrap_or(0)) } else { logprobs };
    let mut requests = match &suffix {
        None => {
            let prompts = completion.prompt.cut(model, options.truncates());
            let prompts = prompts.encode(model, "prompt", MAX_PROMPTS)?;
            let request = |tokens| options.request(model, &body.tenant, tokens, needed);
            prompts.into_iter().map(request).collect::<Result<Vec<_>, _>>()?
        }
        Some(_) if echo => {
            return Err(ApiError::bad("echo", "`echo` does not work with `suffix`: leave it out"));
        }
        Some(suffix) => {
            let prompts = completion.prompt.texts("prompt", MAX_PROMPTS)?;
            let request = |prompt: &String| {
                let hole = Hole::new((prompt, "prompt"), (suffix, "suffix"));
                let hole = Hole { tokens: Some(MAX_TOKENS), ..hole };
                hole.request(model, body, &options, needed)
            };
            prompts.iter().map(request).collect::<Result<_, _>>()?
        }
    };
    for request in &mut requests {
        request.sampling.score_prompt |= score_prompt;
        request.watch = replaces;
    }
    let echoes = echo.then(|| requests.iter().map(|request| request.tokens.clone()).collect());
    let (streams, usage) = (options.streams(), options.stream_usage()?);
    let text = PlainText { field: "prompt", requests, grammar };
    let extras = Extras {
        prompt_logprobs: options.prompt_logprobs()?,
        token_ids: options.returns_token_ids(),
        by_id: options.names_tokens_by_id(),
    };
    Ok(Prepared { streams, usage, text, echoes, logprobs, counts, extras })
}

/// Continues texts.
pub async fn completions(body: JsonBody) -> Result<Response, ApiError> {
    loading::answer(body, respond, check, SignFormat::Completions).await
}

async fn respond(body: JsonBody) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let (own, arrival) = (model.clone(), body.arrival());
    let prepared = body.prepare(move |body| prepare(body, &own)).await?;
    let Prepared { streams, usage, text, echoes, logprobs, counts, extras } = prepared;
    let OutputCounts { returned: n, generated: best_of } = counts;
    let prompts = text.requests.len();
    // A copy only if the response has it: a prompt may be as large as its body.
    let copied = text.requests.iter().filter(|_| extras.token_ids);
    let tokens = copied.map(|request| request.tokens.clone()).collect();
    let mut generation = text.start(&model, arrival, best_of).await?;
    let formatter = CompletionFormatter {
        envelope: Envelope {
            id: ids::new("cmpl"),
            whole: "text_completion",
            chunk: "text_completion",
            created: unix_now(),
            model: model.name.clone(),
            usage,
        },
        logprobs,
        extras,
        prompts: tokens,
        count: prompts * n,
        offsets: vec![0; prompts * n],
        echoes,
        n,
        model: model.label(),
    };
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let mut outputs = generation.collect().await?;
    if best_of > n {
        outputs = outputs.chunks(best_of).flat_map(|of| best(of, n)).collect();
    }
    let reports: Vec<_> = outputs.iter_mut().map(|output| output.report.take()).collect();
    let mut body = aside(|| formatter.whole(&outputs, &generation));
    attach(&mut body, &reports);
    Ok(Json(body).into_response())
}

/// Returns the `n` outputs with the highest mean log-probability per token, best first.
fn best(outputs: &[RequestOutput], n: usize) -> Vec<RequestOutput> {
    let mean = |output: &RequestOutput| {
        let sum: f32 = output.tokens.iter().filter_map(|t| t.logprob).sum();
        sum / output.tokens.len().max(1) as f32
    };
    let mut outputs = outputs.to_vec();
    outputs.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    outputs.truncate(n);
    outputs
}
