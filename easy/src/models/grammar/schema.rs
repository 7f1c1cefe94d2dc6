//! JSON schemas as a grammar can hold them.
//!
//! Some keywords that llguidance does not know can be written with those that it knows; that is always
//! done, and changes no meaning. What is left of them no grammar holds: a strict request is refused
//! then, and one for best effort goes on without them.

use super::budget::Budget;
use super::negate::{negate, without};
use super::walk::{ANNOTATIONS, Inside, Place, Places, each, inside};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Keywords that no grammar holds.
const UNSUPPORTED: [&str; 17] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "uniqueItems",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "$dynamicAnchor",
];
/// Keywords about single values, and about numbers of them.
const VALUES: [&str; 14] = [
    "pattern",
    "patternProperties",
    "format",
    "multipleOf",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];
/// Formats that llguidance knows. Others constrain nothing, as the specification says.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// Parts of a schema that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Effort {
    /// All.
    Whole,
    /// All but the keywords that no grammar holds; `oneOf` counts as `anyOf`.
    Supported,
    /// Types, properties and items; no constraints on single values.
    Structure,
    /// The type of the whole value.
    Kind,
}

impl Effort {
    /// Attempts with less and less of a schema.
    pub const BEST: [Self; 4] = [Self::Whole, Self::Supported, Self::Structure, Self::Kind];
}

/// A schema, and what was left out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Relaxed {
    /// The schema.
    pub schema: Value,
    /// The keywords that were left out, each with its place: `uniqueItems` at `#/properties/tags`.
    pub left_out: Vec<String>,
}

/// Writes a schema with keywords that llguidance knows, as far as possible without changing its
/// meaning, and leaves out what `effort` does not keep. Where that would copy too much, nothing is
/// copied: what would be written anew counts as what no grammar holds.
///
/// Recurses as deep as the schema is nested.
#[must_use]
pub fn relax(schema: &Value, effort: Effort) -> Relaxed {
    if effort == Effort::Kind && schema.is_object() {
        let kind = schema.get("type").map_or(json!({}), |kind| json!({"type": kind}));
        return Relaxed { schema: kind, left_out: vec!["all but the type at `#`".into()] };
    }
    let run = |budget| {
        let mut walk =
            Walk { effort, budget, place: Place::default(), left_out: Places::default() };
        let mut schema = schema.clone();
        walk.schema(&mut schema);
        let relaxed = Relaxed { schema, left_out: walk.left_out.into_list() };
        (relaxed, walk.budget.exhausted)
    };
    match run(Budget::new()) {
        (relaxed, false) => relaxed,
        _ => run(Budget::none()).0,
    }
}

/// Returns the keywords of a rewritten schema that no grammar holds, each with its place, and those
/// that some grammars hold: `oneOf`, regular expressions and references.
#[must_use]
pub fn suspects(schema: &Value) -> (Vec<String>, Vec<String>) {
    let unsupported = relax(schema, Effort::Supported).left_out;
    let mut doubtful = Places::default();
    each(schema, &mut |schema, place| {
        for keyword in ["oneOf", "pattern", "patternProperties", "multipleOf", "$ref"] {
            if schema.contains_key(keyword) {
                doubtful.add(keyword, place);
            }
        }
    });
    (unsupported, doubtful.into_list())
}

struct Walk {
    effort: Effort,
    budget: Budget,
    place: Place,
    left_out: Places,
}

impl Walk {
    fn schema(&mut self, schema: &mut Value) {
        let Some(fields) = schema.as_object_mut() else { return };
        fields.retain(|key, _| !ANNOTATIONS.contains(&&**key));
        drop_empty(fields);
        rewrite(fields, &mut self.budget);
        if self.effort >= Effort::Supported {
            self.leave_out(fields, &UNSUPPORTED);
        }
        if self.effort >= Effort::Structure {
            self.leave_out(fields, &VALUES);
            self.simplify_reference(fields);
        }
        for (key, value) in fields.iter_mut() {
            match (inside(key, value), value) {
                (Inside::Schema, schema) => self.below(&[key.as_str()], schema),
                (Inside::List, Value::Array(list)) => {
                    for (index, schema) in list.iter_mut().enumerate() {
                        self.below(&[key.as_str(), &index.to_string()], schema);
                    }
                }
                (Inside::Map, Value::Object(map)) => {
                    for (name, schema) in map {
                        self.below(&[key.as_str(), name.as_str()], schema);
                    }
                }
                _ => {}
            }
        }
    }

    /// Writes the schema that is so many steps below the current place.
    fn below(&mut self, steps: &[&str], schema: &mut Value) {
        self.place.enter(steps);
        self.schema(schema);
        self.place.leave(steps.len());
    }

    fn leave_out(&mut self, fields: &mut Map<String, Value>, keywords: &[&str]) {
        for keyword in keywords {
            if fields.shift_remove(*keyword).is_some() {
                self.left_out.add(keyword, &self.place);
            }
        }
    }

