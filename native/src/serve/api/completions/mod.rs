//! `POST /v1/completions`: OpenAI's API for text completions.

mod formatter;

use super::body::completions::{BODY, CompletionFields, OutputCounts};
use super::body::{Body, GenerationOptions, JsonBody, KnownFields, OutputFormatFields, parse};
use super::generation::{Generation, RequestOutput};
use super::stream::{self, Envelope};
use super::validation::{OutputValidator, attach};
use crate::serve::error::ApiError;
use crate::serve::grammars::RequestedGrammar;
use crate::serve::ids;
use crate::serve::served_model::ServedModel;
use crate::serve::state::now;
use axum::Json;
use axum::response::{IntoResponse, Response};
use formatter::{CompletionFormatter, Extras};
use std::sync::LazyLock;
use wrinklefree::engine::Request;

/// Maximum number of prompts per request.
const MAX_PROMPTS: usize = 32;
/// OpenAI's default number of tokens.
const MAX_TOKENS: usize = 16;

/// Fields of the body.
static FIELDS: LazyLock<KnownFields> = LazyLock::new(|| KnownFields::new(BODY, &[]));

/// A body that is parsed and tokenized.
struct Prepared {
    streams: bool,
    include_usage: bool,
    requests: Vec<Request>,
    grammar: Option<RequestedGrammar>,
    /// The prompts, if the response repeats them.
    echoes: Option<Vec<Vec<u32>>>,
    logprobs: Option<usize>,
    counts: OutputCounts,
    extras: Extras,
}

/// Parses and tokenizes a body.
fn prepare(body: &Body, model: &ServedModel) -> Result<Prepared, ApiError> {
    let mut options: GenerationOptions = parse(body)?;
    let completion: CompletionFields = parse(body)?;
    FIELDS.check(body)?;
    let grammar = parse::<OutputFormatFields>(body)?.grammar()?;
    let echo = completion.echo.unwrap_or(false);
    let (logprobs, counts) = (completion.logprobs()?, completion.counts(&options)?);
    options.limit_to(MAX_TOKENS);
    let max_tokens = options.max_tokens.unwrap_or(MAX_TOKENS);
    // With max_tokens 0 scoring is the only work; it also lets the engine check the prompt's length.
    let score_prompt = echo && (logprobs.is_some() || max_tokens == 0);
    // The best outputs are the most probable ones.
    let ranked = counts.generated > counts.returned;
    let needed = if ranked { Some(logprobs.unwrap_or(0)) } else { logprobs };
    let prompts = completion.prompt.encode(model, "prompt", MAX_PROMPTS)?;
    let echoes = echo.then(|| prompts.clone());
    let request = |tokens: Vec<u32>| {
        let mut request = options.request(model, &body.tenant, tokens, needed)?;
        request.sampling.score_prompt |= score_prompt;
        Ok(request)
    };
    let requests = prompts.into_iter().map(request).collect::<Result<_, ApiError>>()?;
    let (streams, include_usage) = (options.streams(), options.include_usage());
    let extras = Extras {
        prompt_logprobs: options.prompt_logprobs()?,
        token_ids: options.returns_token_ids(),
    };
    Ok(Prepared { streams, include_usage, requests, grammar, echoes, logprobs, counts, extras })
}

/// Continues texts.
pub async fn completions(body: JsonBody) -> Result<Response, ApiError> {
    let (model, body) = body.with_model().await?;
    let (own, arrival) = (model.clone(), body.arrival());
    let prepared = body.prepare(move |body| prepare(body, &own)).await?;
    let Prepared { streams, include_usage, mut requests, grammar, echoes, logprobs, .. } = prepared;
    let Prepared { counts, extras, .. } = prepared;
    let OutputCounts { returned: n, generated: best_of } = counts;
    let mut left_out = Vec::new();
    if let Some(requested) = &grammar {
        let (compiled, without) = model.grammars.compile(requested, &arrival).await?;
        for request in &mut requests {
            request.sampling.constraint = Some(compiled.constraint.clone());
        }
        left_out = without;
    }
    let validator = OutputValidator::new(&model.grammars, grammar, left_out, arrival, None);
    let prompts = requests.len();
    let started = Generation::start(&model.engine, arrival, &requests, best_of, "prompt").await?;
    let mut generation = started.with_validator(validator);
    let formatter = CompletionFormatter {
        envelope: Envelope {
            id: ids::new("cmpl"),
            whole: "text_completion",
            chunk: "text_completion",
            created: now(),
            model: model.name.clone(),
            include_usage,
        },
        logprobs,
        extras,
        prompts: requests.into_iter().map(|request| request.tokens).collect(),
        count: prompts * n,
        offsets: vec![0; prompts * n],
        echoes,
        n,
        model,
    };
    if streams {
        return Ok(stream::respond(generation, formatter));
    }
    let mut outputs = generation.collect().await?;
    if best_of > n {
        outputs = outputs.chunks(best_of).flat_map(|of| best(of, n)).collect();
    }
    let reports: Vec<_> = outputs.iter_mut().map(|output| output.report.take()).collect();
    let mut body = formatter.whole(&outputs, &generation);
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
