//! Checks JSON against a schema after it was generated, where no grammar could hold the whole schema.

use super::schema::refers_to_itself;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Maximum number of errors in a report, and of bytes in one of them.
const ERRORS: usize = 8;
const ERROR_BYTES: usize = 300;

/// The report about an output that was generated from a schema that no grammar holds as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// True if the output matches the whole schema; `None` if that cannot be decided.
    pub valid: Option<bool>,
    /// Mismatches, each with its place, or the reason why the output cannot be checked.
    pub errors: Vec<String>,
    /// Parts of the schema that the grammar did not hold, each with its place.
    pub not_enforced: Vec<String>,
}

/// Validates a JSON text against a schema. `format` is checked as far as the schema's draft asks for it.
#[must_use]
pub fn validate(schema: &Value, text: &str) -> Validation {
    let report = |valid, errors| Validation { valid, errors, not_enforced: Vec::new() };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return report(Some(false), vec![format!("the output is not JSON: {error}")]),
    };
    if refers_to_itself(schema) {
        let error = "cannot validate: the schema refers to itself without going into the value";
        return report(None, vec![error.into()]);
    }
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let validator = jsonschema::validator_for(schema).map_err(|e| e.to_string())?;
        let error = |e: jsonschema::ValidationError<'_>| match e.instance_path.as_str() {
            "" => e.to_string(),
            path => format!("{path}: {e}"),
        };
        Ok::<_, String>(validator.iter_errors(&value).take(ERRORS).map(error).collect::<Vec<_>>())
    }));
    match checked.unwrap_or_else(|_| Err("the validator gave up".into())) {
        Ok(errors) => report(Some(errors.is_empty()), errors.into_iter().map(short).collect()),
        Err(error) => report(None, vec![short(format!("cannot validate: {error}"))]),
    }
}

/// Cuts a message at a length that fits an answer.
fn short(mut message: String) -> String {
    let cut = message.char_indices().map(|(at, _)| at).find(|&at| at >= ERROR_BYTES);
    if let Some(at) = cut {
        message.truncate(at);
        message.push('…');
    }
    message
}
