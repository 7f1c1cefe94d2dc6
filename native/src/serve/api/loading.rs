//! Streams progress to requests whose model is still loading.

use super::body::{BodyCheck, JsonBody, Progress};
use super::messages::error_body;
use crate::serve::error::ApiError;
use crate::serve::request_log::RequestRecord;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Interval between two progress events.
const INTERVAL: Duration = Duration::from_secs(1);

/// Format of an error event in a stream.
#[derive(Clone, Copy)]
pub enum ErrorEvent {
    /// OpenAI's completions: the error, then `[DONE]`.
    Completions,
    /// OpenAI's Responses API.
    Responses,
    /// Anthropic's API.
    Anthropic,
}

/// Answers a request with `handler`. If the request is for a stream and its model is not in memory, the
/// stream begins at once with comments about the progress. `check` finds before what is wrong with the
/// body whatever the model: a stream has the status 200.
///
/// # Errors
/// Those of the body and of `handler`.
pub async fn answer<F>(
    body: JsonBody,
    handler: impl FnOnce(JsonBody) -> F,
    check: BodyCheck,
    format: ErrorEvent,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    let (waits, body) = body.waits_in_a_stream(check).await?;
    let Some(progress) = waits else { return handler(body).await };
    let mut interval = interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The stream is read outside of the handler, which has the record of the request.
    let (record, answer) = (RequestRecord::current(), handler(body));
    let answer: BoxFuture<'static, _> = match record {
        Some(record) => Box::pin(record.scope(answer)),
        None => Box::pin(answer),
    };
    let state = Stage::Loading { answer, interval, progress, format };
    let pieces = stream::unfold(state, Stage::next);
    let mut response = Body::from_stream(pieces.map(Ok::<_, Infallible>)).into_response();
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    let no_cache = HeaderValue::from_static("no-cache");
    response.headers_mut().insert(header::CACHE_CONTROL, no_cache);
    Ok(response)
}

/// Stage of a stream that began before its model was loaded.
enum Stage {
    Loading {
        answer: BoxFuture<'static, Result<Response, ApiError>>,
        interval: Interval,
        progress: Progress,
        format: ErrorEvent,
    },
    Answering(BodyDataStream),
    Ended,
}

impl Stage {
    /// Returns the next piece of the stream.
    async fn next(self) -> Option<(Bytes, Self)> {
        match self {
            Self::Loading { mut answer, mut interval, progress, format } => {
                tokio::select! {
                    biased;
                    answered = &mut answer => match answered {
                        Ok(response) => {
                            let body = response.into_body().into_data_stream();
                            Some((Bytes::from_static(b": loaded\n\n"), Self::Answering(body)))
                        }
                        Err(error) => Some((format.event(&error).into(), Self::Ended)),
                    },
                    _ = interval.tick() => {
                        let comment = format!(": {}\n\n", progress().replace(['\r', '\n'], " "));
                        Some((comment.into(), Self::Loading { answer, interval, progress, format }))
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

impl ErrorEvent {
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
            Self::Anthropic => format!("event: error\ndata: {}\n\n", error_body(error)),
        }
    }
}
