//! `GET /slots` and `POST /slots/{id}`: saves and restores the prompt cache of a slot in a file.

use super::body::SlotFields;
use crate::access::keys::Tenant;
use crate::api::body::{JsonBody, parse};
use crate::api::status::ModelQuery;
use crate::engine::chunk_file::{ChunkReader, ChunkWriter, MAX_CHUNK, Magic};
use crate::engine::served_model::ServedModel;
use crate::engine::slots::SlotText;
use crate::error::ApiError;
use crate::state::ServerState;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use std::{fs, io};
use tokio::sync::Semaphore;
use wrinklefree::cache::{KvPool, PAGE, SavedError, SavedPrefix, StateShape};
use wrinklefree::engine::Engine;

/// First bytes of a file.
const MAGIC: Magic = *b"WFSLOT2\n";
/// Maximum length of a file's name in bytes.
const MAX_NAME: usize = 255;
/// Maximum number of files of one client, and of their bytes.
const MAX_FILES: usize = 64;
const MAX_BYTES: u64 = 8 << 30;
/// Names that mean devices on Windows, whatever stands after a dot.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

/// The first chunk of a file, as JSON. The pages and the recurrent states follow.
#[derive(Deserialize, Serialize)]
struct Header {
    /// Properties of the model and of its cache that must be the same.
    model: Value,
    /// Tokens of the text.
    tokens: Vec<u32>,
    /// Positions of a block of finished tokens.
    block: usize,
    /// Positions after which recurrent states are kept.
    states: Vec<usize>,
}

/// Lists the slots.
pub async fn list(
    State(server): State<Arc<ServerState>>,
    ModelQuery(name): ModelQuery,
    RawQuery(query): RawQuery,
    tenant: Option<Extension<Tenant>>,
) -> Result<Json<Value>, ApiError> {
    let model = server.loaded(name.as_deref())?;
    let Extension(tenant) = tenant.unwrap_or_default();
    let states = model.slots.states(&tenant.unsalted());
    let query = query.unwrap_or_default();
    if query.contains("fail_on_no_slot") && states.iter().all(|(busy, _)| *busy) {
        return Err(ApiError::unavailable("no slot is free"));
    }
    let kept = kept_states(&model, &tenant).await;
    let slot = |(id, (busy, tokens)): (usize, (bool, usize))| {
        let mut slot =
            json!({"id": id, "n_ctx": model.context, "is_processing": busy, "n_past": tokens});
        if let Some(kept) = &kept {
            slot["n_states"] = kept[id].into();
        }
        slot
    };
    Ok(Json(states.into_iter().enumerate().map(slot).collect()))
}

/// Returns the number of recurrent states that the prefix cache keeps of each slot's text, of a tenant's
/// texts. `None` for a model without such states.
async fn kept_states(model: &ServedModel, tenant: &Tenant) -> Option<Vec<usize>> {
    if !model.is_recurrent() {
        return None;
    }
    // Counting takes time of the engine's thread: one at a time.
    static COUNTING: Semaphore = Semaphore::const_new(1);
    let _one = COUNTING.acquire().await.ok()?;
    let (slots, salt) = (model.slots.clone(), tenant.unsalted());
    let count = move |engine: &mut Engine| {
        let kept =
            |text: &SlotText| engine.continuations((&text.salt, text.block), &text.tokens).len();
        slots.of_texts(&salt, kept)
    };
    model.engine.run(count).await
}

/// Saves, restores or erases the prompt cache of a slot.
pub async fn change(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let (model, body) = body.or_empty().with_model().await?;
    let tenant = body.tenant();
    let fields: SlotFields = body.prepare(parse).await?;
    let slot = id.parse::<usize>().ok().filter(|&id| id < model.slots.count());
    let Some(slot) = slot else {
        let message = format!("`{id}` is no slot: expected a number below {}", model.slots.count());
        return Err(ApiError::bad("id_slot", message));
    };
    let query = query.unwrap_or_default();
    let action = query.split('&').find_map(|pair| pair.strip_prefix("action="));
    let file = |fields: SlotFields| path(&server, &tenant, fields.filename);
    match action {
        Some("save") => save(&model, slot, &tenant, file(fields)?).await,
        Some("restore") => restore(&model, slot, &tenant, file(fields)?).await,
        Some("erase") => erase(&model, slot, &tenant).await,
        _ => Err(ApiError::bad("action", "action must be save, restore or erase")),
    }
}

