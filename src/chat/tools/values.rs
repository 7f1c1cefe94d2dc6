//! Values of a parameter that formats write without quotes: which ones its schema allows.

use super::parameters::pointer;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Most schemas and listed values that are looked at for all tools of a request: references may lead in
/// circles, and many parameters may refer to one large schema.
pub const MOST_STEPS: usize = 100_000;
/// Most schemas inside each other.
const MOST_DEPTH: usize = 100;
/// Longest number or word that is no text, in characters.
const LONGEST_SCALAR: usize = 64;
/// Keywords that constrain texts.
const TEXT_KEYWORDS: [&str; 4] = ["pattern", "minLength", "maxLength", "format"];

/// Types of JSON values, and their numbers in a set.
const KINDS: [(&str, u8); 7] = [
    ("null", 1),
    ("boolean", 2),
    ("integer", 4),
    ("number", 12),
    ("string", 16),
    ("array", 32),
    ("object", 64),
];
const ANY: u8 = 127;
const TEXT: u8 = 16;

/// The values that a schema allows, as far as a parser must know them.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// Set of [`KINDS`].
    kinds: u8,
    /// All values, if the schema lists them.
    listed: Option<Vec<Value>>,
    /// A keyword that constrains texts.
    pub constrained: Option<&'static str>,
}

impl Default for Values {
    fn default() -> Self {
        Self { kinds: ANY, listed: None, constrained: None }
    }
}

impl Values {
    /// Returns the values that match all of some schemas, which are parts of `root`: all values once `left`,
    /// the number of steps that may still be made, is used up.
    #[must_use]
    pub fn of_schemas(schemas: &[&Value], root: &Value, left: &mut usize) -> Self {
        let each = schemas.iter().map(|schema| read(schema, root, left, 0));
        each.fold(Self::default(), Self::and)
    }

    /// Returns the listed values that are texts, and the others.
    pub fn listed(&self) -> Option<(Vec<&str>, Vec<&Value>)> {
        let listed = self.listed.as_ref()?;
        let others = listed.iter().filter(|value| !value.is_string());
        Some((listed.iter().filter_map(Value::as_str).collect(), others.collect()))
    }

    /// Returns true if all values are texts.
    pub fn are_texts(&self) -> bool {
        self.kinds == TEXT
    }

    /// Returns true if some values are texts.
    pub fn have_texts(&self) -> bool {
        self.kinds & TEXT != 0
    }

    /// Returns the value that a text stands for: what JSON can say comes first. Templates write booleans
    /// and null as Python does.
    pub fn value(&self, text: &str) -> Value {
        if self.have_texts() && !self.may_begin(text) {
            return text.into();
        }
        let value = match text.trim() {
            "True" => Some(json!(true)),
            "False" => Some(json!(false)),
            "None" => Some(Value::Null),
            other => serde_json::from_str(other).ok(),
        };
        let allowed =
            |value: &Value| !self.have_texts() || (!value.is_string() && self.allow(value));
        value.filter(allowed).unwrap_or_else(|| text.into())
    }

    /// Returns true if the text may be the beginning of a value that is no text.
    pub fn may_begin(&self, text: &str) -> bool {
        let head_end = text.char_indices().nth(LONGEST_SCALAR).map(|(end, _)| end);
        let begin = text[..head_end.unwrap_or(text.len())].trim_start();
        let allows = |kind: &str| self.kinds & number(kind) != 0;
        if begin.starts_with(['[', '{']) {
            return allows(if begin.starts_with('[') { "array" } else { "object" });
        }
        let word = |word: &str| word.starts_with(begin.trim_end());
        let scalar = (allows("null") && ["null", "None"].into_iter().any(word))
            || (allows("boolean") && ["true", "false", "True", "False"].into_iter().any(word))
            || (allows("number") && begin.bytes().all(|b| b"+-.eE0123456789 \n".contains(&b)));
        head_end.is_none() && (begin.is_empty() || scalar)
    }

    fn allow(&self, value: &Value) -> bool {
        let listed = self.listed.as_ref().is_none_or(|listed| listed.contains(value));
        listed && self.kinds & kind(value) != 0
    }

