//! Grammars in the form that llguidance reads.

use super::Grammar;
use super::budget::{DEPTH, TEXT, check_depth, check_size, json_size};
use super::schema::{Effort, multiplies, relax};
use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most characters of a schema in an error.
const SHOWN: usize = 80;

/// A grammar as llguidance reads it: converted, and within the limits on size and depth.
///
/// It can be sent to another process. One that comes from there is only as good as that process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PreparedGrammar(pub(super) TopLevelGrammar);

impl PreparedGrammar {
    /// Converts a grammar. Recurses, as deep as [`DEPTH`] lets it.
    ///
    /// # Errors
    /// If the grammar is too large, nested too deeply, or not a schema where it should be.
    pub(super) fn new(grammar: Grammar) -> Result<Self, String> {
        Ok(Self(match grammar {
            Grammar::JsonSchema(schema) => TopLevelGrammar::from_json_schema(prepared(&schema)?),
            Grammar::Regex(regex) => {
                check_size(regex.len())?;
                TopLevelGrammar::from_regex(&regex)
            }
            Grammar::Lark(lark) => {
                check_size(lark.len())?;
                TopLevelGrammar::from_lark(lark)
            }
        }))
    }
}

/// Writes a whole schema as llguidance reads it.
fn prepared(schema: &Value) -> Result<Value, String> {
    check_depth(schema)?;
    let schema = compact(relax(schema, Effort::Whole).schema)?;
    // Rewriting adds levels.
    check_depth(&schema).map_err(|_| {
        format!("it is nested too deeply: more than {DEPTH} levels, as it is rewritten")
    })?;
    if json_size(&schema, TEXT).is_none() {
        return Err(format!(
            "it has more than {TEXT} bytes without annotations, as it is rewritten"
        ));
    }
    if multiplies(&schema) {
        return Err(
            "too many options are combined with too many keywords: move the keywords into \
                    the options"
                .into(),
        );
    }
    Ok(schema)
}

/// Returns the schema for JSON with one space after `:` and `,` and no others, unless it says
/// otherwise: models that are unsure of the next token tend to write spaces forever.
///
/// # Errors
/// If it is no schema.
pub fn compact(mut schema: Value) -> Result<Value, String> {
    if schema == json!(true) {
        schema = json!({});
    }
    let Some(fields) = schema.as_object_mut() else {
        let mut shown = schema.to_string();
        if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
            shown.replace_range(end.., "…");
        }
        return Err(format!("a JSON schema is an object, not {shown}"));
    };
    let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
    if let Some(options) = options.as_object_mut() {
        options.entry("whitespace_flexible").or_insert(false.into());
        options.entry("item_separator").or_insert(", ".into());
        options.entry("key_separator").or_insert(": ".into());
        // Any escape that JSON has for a character, not only for control characters.
        options.entry("json_allow_general_unicode_escapes").or_insert(true.into());
    }
    Ok(schema)
}

/// Returns the schema, which `effort` has kept, so that `oneOf` may count as `anyOf` if it has to.
pub fn lenient(mut schema: Value, effort: Effort) -> Value {
    if effort > Effort::Whole
        && let Some(fields) = schema.as_object_mut()
    {
        let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
        if let Some(options) = options.as_object_mut() {
            options.entry("lenient").or_insert(true.into());
        }
    }
    schema
}
