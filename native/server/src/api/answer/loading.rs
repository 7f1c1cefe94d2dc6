//! Streams signs of life to requests that wait: for their model, their turn or their grammar.

use super::stream::KEEP_ALIVE;
use crate::api::anthropic::error::body as anthropic_error;
use crate::api::body::{BodyCheck, JsonBody, WaitingStream};
use crate::api::llama_server as llama;
use crate::api::ollama::{self, Shape};
use crate::error::ApiError;
use crate::operation::request_log::RequestRecord;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

/// Interval between two progress events.
const INTERVAL: Duration = Duration::from_secs(1);

/// Format of signs and errors in a stream.
#[derive(Clone, Copy)]
pub enum SignFormat {
    /// OpenAI's completions: the error, then `[DONE]`.
    Completions,
    /// OpenAI's Responses API.
    Responses,
    /// Anthropic's API.
    Anthropic,
    /// llama-server's API.
    Llama,
    /// Ollama's API: lines of JSON.
    Ollama(Shape),
}

/// Answers a request with `handler`. If the request is for a stream, the stream begins at once with signs
/// about the progress where its model is not in memory, and where the answer takes longer than the signs
/// of a stream are apart. `check` finds before what is wrong with the body whatever the model: a stream
/// has the status 200.
///
/// # Errors
/// Those of the body and of `handler`.
pub async fn answer<F>(
    body: JsonBody,
    handler: impl FnOnce(JsonBody) -> F,
    check: BodyCheck,
    format: SignFormat,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    let Some(waiting) = body.waits_in_a_stream(matches!(format, SignFormat::Ollama(_))) else {
        return handler(body).await;
    };
    let body = match waiting.progress {
        Some(_) => body.checked_by(check).await?,
        None => body,
    };
    // The stream is read outside of the handler, which has the record of the request.
    let (record, answer) = (RequestRecord::current(), handler(body));
    let mut answer: BoxFuture<'static, _> = match record {
        Some(record) => Box::pin(record.scope(answer)),
        None => Box::pin(answer),
    };
    // Ollama's clients know no comments, and few lines without text.
    let loads = waiting.progress.is_some() && !matches!(format, SignFormat::Ollama(_));
    if !loads && let Ok(answered) = timeout(KEEP_ALIVE, &mut answer).await {
        return answered;
    }
    let mut interval = interval(if loads { INTERVAL } else { KEEP_ALIVE });
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let state = Stage::Waiting { answer, interval, waiting, format };
    let pieces = stream::unfold(state, Stage::next);
    let mut response = Body::from_stream(pieces.map(Ok::<_, Infallible>)).into_response();
    let kind = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    let no_cache = HeaderValue::from_static("no-cache");
    response.headers_mut().insert(header::CACHE_CONTROL, no_cache);
    Ok(response)
}

/// Stage of a stream that began before its answer.
enum Stage {
    Waiting {
        answer: BoxFuture<'static, Result<Response, ApiError>>,
        interval: Interval,
        waiting: WaitingStream,
        format: SignFormat,
    },
    Answering(BodyDataStream),
    Ended,
}

impl Stage {
    /// Returns the next piece of the stream.
    async fn next(self) -> Option<(Bytes, Self)> {
        match self {
            Self::Waiting { mut answer, mut interval, waiting, format } => {
                tokio::select! {
                    biased;
                    answered = &mut answer => match answered {
                        Ok(response) => {
                            let body = response.into_body().into_data_stream();
                            let sign = format.sign("ready", &waiting.model);
                            Some((sign.into(), Self::Answering(body)))
                        }
                        Err(error) => Some((format.event(&error).into(), Self::Ended)),
                    },
                    _ = interval.tick() => {
                        let progress = waiting.progress.as_ref();
                        let progress = progress.map_or("waiting".into(), |progress| progress());
                        let sign = format.sign(&progress, &waiting.model);
                        Some((sign.into(), Self::Waiting { answer, interval, waiting, format }))
                    }
                }
            }
            Self::Answering(mut body) => {
                let piece = body.next().await?.ok()?;
                Some((piece, Self::Answering(body)))
            }
            Self::Ended => None,
        }
    }
}

impl SignFormat {
    fn content_type(self) -> &'static str {
        match self {
            Self::Ollama(_) => "application/x-ndjson",
            _ => "text/event-stream",
        }
    }

    /// Returns a sign of life of this model: a comment about the progress, or an empty text.
    fn sign(self, progress: &str, model: &str) -> String {
        match self {
            Self::Ollama(shape) => format!("{}\n", ollama::empty_part(model, shape)),
            _ => format!(": {}\n\n", progress.replace(['\r', '\n'], " ")),
        }
    }

    /// Returns the text of an event with an error.
    fn event(self, error: &ApiError) -> String {
        match self {
            Self::Completions => format!("data: {}\n\ndata: [DONE]\n\n", error.body()),
            Self::Responses => {
                let (code, message) = (error.code, &error.message);
                let event = serde_json::json!({
                    "type": "error", "code": code, "message": message, "param": error.param,
                });
                format!("event: error\ndata: {event}\n\n")
            }
            Self::Llama => format!("data: {}\n\n", llama::error_body(error)),
            Self::Anthropic => format!("event: error\ndata: {}\n\n", anthropic_error(error)),
            Self::Ollama(_) => format!("{}\n", ollama::error_body(error)),
        }
    }
}
