//! Request bodies: the structs that they are parsed into, one file per API, and the extractor.
//!
//! The OpenAPI document is generated from these structs, so their doc comments are published. A body
//! is parsed into each struct whose fields it may have: serde's `flatten` would lose the path of an
//! invalid field.

pub mod aliases;
pub mod allowed_tokens;
pub mod content;
pub mod diffusing;
pub mod format;
pub mod is_set;
pub mod known;
pub mod model;
pub mod options;
pub mod prompts;
pub mod samplers;
pub mod sampling;
pub mod speculative;
pub mod surrogates;
pub mod weight;
pub mod wrong_field;

pub use allowed_tokens::only_one;
pub use diffusing::DiffusingFields;
pub use format::OutputFormatFields;
pub use known::KnownFields;
pub use options::{GenerationOptions, Side, StreamUsage, Texts};
pub use prompts::Prompts;
pub use speculative::SpeculativeType;

use crate::access::admission::BodyPermit;
use crate::access::client::Client;
use crate::access::keys::Tenant;
use crate::engine::arrival::Arrival;
use crate::engine::served_model::ServedModel;
use crate::engine::text_limits::TextLimits;
use crate::error::ApiError;
use crate::ignored::IgnoredFields;
use crate::state::ServerState;
use axum::body::BodyDataStream;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use futures_util::StreamExt;
use is_set::SetFields;
use model::{ModelFields, StreamField};
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::{Deserializer, Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use weight::Refused;

/// Time limit between two pieces of a body.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// Most bytes of a refused body that are read, and the time for it.
const DRAINED_BYTES: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Checks a body without its model.
pub type BodyCheck = fn(&Body) -> Result<(), ApiError>;
/// Longest body that is looked at before its turn, in bytes.
const LOOKED_AT: usize = 1 << 20;

/// Describes how far a model is from being in memory.
pub type Progress = Box<dyn Fn() -> String + Send>;

/// A stream whose answer is not there yet.
pub struct WaitingStream {
    /// Name of the model, as the request has it.
    pub model: String,
    /// The progress of loading, if the model is not in memory.
    pub progress: Option<Progress>,
}

/// A body that has arrived, with its part of the server's memory.
pub struct JsonBody {
    body: Body,
    server: Arc<ServerState>,
    arrival: Arrival,
    /// True if it is a JSON object of bounded weight.
    checked: bool,
}

/// The JSON text of a body, and who sent it. It is parsed field by field into structs, so
/// fields that nobody reads take no memory.
pub struct Body {
    json: Vec<u8>,
    /// The tenant.
    pub tenant: Tenant,
    /// Fields without effect.
    pub ignored: IgnoredFields,
    /// The body's part of the server's memory. What keeps fields of the body keeps it too.
    pub permit: Arc<BodyPermit>,
}

impl FromRequest<Arc<ServerState>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, server: &Arc<ServerState>) -> Result<Self, ApiError> {
        let (tenant, client) = (request.extensions().get(), request.extensions().get());
        let tenant: Tenant = tenant.cloned().unwrap_or_default();
        let client = client.copied().unwrap_or_else(|| Client::of(&request, &[]));
        let ignored = request.extensions().get().cloned().unwrap_or_default();
        let deadline = Instant::now() + server.limits.time;
        let arrival = Arrival { client, deadline, limits: TextLimits::default() };
        let mut permit = server.admission.permit(client);
        let json = timeout(server.limits.time, read(request, server, &mut permit));
        let json = json.await.unwrap_or_else(|_| Err(too_slow()))?;
        let body = Body { json, tenant, ignored, permit: Arc::new(permit) };
        Ok(Self { body, server: server.clone(), arrival, checked: false })
    }
}

