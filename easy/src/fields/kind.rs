//! Values that fields of an object take, in the words of users: serde's errors name no field of a flattened
//! object, and speak of Rust's types.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt;
use wrinklefree::settings::{explain_json_error, shown};

/// Kind of value that a field takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldKind {
    /// A number.
    Number,
    /// A whole number.
    WholeNumber {
        /// The smallest one.
        least: u64,
        /// The largest one; `None` if no smaller limit than that of 64 bits holds.
        most: Option<u64>,
    },
    /// True or false.
    Boolean,
    /// A text.
    Text,
    /// One of these texts.
    OneOf(Vec<String>),
    /// Texts in a list.
    Texts,
    /// Pairs of a token id and a number in a list.
    Biases,
    /// An object of JSON.
    Object,
    /// Objects of JSON in a list.
    Objects,
    /// Any value of JSON.
    Json,
}

impl FieldKind {
    /// Returns what the field of this name takes in `T`, which is found by trying values; `None` if `T` has
    /// no such field.
    #[must_use]
    pub fn of<T: DeserializeOwned>(name: &str) -> Option<Self> {
        let accepts = |value: Value| reason::<T>(name, &value).is_none();
        let whole = |number: u64| accepts(number.into());
        let text = reason::<T>(name, &"".into());
        if text.as_deref().is_some_and(is_unknown) {
            return None;
        }
        Some(if text.is_none() && accepts(0.5.into()) {
            Self::Json
        } else if accepts(0.5.into()) {
            Self::Number
        } else if whole(1) {
            let limits = [u64::from(u8::MAX), u64::from(u32::MAX)];
            let most = limits.into_iter().find(|&most| whole(most) && !whole(most + 1));
            Self::WholeNumber { least: u64::from(!whole(0)), most }
        } else if accepts(true.into()) {
            Self::Boolean
        } else if accepts(json!(["text"])) {
            Self::Texts
        } else if accepts(json!([[0, 0.5]])) {
            Self::Biases
        } else if accepts(json!({})) {
            Self::Object
        } else if accepts(json!([])) {
            Self::Objects
        } else {
            text.map_or(Self::Text, |error| Self::OneOf(named(&error)))
        })
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number => f.write_str("a number"),
            Self::WholeNumber { least, most: None } => write!(f, "a whole number from {least}"),
            Self::WholeNumber { least, most: Some(most) } => {
                write!(f, "a whole number from {least} to {most}")
            }
            Self::Boolean => f.write_str("true or false"),
            Self::Text => f.write_str("a text"),
            Self::OneOf(names) => write!(f, "one of {}", names.join(", ")),
            Self::Texts => f.write_str("a list of texts"),
            Self::Biases => f.write_str("pairs of a token id and a number"),
            Self::Object => f.write_str("an object"),
            Self::Objects => f.write_str("a list of objects"),
            Self::Json => f.write_str("a JSON value"),
        }
    }
}

/// Reads an object.
///
/// # Errors
/// Names the field whose value is wrong by itself, what it takes and what was found; or says what else is
/// wrong.
pub fn read_object<T: DeserializeOwned>(object: Map<String, Value>) -> Result<T, String> {
    let read = serde_json::from_value(Value::Object(object.clone()));
    read.map_err(|error| {
        let in_list = object.iter().find_map(|(name, value)| wrong_item::<T>(name, value));
        let wrong = || object.iter().find_map(|(name, value)| wrong_field::<T>(name, value));
        in_list.or_else(wrong).unwrap_or_else(|| explain_json_error(error))
    })
}

/// Returns the error of the first object of a list that is wrong by itself, with its place; `None` if the
/// field `name` of `T` accepts each, or if `value` is no list.
///
/// ```
/// use wrinklefree_easy::{GenerateOptions, fields::wrong_item};
///
/// let error = wrong_item::<GenerateOptions>("tools", &serde_json::json!([{"type": "function"}]));
/// assert_eq!(error.as_deref(), Some("tools[0]: the field `function` is missing"));
/// ```
#[must_use]
pub fn wrong_item<T: DeserializeOwned>(name: &str, value: &Value) -> Option<String> {
    let error = |items: &[&Value]| {
        serde_json::from_value::<T>(json!({ name: items })).err().map(|error| error.to_string())
    };
    // An error that the empty list has, too, is about other fields.
    let elsewhere = error(&[]);
    let objects = value.as_array()?.iter().enumerate().filter(|(_, item)| item.is_object());
    objects.filter(|_| !elsewhere.as_deref().is_some_and(is_unknown)).find_map(|(index, item)| {
        let found = error(&[item]).filter(|found| Some(found) != elsewhere.as_ref())?;
        (!names_its_place(&found))
            .then(|| format!("{name}[{index}]: {}", explain_json_error(found)))
    })
}