/// Returns the place of a tenant's file, and its name. Each API key has a folder of its own.
fn path(
    server: &ServerState,
    tenant: &Tenant,
    name: Option<String>,
) -> Result<(PathBuf, String), ApiError> {
    let Some(folder) = &server.slot_save_path else {
        let message = "this server saves no slots: start it with --slot-save-path DIR";
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "unsupported", message));
    };
    let name = name.unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty()
        || name.len() > MAX_NAME
        || name.starts_with('.')
        || name.ends_with('.')
        || !name.chars().all(allowed)
        || is_device(&name)
    {
        let message = "filename must be 1 to 255 letters, digits, `.`, `_` and `-`, not begin or end \
                       with `.`, and not be the name of a device, such as `nul`";
        return Err(ApiError::bad("filename", message));
    }
    let folder = match server.keys().folder(tenant) {
        Some(own) => folder.join(own),
        None if *tenant == Tenant::default() => folder.clone(),
        None => return Err(ApiError::unavailable("the key is not accepted any more")),
    };
    Ok((folder.join(&name), name))
}

/// Returns true for a name that Windows takes for a device: `nul`, `COM1.slot`.
fn is_device(name: &str) -> bool {
    let base = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    DEVICES.contains(&base.trim_end_matches(|c: char| c.is_ascii_digit()))
}

/// Checks that a client's folder has room for a file of so many bytes, which replaces one of its name.
fn check_quota(path: &FilePath, bytes: u64) -> anyhow::Result<()> {
    let (mut files, mut used) = (1, bytes);
    for entry in path.parent().map(fs::read_dir).transpose()?.into_iter().flatten() {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && entry.path() != path {
            (files, used) = (files + 1, used + metadata.len());
        }
    }
    if files > MAX_FILES || used > MAX_BYTES {
        let message = format!(
            "this client may save {MAX_FILES} files of {} GiB together: save to a name that exists",
            MAX_BYTES >> 30
        );
        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message).into());
    }
    Ok(())
}

/// Returns the text of a slot, empty if it is another tenant's, or has a `cache_salt`: only who knows the
/// salt may use its cache, and a file would not know it.
fn own_text(model: &ServedModel, slot: usize, tenant: &Tenant) -> SlotText {
    let text = model.slots.text(slot).unwrap_or_default();
    if text.salt == tenant.unsalted() { text } else { SlotText::default() }
}

async fn save(
    model: &Arc<ServedModel>,
    slot: usize,
    tenant: &Tenant,
    (path, name): (PathBuf, String),
) -> Result<Json<Value>, ApiError> {
    let started = Instant::now();
    let text = own_text(model, slot, tenant);
    let SlotText { mut tokens, salt, block } = text;
    let all = tokens.clone();
    let saved = model.engine.run(move |engine| engine.save_prefix((&salt, block), &all)).await;
    let saved = saved.ok_or_else(stopped)?;
    tokens.truncate(saved.positions);
    let states = saved.states.clone();
    let header = Header { model: model.cache_identity(), tokens, block, states };
    let written = move || write(&path, &header, &saved.bytes);
    let (positions, bytes) = blocking(written).await?;
    Ok(Json(json!({
        "id_slot": slot,
        "filename": name,
        "n_saved": positions,
        "n_written": bytes,
        "timings": {"save_ms": milliseconds(started)},
    })))
}

/// Writes a file. Returns its positions and its size in bytes.
fn write(path: &FilePath, header: &Header, pages: &[u8]) -> anyhow::Result<(usize, u64)> {
    let json = serde_json::to_vec(header)?;
    // The operator's folder exists, a key's may not.
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    check_quota(path, (json.len() + pages.len()) as u64)?;
    let mut file = ChunkWriter::new(path, MAGIC)?;
    file.write(&json)?;
    file.write_all(pages)?;
    Ok((header.tokens.len(), file.keep()?))
}