/// Reads a body; `permit` grows with it.
async fn read(
    request: Request,
    server: &ServerState,
    permit: &mut BodyPermit,
) -> Result<Vec<u8>, ApiError> {
    let limit = server.limits.body;
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let waits = request.headers().contains_key(header::EXPECT);
    let (mut json, mut pieces) = (Vec::new(), request.into_body().into_data_stream());
    if length.is_some_and(|length| length > limit) {
        if !waits {
            drain(&mut pieces).await;
        }
        return Err(too_large(limit));
    }
    while let Some(piece) = timeout(PIECE_TIMEOUT, pieces.next()).await.map_err(|_| too_slow())? {
        let piece = piece.map_err(|error| {
            let message = format!("cannot read the body: {error}");
            ApiError::new(StatusCode::BAD_REQUEST, "bad_body", message)
        })?;
        if json.len() + piece.len() > limit {
            drop((std::mem::take(&mut json), piece));
            drain(&mut pieces).await;
            return Err(too_large(limit));
        }
        server.admission.grow(permit, piece.len())?;
        json.extend_from_slice(&piece);
    }
    Ok(json)
}

/// Reads the rest of a body that is refused, and forgets it: a client that writes all before it reads would
/// lose the answer with the connection.
async fn drain(pieces: &mut BodyDataStream) {
    let mut left = DRAINED_BYTES;
    let rest = async {
        while let Some(Ok(piece)) = pieces.next().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(DRAIN_TIME, rest).await;
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("the body is larger than {limit} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

fn too_slow() -> ApiError {
    let message = "the body arrived too slowly: send it again";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message)
}

impl JsonBody {
    /// Returns the client, and the time that it gives the response.
    pub fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Takes an empty body for an empty object.
    pub fn or_empty(mut self) -> Self {
        if self.body.json.trim_ascii().is_empty() {
            self.body.json = b"{}".to_vec();
        }
        self
    }

    /// Returns the tenant that sent the body.
    pub fn tenant(&self) -> Tenant {
        self.body.tenant.clone()
    }

    /// Returns the model that the body names, and the body again. Waits until the model is loaded.
    ///
    /// # Errors
    /// If the body is not a JSON object of bounded weight, and those of [`ServerState::model`].
    pub async fn with_model(mut self) -> Result<(Arc<ServedModel>, Self), ApiError> {
        let (name, body) = self.take(|body| Ok(parse::<ModelFields>(body)?.model)).await?;
        (self.body, self.checked) = (body, true);
        let Arrival { client, deadline, .. } = self.arrival;
        let model = self.server.model(name.as_deref(), client, deadline).await?;
        Ok((model, self))
    }

    /// Returns what a stream tells while its answer is prepared; `None` if the body asks for no stream.
    /// Without the field, it is as `default` says. Long bodies are looked at later, in their turn.
    pub fn waits_in_a_stream(&self, default: bool) -> Option<WaitingStream> {
        let json = Some(&self.body.json).filter(|json| json.len() <= LOOKED_AT)?;
        let (stream, name): (StreamField, ModelFields) =
            (aliases::read(json).ok()?, aliases::read(json).ok()?);
        let name = name.model.unwrap_or_default();
        let models = self.server.models.clone();
        let loading = self.server.models.on_demand() && models.progress(&name).is_some();
        let model = name.clone();
        let progress = move || -> String {
            models.progress(&name).unwrap_or_else(|| "the model is in memory".into())
        };
        let progress = loading.then(|| Box::new(progress) as Progress);
        stream.stream.unwrap_or(default).then_some(WaitingStream { model, progress })
    }

    /// Returns the body, which `check` has not refused.
    ///
    /// # Errors
    /// If the body is not a JSON object of bounded weight, or those of `check`.
    pub async fn checked_by(mut self, check: BodyCheck) -> Result<Self, ApiError> {
        let ((), body) = self.take(check).await?;
        (self.body, self.checked) = (body, true);
        Ok(self)
    }

    /// Runs `work`, which parses and tokenizes the body, when it is this client's turn, on a thread
    /// that may block. The body is freed afterwards.
    ///
    /// # Errors
    /// If the body is not a JSON object of bounded weight, or the work fails.
    pub async fn prepare<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&Body) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        Ok(self.take(work).await?.0)
    }

    /// Runs `work` as [`prepare`](Self::prepare), and returns the body with its result.
    async fn take<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Body) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Body), ApiError> {
        let permit = self.body.permit.clone();
        let (mut body, checked) = (self.body.take(), self.checked);
        let checked = move || {
            if !checked {
                surrogates::replace_halves(&mut body.json);
                body.check()?;
            }
            Ok((work(&body)?, body))
        };
        let admission = &self.server.admission;
        let prepared = timeout_at(self.arrival.deadline, admission.prepare(permit, checked));
        prepared.await.unwrap_or_else(|_| Err(ApiError::timeout()))
    }
}

