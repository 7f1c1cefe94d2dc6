//! The 400 of a body that a struct does not accept, in the words of users.

use super::Body;
use super::aliases::PathError;
use crate::error::ApiError;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use wrinklefree::settings::{explain_json_error, shown};

/// Returns the error, which names the field, what it takes and what was found.
pub fn refused(body: &Body, error: &PathError) -> ApiError {
    let (path, text) = (error.path().to_string(), error.inner().to_string());
    let reason = match explain_json_error(&text) {
        // serde_json's word for a value that is not one of several names.
        value if value == "expected value" => "expected a string".into(),
        reason => reason,
    };
    if path == "." {
        // An error of the body itself: a field is missing.
        let field = reason.split('`').nth(1).unwrap_or_default().to_string();
        let twice = text.starts_with("duplicate field");
        let code = if twice { "duplicate_field" } else { "missing_field" };
        return ApiError { code, ..ApiError::bad(field, reason) };
    }
    let mut message = format!("`{path}`: {reason}");
    // Types that take several kinds of values say only what they take.
    if reason.starts_with("expected ")
        && !reason.contains(", not ")
        && let Some(found) = value_at(body, error.path())
    {
        message += &format!(", not {}", shown(&found.to_string()));
    }
    ApiError { code: "invalid_type", ..ApiError::bad(path, message) }
}

/// Returns the value at a path of the body.
fn value_at(body: &Body, path: &Path) -> Option<Value> {
    let mut segments = path.iter();
    let Some(Segment::Map { key }) = segments.next() else { return None };
    let mut value = body.fields(&[key]).remove(key)?;
    for segment in segments {
        value = match segment {
            Segment::Map { key } => value.get_mut(key)?.take(),
            Segment::Seq { index } => value.get_mut(*index)?.take(),
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
    }
    Some(value)
}
