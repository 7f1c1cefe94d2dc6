//! Request bodies: the structs that they are parsed into, one file per API, and the extractor.
//!
//! The OpenAPI document is generated from these structs, so their doc comments are published. A body
//! is parsed as JSON once and then into each struct whose fields it may have: serde's `flatten` would
//! lose the path of an invalid field.

pub mod chat;
pub mod completions;
mod content;
pub mod embeddings;
mod format;
pub mod messages;
mod options;
mod prompts;
pub mod responses;
pub mod tokens;
mod tools;

pub use format::OutputFormatFields;
pub use options::{GenerationOptions, Texts};

use crate::serve::auth::Tenant;
use crate::serve::error::ApiError;
use crate::serve::state::ServerState;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// A JSON body and the tenant that sent it.
pub struct JsonBody {
    /// The body, a JSON object.
    pub value: Value,
    /// The tenant.
    pub tenant: Tenant,
}

impl FromRequest<Arc<ServerState>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, server: &Arc<ServerState>) -> Result<Self, ApiError> {
        let tenant = request.extensions().get().cloned().unwrap_or_default();
        let bytes = axum::body::Bytes::from_request(request, server).await.map_err(|e| {
            let large = e.status() == StatusCode::PAYLOAD_TOO_LARGE;
            let message = match large {
                true => format!("the body is larger than {} bytes", server.limits.body),
                false => format!("cannot read the body: {}", e.body_text()),
            };
            ApiError::new(e.status(), if large { "body_too_large" } else { "bad_body" }, message)
        })?;
        let invalid =
            |message: String| ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message);
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|e| invalid(format!("the body is not valid JSON: {e}")))?;
        match value.is_object() {
            true => Ok(Self { value, tenant }),
            false => Err(invalid("the body must be a JSON object".into())),
        }
    }
}

/// Parses the fields of `T` from a body and ignores all others.
///
/// # Errors
/// Names the field that is missing or has the wrong type.
pub fn parse<T: DeserializeOwned>(body: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.inner().to_string();
        if path == "." {
            // An error of the body itself: a field is missing.
            let field = inner.split('`').nth(1).unwrap_or_default().to_string();
            return ApiError { code: "missing_field", ..ApiError::bad(field, inner) };
        }
        let message = format!("`{path}`: {inner}");
        ApiError { code: "invalid_type", ..ApiError::bad(path, message) }
    })
}

/// Refuses fields that ask for unsupported features. Ignoring them would silently answer a different
/// request. Values that mean "off" (null, false, empty) are accepted.
///
/// # Errors
/// Names the first such field.
pub fn refuse_unsupported(body: &Value, fields: &[&str]) -> Result<(), ApiError> {
    let is_set = |field: &&&str| match &body[**field] {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Bool(value) => *value,
        Value::Object(object) => {
            !["text", "disabled"].map(|t| Some(json!(t))).contains(&object.get("type").cloned())
        }
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    match fields.iter().find(is_set) {
        None => Ok(()),
        Some(field) => {
            let message = format!("`{field}` is not supported by this server: leave it out");
            Err(ApiError { code: "unsupported", ..ApiError::bad(*field, message) })
        }
    }
}

/// Returns a field that a part of type `kind` at `path` must have.
///
/// # Errors
/// If it is missing.
fn required<T>(value: Option<T>, path: &str, kind: &str, field: &str) -> Result<T, ApiError> {
    let missing = || {
        let message = format!("`{field}` is missing: a part of type `{kind}` needs it");
        ApiError::bad(format!("{path}.{field}"), message)
    };
    value.ok_or_else(missing)
}

/// Parses the arguments of a tool call, which came as a string in the field `param`.
///
/// # Errors
/// If they are not JSON.
fn parse_arguments(name: &str, text: &str, param: &str) -> Result<Value, ApiError> {
    let invalid =
        |e| ApiError::bad(param, format!("the arguments of `{name}` are not valid JSON: {e}"));
    serde_json::from_str(text).map_err(invalid)
}