    fn and(mut self, other: Self) -> Self {
        self.kinds &= other.kinds;
        self.constrained = self.constrained.or(other.constrained);
        self.listed = match (self.listed, other.listed) {
            (Some(own), Some(others)) => {
                let others: HashSet<String> = others.iter().map(Value::to_string).collect();
                Some(own.into_iter().filter(|value| others.contains(&value.to_string())).collect())
            }
            (own, others) => own.or(others),
        };
        self.matched()
    }

    /// Returns the values of either.
    pub fn or(mut self, other: Self) -> Self {
        self.listed = match (self.kinds, other.kinds, self.listed, other.listed) {
            (0, _, _, listed) | (_, 0, listed, _) => listed,
            (_, _, Some(own), Some(others)) => Some([own, others].concat()),
            _ => None,
        };
        self.kinds |= other.kinds;
        self.constrained = self.constrained.or(other.constrained);
        self
    }

    /// Leaves out listed values of other types, and types without a listed value.
    fn matched(mut self) -> Self {
        if let Some(listed) = &mut self.listed {
            let kinds = self.kinds;
            listed.retain(|value| kinds & kind(value) != 0);
            self.kinds &= listed.iter().map(kind).fold(0, |all, kind| all | kind);
        }
        self
    }
}

fn number(kind: &str) -> u8 {
    KINDS.iter().find(|(name, _)| *name == kind).map_or(0, |(_, number)| *number)
}

/// Returns the set of types that a schema's `type` names.
fn kinds(names: &Value) -> Option<u8> {
    match names {
        Value::String(name) => Some(number(name)),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            Some(names.fold(0, |set, name| set | number(name)))
        }
        _ => None,
    }
}

/// Returns the number of a value's type. An integer may be written with a fraction of zero.
fn kind(value: &Value) -> u8 {
    number(match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.as_f64().is_some_and(|n| n.fract() == 0.0) => "integer",
        // The part of numbers that integers do not have.
        Value::Number(_) => return number("number") & !number("integer"),
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    })
}