fn wrong_field<T: DeserializeOwned>(name: &str, value: &Value) -> Option<String> {
    let error = reason::<T>(name, value)?;
    if let Some(kind) = FieldKind::of::<T>(name) {
        return Some(format!("{name}: expected {kind}, not {}", shown(&value.to_string())));
    }
    Some(explain_json_error(error))
}

/// Returns why a value is refused; `None` if it is accepted, or if the error names its place itself. Other
/// fields may be missing.
fn reason<T: DeserializeOwned>(name: &str, value: &Value) -> Option<String> {
    let error = serde_json::from_value::<T>(json!({ name: value })).err()?.to_string();
    (!error.starts_with("missing field") && !names_its_place(&error)).then_some(error)
}

/// Returns true for the errors of tools, which name a field, or a place in it.
#[must_use]
pub fn names_its_place(error: &str) -> bool {
    ["tools[", "tools has ", "tool_choice "].iter().any(|place| error.starts_with(place))
}

fn is_unknown(error: &str) -> bool {
    error.starts_with("unknown field") || error.starts_with("there is no field")
}

/// Returns the names that an error expects: "unknown variant `x`, expected one of `a`, `b`".
fn named(error: &str) -> Vec<String> {
    let (_, expected) = error.split_once("expected ").unwrap_or_default();
    expected.split('`').skip(1).step_by(2).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GenerateOptions, Message};

    #[test]
    fn kinds_are_those_of_the_fields() {
        let whole = |least, most| FieldKind::WholeNumber { least, most };
        let commit = FieldKind::OneOf(vec!["clean".into(), "fused".into()]);
        for (name, kind) in [
            ("temperature", FieldKind::Number),
            ("max_tokens", whole(0, None)),
            ("draft_length", whole(1, None)),
            ("mirostat", whole(0, Some(255))),
            ("mask_token_id", whole(0, Some(u64::from(u32::MAX)))),
            ("enable_thinking", FieldKind::Boolean),
            ("suffix", FieldKind::Text),
            ("stop", FieldKind::Texts),
            ("logit_bias", FieldKind::Biases),
            ("chat_template_kwargs", FieldKind::Object),
            ("tools", FieldKind::Objects),
            ("documents", FieldKind::Objects),
            (
                "tool_choice",
                FieldKind::OneOf(vec!["none".into(), "auto".into(), "required".into()]),
            ),
            ("commit", commit),
            #[cfg(feature = "grammar")]
            ("json_schema", FieldKind::Json),
        ] {
            assert_eq!(FieldKind::of::<GenerateOptions>(name), Some(kind), "{name}");
        }
        assert_eq!(FieldKind::of::<GenerateOptions>("temperatur"), None);
        assert_eq!(FieldKind::of::<Message>("role"), Some(FieldKind::Text));
        assert_eq!(FieldKind::of::<Message>("roles"), None);
    }

    #[test]
    fn errors_name_the_field() {
        let error = |text: &str| {
            let object = serde_json::from_str(text).expect("JSON");
            read_object::<GenerateOptions>(object).expect_err("refused")
        };
        for (text, want) in [
            (
                r#"{"top_k": 3, "temperature": "hot"}"#,
                r#"temperature: expected a number, not "hot""#,
            ),
            (r#"{"seed": -1}"#, "seed: expected a whole number from 0, not -1"),
            (r#"{"stop": "x"}"#, r#"stop: expected a list of texts, not "x""#),
            (r#"{"commit": "soon"}"#, r#"commit: expected one of clean, fused, not "soon""#),
            (r#"{"zebra": 1}"#, "there is no field `zebra`"),
            (r#"{"tools": "sun"}"#, r#"tools: expected a list of objects, not "sun""#),
            (
                r#"{"tool_choice": "required"}"#,
                "tool_choice requires a call, but there are no tools",
            ),
            (
                r#"{"tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function"}]}"#,
                "tools[1]: the field `function` is missing",
            ),
            (
                r#"{"tools": [{"type": "function", "function": {"name": 3}}]}"#,
                "tools[0]: expected a string, not 3",
            ),
            (r#"{"tool_choice": 1}"#, "tool_choice: expected one of none, auto, required, not 1"),
            (
                r#"{"tools": [{"type": "function", "function": {"name": "a b"}}]}"#,
                "tools[0]: invalid tool name `a b`: expected 1 to 64 letters, digits, `_` and `-`",
            ),
        ] {
            assert_eq!(error(text), want);
        }
        assert!(error(&json!({"top_k": "x".repeat(99)}).to_string()).ends_with("xxx…"));
        let object = serde_json::from_str(r#"{"role": "user"}"#).expect("JSON");
        assert_eq!(read_object::<Message>(object), Err("the field `content` is missing".into()));
        let object = serde_json::from_str(r#"{"n": 1}"#).expect("JSON");
        let error = read_object::<Message>(object).expect_err("refused");
        assert!(error.starts_with("there is no field `n`, only role, content"), "{error}");
    }
}
