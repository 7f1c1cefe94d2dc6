//! Arguments of a call: their schemas, and texts in the language of grammars.

use super::{Effort, NOT_HELD, closed, compact, lenient, relax};
use serde_json::{Value, json};
use wrinklefree::chat::tools::Tool;

/// Returns a text as a terminal; nothing for no text.
pub fn text(text: &str) -> String {
    if text.is_empty() { String::new() } else { json!(text).to_string() }
}

/// Returns a regular expression for a text.
pub fn regex(text: &str) -> String {
    let escape = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c.to_string()
        } else {
            format!("\\x{{{:x}}}", u32::from(c))
        }
    };
    text.chars().map(escape).collect()
}

/// Returns the schema of a tool's arguments, an object, as far as a grammar holds it.
pub fn argument_schema(tool: &Tool) -> Value {
    let mut schema = relax(&closed(tool.parameters.clone()), effort(tool)).schema;
    let combines = ["$ref", "allOf", "anyOf", "oneOf"];
    if let Some(fields) = schema.as_object_mut()
        && !combines.iter().any(|keyword| fields.contains_key(*keyword))
    {
        fields.entry("type").or_insert_with(|| "object".into());
    }
    schema
}

/// Refuses a strict tool whose schema no grammar can hold.
pub fn check_held(tool: &Tool) -> Result<(), String> {
    if !tool.strict {
        return Ok(());
    }
    let left_out = relax(&closed(tool.parameters.clone()), Effort::Supported).left_out;
    if left_out.is_empty() {
        Ok(())
    } else {
        Err(format!("{NOT_HELD}{}: leave it out, or `strict`", left_out.join(", ")))
    }
}

fn effort(tool: &Tool) -> Effort {
    if tool.strict { Effort::Whole } else { Effort::Supported }
}

/// Returns the schema of a tool's arguments, or of one of them, for a grammar.
pub fn grammar_schema(tool: &Tool, schema: Value) -> Result<Value, String> {
    compact(lenient(schema, effort(tool)))
}
