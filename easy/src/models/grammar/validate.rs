//! Checks JSON against a schema after it was generated, where no grammar could hold the whole schema.

use super::STACK;
use super::budget::check_depth;
use super::references::refers_to_itself;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::thread;

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
/// Schemas are limited in depth, but not in the time that they take: a service for strangers validates
/// in a process of its own, as `wf-run serve` does.
#[must_use]
pub fn validate(schema: &Value, text: &str) -> Validation {
    let report = |valid, errors| Validation { valid, errors, not_enforced: Vec::new() };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return report(Some(false), vec![format!("the output is not JSON: {error}")]),
    };
    // The validator follows references by recursion.
    let errors = thread::scope(|scope| {
        let thread = thread::Builder::new().name("validate".into()).stack_size(STACK / 4);
        let checking = thread.spawn_scoped(scope, || errors(schema, &value));
        let checking = checking.map_err(|error| format!("no thread for it: {error}"))?;
        checking.join().unwrap_or_else(|_| Err("the validator gave up".into()))
    });
    match errors {
        Ok(errors) => report(Some(errors.is_empty()), errors.into_iter().map(short).collect()),
        Err(error) => report(None, vec![short(format!("cannot validate: {error}"))]),
    }
}

/// Returns the first mismatches of a value.
fn errors(schema: &Value, value: &Value) -> Result<Vec<String>, String> {
    check_depth(schema)?;
    if refers_to_itself(schema) {
        return Err("the schema refers to itself without going into the value".into());
    }
    let validator = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
    let error = |e: jsonschema::ValidationError<'_>| match e.instance_path.as_str() {
        "" => e.to_string(),
        path => format!("{path}: {e}"),
    };
    Ok(validator.iter_errors(value).take(ERRORS).map(error).collect())
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