async fn restore(
    model: &Arc<ServedModel>,
    slot: usize,
    tenant: &Tenant,
    (path, name): (PathBuf, String),
) -> Result<Json<Value>, ApiError> {
    let started = Instant::now();
    let (own, shown) = (model.clone(), name.clone());
    let (header, bytes, read) = tokio::task::spawn_blocking(move || read(&path, &shown, &own))
        .await
        .map_err(ApiError::internal)??;
    let Header { tokens, block, states, .. } = header;
    let saved = SavedPrefix { positions: tokens.len(), states, bytes };
    let salt = tenant.unsalted();
    let text = SlotText { tokens: tokens.clone(), salt: salt.clone(), block };
    let restored = model
        .engine
        .run(move |engine| engine.restore_prefix((&salt, block), &tokens, &saved))
        .await;
    let positions = restored.ok_or_else(stopped)?.map_err(refused)?;
    model.slots.set_text(slot, text);
    Ok(Json(json!({
        "id_slot": slot,
        "filename": name,
        "n_restored": positions,
        "n_read": read,
        "timings": {"restore_ms": milliseconds(started)},
    })))
}

/// Reads a file. Returns its header, its pages and its size in bytes.
fn read(
    path: &FilePath,
    name: &str,
    model: &ServedModel,
) -> Result<(Header, Vec<u8>, usize), ApiError> {
    let bad = |message: String| ApiError::bad("filename", format!("{name}: {message}"));
    let unreadable = |error: io::Error| bad(format!("cannot read it: {error}"));
    let length = fs::metadata(path).map_err(unreadable)?.len();
    let pages = KvPool::bytes(&model.spec, model.context.div_ceil(PAGE), &model.kv);
    let state = StateShape::of(&model.spec).map_or(0, |shape| shape.snapshot_bytes());
    let states = state.saturating_mul(model.kv.states.snapshots);
    let most = pages.saturating_add(states).saturating_add(2 * MAX_CHUNK);
    if length > most as u64 {
        return Err(bad(format!("it has {length} bytes, more than a context of this model takes")));
    }
    let damaged = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => bad(error.to_string()),
        _ => unreadable(error),
    };
    let invalid = || bad("it is no saved slot".into());
    let mut file = ChunkReader::open(path, MAGIC).map_err(damaged)?;
    let json = file.next().map_err(damaged)?.ok_or_else(invalid)?;
    let header: Header = serde_json::from_slice(&json).map_err(|_| invalid())?;
    if header.model != model.cache_identity() {
        return Err(bad(
            "it was saved by another model, or with other settings of the cache".into()
        ));
    }
    if header.tokens.iter().any(|&token| token as usize >= model.vocab) || header.block == 0 {
        return Err(invalid());
    }
    let bytes = file.rest().map_err(damaged)?;
    Ok((header, bytes, length as usize))
}

async fn erase(
    model: &Arc<ServedModel>,
    slot: usize,
    tenant: &Tenant,
) -> Result<Json<Value>, ApiError> {
    let SlotText { tokens, salt, block } = own_text(model, slot, tenant);
    let count = tokens.len();
    let erased =
        model.engine.run(move |engine| engine.forget_prefix((&salt, block), &tokens)).await;
    erased.ok_or_else(stopped)?;
    if count > 0 {
        model.slots.set_text(slot, SlotText::default());
    }
    Ok(Json(json!({"id_slot": slot, "n_erased": count})))
}

/// Runs work with files on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?;
    done.map_err(|error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::QuotaExceeded) {
            return ApiError::bad("filename", error.to_string());
        }
        ApiError::internal(format!("{error:#}"))
    })
}

fn stopped() -> ApiError {
    ApiError::unavailable("the engine has stopped")
}

/// Returns the error of a cache that cannot be restored.
fn refused(error: SavedError) -> ApiError {
    match error {
        SavedError::Size { .. } => ApiError::bad("filename", error.to_string()),
        _ => ApiError::unavailable(error.to_string()),
    }
}

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
