//! `POST /api/pull` and `DELETE /api/delete`: clients change the local store, where the operator allows it.

use super::body::{OllamaModelFields, OllamaPullFields};
use super::models::digest;
use super::{body as ollama, error};
use crate::api::body::{Body, JsonBody, KnownFields, parse};
use crate::error::ApiError;
use crate::registry::ModelStatus;
use crate::state::ServerState;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, body};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use wrinklefree_easy::models::Progress;
use wrinklefree_easy::models::store::Store;

/// Shortest time between two lines about a download.
const INTERVAL: Duration = Duration::from_millis(200);
/// Lines that wait for a client. More are dropped: each has the state of its file.
const LINES: usize = 16;
/// Hosts that Ollama's clients write before hub ids.
const HOSTS: [&str; 2] = ["hf.co/", "huggingface.co/"];
/// Revision that is downloaded.
const REVISION: &str = "main";

/// Fields of `/api/pull`.
static PULL: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(ollama::PULL, &["insecure"]).and(["name"]));
/// Fields of `/api/delete`.
static DELETE: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(ollama::MODEL, &[]).and(["name"]));

/// Tells a client how far a download is. A client that has gone cancels it.
struct PullProgress {
    lines: Sender<Value>,
    file: String,
    total: u64,
    completed: u64,
    sent: Option<Instant>,
}

impl PullProgress {
    fn send(&mut self) {
        let Self { file, total, completed, .. } = self;
        let _ = self.lines.try_send(json!({
            "status": format!("pulling {file}"),
            "digest": format!("sha256:{}", digest(file)),
            "total": total,
            "completed": completed,
        }));
        self.sent = Some(Instant::now());
    }
}

impl Progress for PullProgress {
    fn download_started(&mut self, file: &str, bytes: u64) {
        (self.file, self.total, self.completed) = (file.into(), bytes, 0);
        self.send();
    }

    fn downloaded(&mut self, bytes: u64) {
        self.completed += bytes;
        if self.sent.is_none_or(|sent| sent.elapsed() >= INTERVAL) {
            self.send();
        }
    }

    fn download_finished(&mut self) {
        self.completed = self.total;
        self.send();
    }

    fn is_cancelled(&self) -> bool {
        self.lines.is_closed()
    }
}

/// Checks that clients may change the store.
///
/// # Errors
/// 403 if the operator does not allow it, and 503 during shutdown.
fn check_allowed(server: &ServerState) -> Result<(), ApiError> {
    server.serves()?;
    if server.manage_models {
        return Ok(());
    }
    let message = "clients may not change the models of this server: start it with --models store and \
                   --manage-models";
    Err(ApiError::new(StatusCode::FORBIDDEN, "not_allowed", message))
}

/// Returns the hub id of a body, without a host before it and `:latest` after it.
///
/// # Errors
/// If it is none.
fn hub_id(name: &str) -> Result<String, ApiError> {
    let id = HOSTS.iter().find_map(|host| name.strip_prefix(host)).unwrap_or(name);
    let id = id.strip_suffix(":latest").unwrap_or(id);
    let checked = Store::from_env().check_id(id);
    checked.map_err(|error| ApiError::bad("model", format!("{error:#}")))?;
    Ok(id.into())
}

/// Parses the body of `/api/pull`.
fn prepare_pull(body: &Body) -> Result<(String, bool), ApiError> {
    PULL.check(body)?;
    let (OllamaModelFields { model }, fields): (_, OllamaPullFields) = (parse(body)?, parse(body)?);
    Ok((hub_id(&model)?, fields.stream.unwrap_or(true)))
}

/// Downloads a model of the hub.
pub async fn pull(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    check_allowed(&server)?;
    let (id, streams) = body.prepare(prepare_pull).await?;
    let Ok(permit) = server.pulls.clone().try_acquire_owned() else {
        let message = "another model is being pulled: try again later";
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message));
    };
    let (lines, receiver) = channel(LINES);
    tokio::spawn(async move {
        let (own, sender) = (server.clone(), lines.clone());
        let work = move || download(&own, &id, &sender).unwrap_or_else(|error| error::body(&error));
        let mut work = tokio::task::spawn_blocking(work);
        tokio::select! {
            last = &mut work => {
                // The permit is free when the client has the last line.
                drop(permit);
                if let Ok(last) = last {
                    let _ = lines.send(last).await;
                }
            }
            () = lines.closed() => {
                // A hub that sends nothing is noticed after 30 s. Another client need not wait for that.
                if let Ok(_left) = server.left_pulls.clone().try_acquire_owned() {
                    drop(permit);
                    let _ = work.await;
                } else {
                    let _ = work.await;
                    drop(permit);
                }
            }
        }
    });
    let mut lines = ReceiverStream::new(receiver);
    if streams {
        let lines = lines.map(|line| Ok::<_, Infallible>(format!("{line}\n")));
        let json_lines = [(header::CONTENT_TYPE, "application/x-ndjson")];
        return Ok((json_lines, body::Body::from_stream(lines)).into_response());
    }
    let mut last = Value::Null;
    while let Some(line) = lines.next().await {
        last = line;
    }
    match last["error"].as_str() {
        None => Ok(Json(last).into_response()),
        Some(message) => Err(ApiError::new(StatusCode::BAD_GATEWAY, "pull_failed", message)),
    }
}

/// Downloads a model and takes it into the list of models. Returns the last line.
fn download(server: &ServerState, id: &str, lines: &Sender<Value>) -> Result<Value, ApiError> {
    let _ = lines.blocking_send(json!({"status": "pulling manifest"}));
    let (file, lines) = (String::new(), lines.clone());
    let mut progress = PullProgress { lines, file, total: 0, completed: 0, sent: None };
    let pulled = Store::from_env().pull(id, REVISION, None, &mut progress);
    let pulled = pulled.inspect_err(|error| tracing::warn!(model = id, "cannot pull: {error:#}"));
    pulled.map_err(|error| failed(&error))?;
    tracing::info!(model = id, "pulled");
    server.models.read_catalog();
    Ok(json!({"status": "success"}))
}

/// Deletes a model from the store. One that is in memory is unloaded first.
pub async fn delete(
    State(server): State<Arc<ServerState>>,
    body: JsonBody,
) -> Result<StatusCode, ApiError> {
    check_allowed(&server)?;
    let fields = body.prepare(|body| DELETE.check(body).and_then(|()| parse(body)));
    let OllamaModelFields { model } = fields.await?;
    server.models.rescan().await;
    // The state of a loaded model would keep it in memory.
    let find = |status: &ModelStatus| status.has_name(&model);
    let found = server.models.list().into_iter().find(find).map(|s| (s.name, s.state));
    let Some((name, state)) = found else { return Err(server.models.unknown(&model)) };
    if state != "unloaded" {
        server.models.unload(&name).await?;
    }
    let removed = tokio::task::spawn_blocking(move || {
        let removed = Store::from_env().remove(&name);
        server.models.read_catalog();
        removed
    });
    removed.await.map_err(ApiError::internal)?.map_err(|error| failed(&error))?;
    Ok(StatusCode::OK)
}

/// Returns the error of the hub or the store.
fn failed(error: &anyhow::Error) -> ApiError {
    ApiError::new(StatusCode::BAD_GATEWAY, "store_failed", format!("{error:#}"))
}