/// Returns the values that a part of `root` allows.
fn read(schema: &Value, root: &Value, left: &mut usize, depth: usize) -> Values {
    let Some(fields) = schema.as_object() else {
        let kinds = if *schema == Value::Bool(false) { 0 } else { ANY };
        return Values { kinds, ..Values::default() };
    };
    let lists = ["enum", "anyOf", "oneOf", "allOf"].map(|key| fields.get(key)?.as_array());
    let steps = 1 + lists.iter().flatten().map(|list| list.len()).sum::<usize>();
    let Some(rest) = left.checked_sub(steps) else {
        *left = 0;
        return Values::default();
    };
    *left = rest;
    if depth >= MOST_DEPTH {
        return Values::default();
    }
    let mut all = Values {
        constrained: TEXT_KEYWORDS.into_iter().find(|keyword| fields.contains_key(*keyword)),
        ..Values::default()
    };
    all.kinds = kinds(&schema["type"]).unwrap_or(ANY);
    if let Some(Value::Object(not)) = fields.get("not")
        && let (1, Some(excluded)) = (not.len(), not.get("type").and_then(kinds))
    {
        all.kinds &= !excluded;
    }
    if all.kinds & !3 == 0 {
        // Null and booleans are few.
        let few = [Value::Null, json!(true), json!(false)];
        all.listed = Some(few.into_iter().filter(|value| all.kinds & kind(value) != 0).collect());
    }
    let listed = |values: &[Value]| Values { listed: Some(values.to_vec()), ..Values::default() };
    if let Some(values) = lists[0] {
        all = all.and(listed(values).matched());
    }
    if let Some(value) = fields.get("const") {
        all = all.and(listed(std::slice::from_ref(value)).matched());
    }
    for options in [lists[1], lists[2]].into_iter().flatten() {
        let none = Values { kinds: 0, ..Values::default() };
        let options = options.iter().map(|option| read(option, root, left, depth + 1));
        all = all.and(options.fold(none, Values::or));
    }
    let pointer = schema["$ref"].as_str().and_then(pointer);
    let target = pointer.and_then(|pointer| root.pointer(&pointer));
    for part in lists[3].into_iter().flatten().chain(target) {
        all = all.and(read(part, root, left, depth + 1));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(schema: &Value) -> Values {
        let root = json!({"$defs": {
            "C": {"type": "string", "enum": ["red", "blue"]}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}]}}});
        Values::of_schemas(&[schema], &root, &mut MOST_STEPS.clone())
    }

    #[test]
    fn json_comes_first_where_the_schema_allows_it() {
        let text = json!({"type": "string"});
        let optional = json!({"anyOf": [text, {"type": "null"}]});
        let several = json!({"type": ["string", "integer", "array", "boolean"]});
        for (schema, written, want) in [
            (&text, "null", json!("null")),
            (&text, "\"a\"", json!("\"a\"")),
            (&optional, "null", json!(null)),
            (&optional, " None\n", json!(null)),
            (&optional, "nulls", json!("nulls")),
            (&optional, "7", json!("7")),
            (&several, "7", json!(7)),
            (&several, "7.5", json!("7.5")),
            (&several, "[1, 2]", json!([1, 2])),
            (&several, "{}", json!("{}")),
            (&several, "True", json!(true)),
            (&several, "\"a\"", json!("\"a\"")),
            (&json!({"enum": ["1", 2, null]}), "1", json!("1")),
            (&json!({"enum": ["1", 2, null]}), "2", json!(2)),
            (&json!({"enum": ["1", 2, null]}), "None", json!(null)),
            (&json!({"type": "object"}), "{\"a\": 1}", json!({"a": 1})),
            (&json!({"type": "object"}), "oops", json!("oops")),
            (&json!({}), "{\"a\": 1}", json!({"a": 1})),
            (&json!({}), "red", json!("red")),
            (&json!({"not": {"type": "string"}}), "[1]", json!([1])),
        ] {
            assert_eq!(values(schema).value(written), want, "{schema}: {written}");
            for (end, _) in written.char_indices() {
                let other = !want.is_string();
                let may = values(schema).may_begin(&written[..end]);
                assert!(
                    may || !other || !values(schema).have_texts(),
                    "{schema}: {}",
                    &written[..end]
                );
            }
        }
        assert!(!values(&optional).may_begin("nix") && !values(&several).may_begin("7a"));
        assert!(!values(&text).may_begin("null") && values(&several).may_begin("[a"));
    }

    #[test]
    fn schemas_list_values() {
        for (schema, texts, others) in [
            (json!({"$ref": "#/$defs/C"}), vec!["red", "blue"], vec![]),
            (
                json!({"anyOf": [{"$ref": "#/$defs/C"}, {"type": "null"}]}),
                vec!["red", "blue"],
                vec![json!(null)],
            ),
            (
                json!({"type": ["string", "null"], "enum": ["a", null]}),
                vec!["a"],
                vec![json!(null)],
            ),
            (json!({"type": "string", "enum": ["a", null]}), vec!["a"], vec![]),
            (json!({"const": "x"}), vec!["x"], vec![]),
            (json!({"type": "boolean"}), vec![], vec![json!(true), json!(false)]),
            (json!({"allOf": [{"enum": [1, "a", "b"]}, {"$ref": "#/$defs/C"}]}), vec![], vec![]),
        ] {
            let found = values(&schema);
            assert_eq!(found.listed(), Some((texts, others.iter().collect())), "{schema}");
        }
        for schema in [json!({}), json!({"type": "string"}), json!({"$ref": "#/$defs/Loop"})] {
            assert_eq!(values(&schema).listed(), None, "{schema}");
        }
        assert!(values(&json!({"type": "string"})).are_texts());
        assert!(!values(&json!({"type": "integer"})).have_texts());
        assert!(!values(&json!({"not": {"type": "string"}})).have_texts());
        let pattern = json!({"anyOf": [{"type": "string", "pattern": "^b"}, {"type": "null"}]});
        assert_eq!(values(&pattern).constrained, Some("pattern"));
    }
}
