//! `POST /v1/chat/completions`.

use super::generation::{Answer, Generation, reason_name};
use super::options::{MAX_TOP, Options, parse};
use super::stream::{self, Chunks, Envelope};
use super::{Body, id, logprob, refuse};
use crate::chat_prompt;
use crate::serve::error::ApiError;
use crate::serve::state::{Ready, Server, now};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::spawn_blocking;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;
use wrinklefree::text::Message;

/// The fields that only chat has.
#[derive(Deserialize)]
struct Chat {
    messages: Vec<ChatMessage>,
    #[serde(default)]
    logprobs: Option<bool>,
    #[serde(default)]
    top_logprobs: Option<usize>,
}

/// A message.
#[derive(Deserialize)]
pub struct ChatMessage {
    role: String,
    #[serde(default)]
    content: Option<Content>,
}

/// A text, or parts of one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or an array of text parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

impl ChatMessage {
    /// As templates take it.
    fn into_message(self, index: usize) -> Result<Message, ApiError> {
        let content = match self.content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                let text = |part: Part| match (part.kind.as_str(), part.text) {
                    ("text", Some(text)) => Ok(text),
                    (kind, _) => Err(ApiError::bad(
                        format!("messages[{index}].content"),
                        format!("this model takes text only, not a part of type `{kind}`"),
                    )),
                };
                parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n")
            }
        };
        Ok(Message { role: self.role, content })
    }
}

/// The conversation in a body as the text that the model continues.
pub fn render(ready: &Ready, messages: Vec<ChatMessage>) -> Result<String, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::bad("messages", "messages is empty: say at least one"));
    }
    let Some(template) = &ready.template else {
        return Err(ApiError::bad(
            "messages",
            format!("{} has no chat template: /v1/completions continues plain text", ready.name),
        ));
    };
    let messages: Vec<Message> = (messages.into_iter().enumerate())
        .map(|(index, message)| message.into_message(index))
        .collect::<Result<_, _>>()?;
    chat_prompt::render(template, &messages)
        .map_err(|e| ApiError::bad("messages", format!("the chat template refuses them: {e}")))
}

/// Answers a conversation.
pub async fn chat(
    State(server): State<Arc<Server>>,
    Body { value: body, tenant }: Body,
) -> Result<Response, ApiError> {
    let ready = server.ready()?;
    let options: Options = parse(&body)?;
    let chat: Chat = parse(&body)?;
    options.check_model(&ready)?;
    refuse(&body, &["tools", "functions", "audio", "response_format"])?;
    let n = options.n()?;
    let logprobs = match (chat.logprobs.unwrap_or(false), chat.top_logprobs) {
        (_, Some(top)) if top > MAX_TOP => {
            let message = format!("top_logprobs is {top}, {MAX_TOP} at most");
            return Err(ApiError::bad("top_logprobs", message));
        }
        (false, Some(_)) => {
            return Err(ApiError::bad("top_logprobs", "top_logprobs needs `logprobs: true`"));
        }
        (wanted, top) => wanted.then_some(top.unwrap_or(0)),
    };
    // Long prompts take a while, and nothing else may wait for them.
    let (prepared, own) = (options.clone(), ready.clone());
    let request = spawn_blocking(move || {
        let text = render(&own, chat.messages)?;
        let tokens = own.tokenizer.encode(&text, false);
        let tokens = tokens.map_err(|e| ApiError::bad("messages", e.to_string()))?;
        prepared.request(&own, &tenant, tokens, logprobs)
    });
    let request = request.await.map_err(ApiError::internal)??;
    let requests = super::copies(&request, n);
    let mut generation =
        Generation::start(&ready.worker, requests, "messages", server.limits.time).await?;
    let shape = Shape {
        envelope: Envelope {
            id: id("chatcmpl"),
            whole: "chat.completion",
            chunk: "chat.completion.chunk",
            created: now(),
            model: ready.name.clone(),
            include_usage: options.include_usage(),
        },
        logprobs: logprobs.is_some(),
        ready,
    };
    if options.streams() {
        return Ok(stream::respond(generation, shape));
    }
    let answers = generation.collect().await?;
    let choices: Vec<Value> =
        answers.iter().enumerate().map(|(index, answer)| shape.choice(index, answer)).collect();
    Ok(Json(shape.envelope.whole(&choices, &generation)).into_response())
}

/// How answers look.
struct Shape {
    envelope: Envelope,
    logprobs: bool,
    ready: Arc<Ready>,
}

impl Shape {
    fn choice(&self, index: usize, answer: &Answer) -> Value {
        let content: Vec<Value> = answer.tokens.iter().map(|t| self.logprob(t)).collect();
        json!({
            "index": index,
            "message": {"role": "assistant", "content": answer.text, "refusal": null},
            "logprobs": self.logprobs.then(|| json!({"content": content, "refusal": null})),
            "finish_reason": answer.reason.map(reason_name),
        })
    }

    fn logprob(&self, sampled: &Sampled) -> Value {
        let tokenizer = &self.ready.tokenizer;
        let mut entry = logprob(tokenizer, sampled.token, sampled.logprob.unwrap_or(0.0));
        let top = sampled.top.iter().map(|&(token, p)| logprob(tokenizer, token, p));
        entry["top_logprobs"] = top.collect();
        entry
    }

    fn chunk(&self, index: usize, delta: Value, logprobs: Value, reason: Value) -> Value {
        self.envelope.chunk(json!({
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": reason,
        }))
    }
}

impl Chunks for Shape {
    fn first(&self, index: usize) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        Some(self.chunk(index, delta, Value::Null, Value::Null))
    }

    fn token(&self, index: usize, sampled: &Sampled, text: &str) -> Option<Value> {
        if text.is_empty() && !self.logprobs {
            return None;
        }
        let logprobs = match self.logprobs {
            true => json!({"content": [self.logprob(sampled)], "refusal": null}),
            false => Value::Null,
        };
        Some(self.chunk(index, json!({"content": text}), logprobs, Value::Null))
    }

    fn finish(&self, index: usize, reason: FinishReason, text: &str) -> Value {
        let delta = if text.is_empty() { json!({}) } else { json!({"content": text}) };
        self.chunk(index, delta, Value::Null, reason_name(reason).into())
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}