    /// Keeps a reference inside the schema without the keywords next to it, and drops others.
    fn simplify_reference(&mut self, fields: &mut Map<String, Value>) {
        let Some(Value::String(target)) = fields.get("$ref") else { return };
        if !target.starts_with('#') {
            self.leave_out(fields, &["$ref"]);
            return;
        }
        let kept = ["$ref", "$defs", "definitions", "$schema", "$id"];
        fields.retain(|key, _| {
            let keep = kept.contains(&&**key);
            if !keep {
                self.left_out.add(key, &self.place);
            }
            keep
        });
    }
}

/// Removes keywords that have no effect. Some clients send null for those that they do not set.
fn drop_empty(fields: &mut Map<String, Value>) {
    fields.retain(|key, value| !value.is_null() || key == "const");
    let unknown = |format: &Value| format.as_str().is_none_or(|name| !FORMATS.contains(&name));
    if fields.get("format").is_some_and(unknown) {
        fields.shift_remove("format");
    }
    if fields.get("uniqueItems") == Some(&json!(false)) {
        fields.shift_remove("uniqueItems");
    }
    if !fields.contains_key("if") || !["then", "else"].iter().any(|key| fields.contains_key(*key)) {
        without(fields, &["if", "then", "else"]);
    }
    if !fields.contains_key("contains") {
        without(fields, &["minContains", "maxContains"]);
    }
}

/// Writes keywords that llguidance does not know with others, where that is possible.
fn rewrite(fields: &mut Map<String, Value>, budget: &mut Budget) {
    let mut all_of = Vec::new();
    for keyword in ["dependencies", "dependentRequired", "dependentSchemas"] {
        let Some(Value::Object(map)) = fields.shift_remove(keyword) else { continue };
        all_of.extend(map.into_iter().map(|(name, needs)| dependency(&name, needs)));
    }
    if let Some(negated) = fields.get("not").and_then(|schema| negate(schema, budget)) {
        fields.shift_remove("not");
        all_of.push(negated);
    }
    if let Some(any_of) = fields.get("oneOf").and_then(|options| exactly_one(options, budget)) {
        fields.shift_remove("oneOf");
        all_of.push(json!({"anyOf": any_of}));
    }
    rename_unevaluated(fields);
    rewrite_names(fields);
    if all_of.is_empty() {
        return;
    }
    // An invalid value is the compiler's to refuse.
    if let Value::Array(list) = fields.entry("allOf").or_insert_with(|| json!([])) {
        list.extend(all_of);
    }
}

/// Returns the schema of values that have no property `name`, or fulfil `needs`: names of further
/// properties, or a schema.
fn dependency(name: &str, needs: Value) -> Value {
    let absent = json!({"properties": {name: false}});
    let present = match needs {
        Value::Array(mut names) => {
            names.insert(0, name.into());
            json!({"required": names})
        }
        schema => json!({"allOf": [{"required": [name]}, schema]}),
    };
    json!({"anyOf": [absent, present]})
}

/// Returns `oneOf` as `anyOf` of schemas that exclude each other, if they can be negated and there is room
/// for the copies.
fn exactly_one(options: &Value, budget: &mut Budget) -> Option<Vec<Value>> {
    let options = options.as_array().filter(|options| (2..=8).contains(&options.len()))?;
    let negated = options.iter().map(|option| negate(option, budget));
    let negated: Vec<Value> = negated.collect::<Option<_>>()?;
    let mut only = |index: usize| {
        let mut all = vec![budget.copy(&options[index])?];
        for (other, negated) in negated.iter().enumerate() {
            all.extend(if other == index { None } else { Some(budget.copy(negated)?) });
        }
        Some(json!({"allOf": all}))
    };
    (0..options.len()).map(&mut only).collect()
}

/// Without keywords that apply further schemas to the same value, `unevaluated…` is `additional…`.
fn rename_unevaluated(fields: &mut Map<String, Value>) {
    let applies = ["allOf", "anyOf", "oneOf", "$ref", "if", "not", "dependentSchemas", "contains"];
    if applies.iter().any(|key| fields.contains_key(*key)) {
        return;
    }
    let rest =
        if fields.get("items").is_some_and(Value::is_array) { "additionalItems" } else { "items" };
    for (old, new) in
        [("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", rest)]
    {
        if fields.contains_key(new) {
            fields.shift_remove(old);
        } else if let Some(value) = fields.shift_remove(old) {
            fields.insert(new.into(), value);
        }
    }
}

/// Writes `propertyNames` as `patternProperties` where no other properties are named.
fn rewrite_names(fields: &mut Map<String, Value>) {
    let named = ["properties", "patternProperties", "required"];
    if named.iter().any(|key| fields.contains_key(*key)) {
        return;
    }
    let Some(Value::Object(names)) = fields.get("propertyNames") else { return };
    let pattern = match (names.len(), names.get("pattern"), names.get("type")) {
        (1, Some(Value::String(pattern)), _) => pattern.clone(),
        (2, Some(Value::String(pattern)), Some(kind)) if kind == "string" => pattern.clone(),
        _ => return,
    };
    fields.shift_remove("propertyNames");
    let value = fields.insert("additionalProperties".into(), false.into()).unwrap_or(json!(true));
    fields.insert("patternProperties".into(), json!({pattern: value}));
}