impl Body {
    /// Moves the body out, and leaves an empty one.
    fn take(&mut self) -> Self {
        let (tenant, permit) = (self.tenant.clone(), self.permit.clone());
        let (json, ignored) = (std::mem::take(&mut self.json), self.ignored.clone());
        Self { json, tenant, ignored, permit }
    }

    fn check(&self) -> Result<(), ApiError> {
        let (code, message) = match weight::check(&self.json) {
            Ok(()) => return Ok(()),
            Err(Refused::Syntax(error)) => {
                ("invalid_json", format!("the body is not valid JSON: {error}"))
            }
            Err(Refused::NoObject) => ("invalid_json", "the body must be a JSON object".into()),
            Err(Refused::TooHeavy) => {
                let limit = weight::LIMIT >> 20;
                let message = format!(
                    "the body has too many JSON values: they would take more than {limit} MiB of \
                     memory; send shorter arrays and smaller schemas"
                );
                ("too_many_values", message)
            }
        };
        Err(ApiError::new(StatusCode::BAD_REQUEST, code, message))
    }

    /// Returns the values of some fields. Others are not kept.
    pub fn fields(&self, names: &[&str]) -> Map<String, Value> {
        Selected(names).deserialize(&mut Deserializer::from_slice(&self.json)).unwrap_or_default()
    }
}

/// Parses the fields of `T` from a body and skips all others.
///
/// # Errors
/// Names the field that is missing or has the wrong type.
pub fn parse<T: DeserializeOwned>(body: &Body) -> Result<T, ApiError> {
    aliases::read(&body.json).map_err(|error| wrong_field::refused(body, &error))
}

/// Keeps the fields with these names.
struct Selected<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Selected<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Selected<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.0.contains(&key.as_str()) {
                fields.insert(key, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(fields)
    }
}

/// Refuses fields that ask for unsupported features. Ignoring them would silently answer a different
/// request. Values that mean "off" (null, false, empty) are accepted.
///
/// # Errors
/// Names the first such field.
pub fn refuse_unsupported(body: &Body, fields: &[&str]) -> Result<(), ApiError> {
    let set = SetFields(fields).deserialize(&mut Deserializer::from_slice(&body.json));
    match fields.iter().zip(set.unwrap_or_default()).find(|(_, is_set)| *is_set) {
        None => Ok(()),
        Some((field, _)) => Err(unsupported(field)),
    }
}

/// Creates the 400 for a field that asks for an unsupported feature.
fn unsupported(field: &str) -> ApiError {
    let message = format!("`{field}` is not supported by this server: leave it out");
    ApiError { code: "unsupported", ..ApiError::bad(field, message) }
}

/// A field that this server does not have: its name, the value that asks for what the server does
/// anyway, and advice for other values.
pub type UnsupportedField = (&'static str, Value, &'static str);

/// Refuses fields of an object that have another value than null or the accepted one. `prefix` stands
/// before their names in errors.
///
/// # Errors
/// Names the first such field.
pub fn refuse_others(
    fields: &Map<String, Value>,
    prefix: &str,
    table: &[UnsupportedField],
) -> Result<(), ApiError> {
    let equal = |given: &Value, accepted: &Value| match (given.as_f64(), accepted.as_f64()) {
        (Some(given), Some(accepted)) => given == accepted,
        _ => given == accepted,
    };
    for (name, accepted, advice) in table {
        let given = fields.get(*name).filter(|given| !given.is_null());
        if given.is_some_and(|given| !equal(given, accepted)) {
            let name = format!("{prefix}{name}");
            let message = format!("`{name}` is not supported by this server: {advice}");
            return Err(ApiError { code: "unsupported", ..ApiError::bad(name, message) });
        }
    }
    Ok(())
}

/// Returns a field that a part of type `kind` at `path` must have.
///
/// # Errors
/// If it is missing.
pub fn required<T>(value: Option<T>, path: &str, kind: &str, field: &str) -> Result<T, ApiError> {
    let missing = || {
        let message = format!("`{field}` is missing: a part of type `{kind}` needs it");
        ApiError::bad(format!("{path}.{field}"), message)
    };
    value.ok_or_else(missing)
}