/// Largest number of copies of keywords that combining a schema's options may take.
const COPIES: usize = 4_000_000;

/// Returns true if the options of a schema, each combined with the keywords next to them, would take
/// too much memory.
#[must_use]
pub fn multiplies(schema: &Value) -> bool {
    let mut copies = 0_usize;
    each(schema, &mut |fields, _| {
        let options = ["anyOf", "oneOf", "enum"].map(|key| {
            fields.get(key).and_then(Value::as_array).map_or(1, |options| options.len().max(1))
        });
        let options = options.into_iter().fold(1, usize::saturating_mul);
        if options > 1 {
            let aside = ["anyOf", "oneOf", "enum", "$defs", "definitions"];
            let siblings = fields.iter().filter(|(key, _)| !aside.contains(&&***key));
            let size: usize = siblings.map(|(_, value)| size(value)).sum();
            copies = copies.saturating_add(options.saturating_mul(size));
        }
    });
    copies > COPIES
}

/// Returns the number of values in a JSON value.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(map) => map.values().map(size).sum::<usize>(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(schema: Value) -> Value {
        relax(&schema, Effort::Whole).schema
    }

    #[test]
    fn annotations_and_unknown_formats_are_dropped_and_properties_of_their_names_stay() {
        let schema = json!({"title": "T", "properties": {"title": {"type": "string", "format": "x"},
            "format": {"format": "date"}}, "uniqueItems": false});
        let want = json!({"properties": {"title": {"type": "string"},
            "format": {"format": "date"}}});
        assert_eq!(whole(schema), want);
        let unset = json!({"properties": {"a": {"items": null, "const": null}}, "required": null});
        assert_eq!(whole(unset), json!({"properties": {"a": {"const": null}}}));
    }

    #[test]
    fn dependencies_and_negations_are_written_with_other_keywords() {
        let schema = whole(json!({"dependentRequired": {"a": ["b"]}}));
        let absent = json!({"properties": {"a": false}});
        assert_eq!(schema, json!({"allOf": [{"anyOf": [absent, {"required": ["a", "b"]}]}]}));
        let schema = whole(json!({"unevaluatedProperties": false, "properties": {"a": true}}));
        assert_eq!(schema, json!({"properties": {"a": true}, "additionalProperties": false}));
        let schema = whole(json!({"propertyNames": {"pattern": "^a"}}));
        assert_eq!(
            schema,
            json!({"additionalProperties": false, "patternProperties": {"^a": true}})
        );
    }

    #[test]
    fn what_is_left_out_has_its_place() {
        let schema =
            json!({"properties": {"a/b": {"uniqueItems": true, "items": {"pattern": "x"}}}});
        let supported = relax(&schema, Effort::Supported);
        assert_eq!(supported.left_out, ["`uniqueItems` at `#/properties/a~1b`"]);
        let structure = relax(&schema, Effort::Structure);
        assert_eq!(structure.left_out[1], "`pattern` at `#/properties/a~1b/items`");
        assert_eq!(relax(&json!({"type": "array"}), Effort::Kind).schema, json!({"type": "array"}));
    }

    /// Each level is copied 14 times by a rewriting that knows no limit.
    #[test]
    fn rewriting_that_multiplies_is_given_up() {
        let others = ["null", "boolean", "number", "array", "object", "null", "number"];
        let nested = |depth: usize| {
            (0..depth).fold(json!({"type": "string"}), |inner, _| {
                let others = others.map(|name| json!({"type": name}));
                let options: Vec<_> = [json!({"not": inner})].into_iter().chain(others).collect();
                json!({"oneOf": options})
            })
        };
        assert!(whole(nested(1)).get("oneOf").is_none(), "a small one is written anew");
        for depth in [6, 12, 24] {
            let relaxed = relax(&nested(depth), Effort::Whole);
            assert!(relaxed.schema.get("oneOf").is_some(), "{depth}");
            let relaxed = relax(&nested(depth), Effort::Supported);
            assert!(relaxed.left_out[0].starts_with("`not`"), "{:?}", relaxed.left_out);
        }
    }

    #[test]
    fn options_times_neighbors_are_bounded() {
        let properties: Map<String, Value> =
            (0..1500).map(|i| (format!("p{i}"), json!({"const": i}))).collect();
        let any_of = vec![json!(true); 12_000];
        assert!(multiplies(&json!({"properties": properties, "anyOf": any_of})));
        assert!(!multiplies(&json!({"$defs": properties, "anyOf": any_of})));
        assert!(!multiplies(&json!({"properties": properties, "anyOf": [true, false]})));
    }
}
