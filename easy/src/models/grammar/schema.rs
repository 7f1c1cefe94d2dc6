//! JSON schemas as a grammar can hold them.
//!
//! Some keywords that llguidance does not know can be written with those that it knows; that is always
//! done, and changes no meaning. What is left of them no grammar holds: a strict request is refused
//! then, and one for best effort goes on without them.

use super::negate::{negate, without};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Keywords that describe and constrain nothing.
const ANNOTATIONS: [&str; 10] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "contentSchema",
];
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
/// Keywords whose value is a schema, an array of schemas, or an object of schemas.
const SCHEMAS: [&str; 12] = [
    "additionalProperties",
    "additionalItems",
    "items",
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const MAPS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Parts of a schema that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
/// meaning, and leaves out what `effort` does not keep.
#[must_use]
pub fn relax(schema: &Value, effort: Effort) -> Relaxed {
    if effort == Effort::Kind && schema.is_object() {
        let kind = schema.get("type").map_or(json!({}), |kind| json!({"type": kind}));
        return Relaxed { schema: kind, left_out: vec!["all but the type at `#`".into()] };
    }
    let mut walk = Walk { effort, left_out: Vec::new() };
    let mut schema = schema.clone();
    walk.schema(&mut schema, "#");
    Relaxed { schema, left_out: walk.left_out }
}

/// Returns the keywords of a rewritten schema that no grammar holds, each with its place, and those
/// that some grammars hold: `oneOf`, regular expressions and references.
#[must_use]
pub fn suspects(schema: &Value) -> (Vec<String>, Vec<String>) {
    let unsupported = relax(schema, Effort::Supported).left_out;
    let mut doubtful = Vec::new();
    each(schema, "#", &mut |schema, place| {
        for keyword in ["oneOf", "pattern", "patternProperties", "multipleOf", "$ref"] {
            if schema.contains_key(keyword) {
                doubtful.push(at(keyword, place));
            }
        }
    });
    (unsupported, doubtful)
}

/// Returns the places of a keyword.
#[must_use]
pub fn places(schema: &Value, keyword: &str) -> Vec<String> {
    let mut found = Vec::new();
    each(schema, "#", &mut |schema, place| {
        found.extend(schema.contains_key(keyword).then(|| at(keyword, place)));
    });
    found
}

fn at(keyword: &str, place: &str) -> String {
    format!("`{keyword}` at `{place}`")
}

/// Escapes a key for a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Returns the schemas directly inside one, with their places.
fn children<'a>(schema: &'a Map<String, Value>, place: &str) -> Vec<(String, &'a Value)> {
    let mut found = Vec::new();
    for (key, value) in schema {
        let inner = || format!("{place}/{}", escaped(key));
        match value {
            Value::Array(list) if LISTS.contains(&&**key) || key == "items" => {
                found.extend((0..).zip(list).map(|(i, value)| (format!("{}/{i}", inner()), value)));
            }
            Value::Object(map) if MAPS.contains(&&**key) => {
                let entry = |(name, value): (&String, &'a Value)| {
                    (format!("{}/{}", inner(), escaped(name)), value)
                };
                found.extend(map.iter().map(entry));
            }
            _ if SCHEMAS.contains(&&**key) => found.push((inner(), value)),
            _ => {}
        }
    }
    found
}

/// Calls `visit` for a schema and all schemas inside it.
fn each(schema: &Value, place: &str, visit: &mut dyn FnMut(&Map<String, Value>, &str)) {
    let Some(fields) = schema.as_object() else { return };
    visit(fields, place);
    for (place, child) in children(fields, place) {
        each(child, &place, visit);
    }
}

struct Walk {
    effort: Effort,
    left_out: Vec<String>,
}

impl Walk {
    fn schema(&mut self, schema: &mut Value, place: &str) {
        let Some(fields) = schema.as_object_mut() else { return };
        fields.retain(|key, _| !ANNOTATIONS.contains(&&**key));
        drop_empty(fields);
        rewrite(fields);
        if self.effort >= Effort::Supported {
            self.leave_out(fields, &UNSUPPORTED, place);
        }
        if self.effort >= Effort::Structure {
            self.leave_out(fields, &VALUES, place);
            self.simplify_reference(fields, place);
        }
        for (key, value) in fields.iter_mut() {
            let inner = format!("{place}/{}", escaped(key));
            match value {
                Value::Array(list) if LISTS.contains(&&**key) || key == "items" => {
                    for (index, value) in list.iter_mut().enumerate() {
                        self.schema(value, &format!("{inner}/{index}"));
                    }
                }
                Value::Object(map) if MAPS.contains(&&**key) => {
                    for (name, value) in map {
                        self.schema(value, &format!("{inner}/{}", escaped(name)));
                    }
                }
                value if SCHEMAS.contains(&&**key) => self.schema(value, &inner),
                _ => {}
            }
        }
    }

    fn leave_out(&mut self, fields: &mut Map<String, Value>, keywords: &[&str], place: &str) {
        for keyword in keywords {
            if fields.shift_remove(*keyword).is_some() {
                self.left_out.push(at(keyword, place));
            }
        }
    }

    /// Keeps a reference inside the schema without the keywords beside it, and drops others.
    fn simplify_reference(&mut self, fields: &mut Map<String, Value>, place: &str) {
        let Some(Value::String(target)) = fields.get("$ref") else { return };
        if !target.starts_with('#') {
            self.leave_out(fields, &["$ref"], place);
            return;
        }
        let beside =
            |key: &String| !["$ref", "$defs", "definitions", "$schema", "$id"].contains(&&**key);
        let keys: Vec<String> = fields.keys().filter(|key| beside(key)).cloned().collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.leave_out(fields, &keys, place);
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
fn rewrite(fields: &mut Map<String, Value>) {
    let mut all_of = Vec::new();
    for keyword in ["dependencies", "dependentRequired", "dependentSchemas"] {
        let Some(Value::Object(map)) = fields.shift_remove(keyword) else { continue };
        all_of.extend(map.into_iter().map(|(name, needs)| dependency(&name, needs)));
    }
    if let Some(negated) = fields.get("not").and_then(negate) {
        fields.shift_remove("not");
        all_of.push(negated);
    }
    if let Some(any_of) = fields.get("oneOf").and_then(exactly_one) {
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

/// Returns `oneOf` as `anyOf` of schemas that exclude each other, if they can be negated.
fn exactly_one(options: &Value) -> Option<Vec<Value>> {
    let options = options.as_array().filter(|options| (2..=8).contains(&options.len()))?;
    let negated: Vec<Value> = options.iter().map(negate).collect::<Option<_>>()?;
    let only = |index: usize| {
        let others = negated.iter().enumerate().filter(|(other, _)| *other != index);
        let others = others.map(|(_, negated)| negated.clone());
        json!({"allOf": std::iter::once(options[index].clone()).chain(others).collect::<Vec<_>>()})
    };
    Some((0..options.len()).map(only).collect())
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

/// Returns true if the options of a schema, each combined with the keywords beside them, would take
/// too much memory.
#[must_use]
pub fn multiplies(schema: &Value) -> bool {
    let mut copies = 0_usize;
    each(schema, "#", &mut |fields, _| {
        let options = ["anyOf", "oneOf", "enum"].map(|key| {
            fields.get(key).and_then(Value::as_array).map_or(1, |options| options.len().max(1))
        });
        let options = options.into_iter().fold(1, usize::saturating_mul);
        if options > 1 {
            let aside = ["anyOf", "oneOf", "enum", "$defs", "definitions"];
            let beside = fields.iter().filter(|(key, _)| !aside.contains(&&***key));
            let size: usize = beside.map(|(_, value)| size(value)).sum();
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

/// Returns true if a schema applies itself to the same value again, which no validator ends.
#[must_use]
pub fn refers_to_itself(root: &Value) -> bool {
    let mut done = HashSet::new();
    let mut found = false;
    each(root, "#", &mut |fields, place| {
        if !found && fields.contains_key("$ref") {
            found = cycles(root, place, &mut Vec::new(), &mut done);
        }
    });
    found
}

/// Follows the schemas that apply to the same value as the one at `place`. `path` has those that led
/// here, `done` those without a cycle.
fn cycles(root: &Value, place: &str, path: &mut Vec<String>, done: &mut HashSet<String>) -> bool {
    if path.iter().any(|earlier| earlier == place) {
        return true;
    }
    let pointer = place.strip_prefix('#').unwrap_or(place);
    let Some(fields) = root.pointer(pointer).and_then(Value::as_object) else { return false };
    if done.contains(place) {
        return false;
    }
    path.push(place.into());
    let reference = fields.get("$ref").and_then(Value::as_str).filter(|r| r.starts_with('#'));
    let mut next: Vec<String> = reference.map(String::from).into_iter().collect();
    let inside = ["/allOf/", "/anyOf/", "/oneOf/", "/dependentSchemas/", "/dependencies/"];
    let single = ["/not", "/if", "/then", "/else"];
    next.extend(children(fields, place).into_iter().map(|(child, _)| child).filter(|child| {
        let step = &child[place.len()..];
        single.contains(&step) || inside.iter().any(|keyword| step.starts_with(keyword))
    }));
    let cyclic = next.iter().any(|child| cycles(root, child, path, done));
    path.pop();
    done.insert(place.into());
    cyclic
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

    #[test]
    fn cycles_without_progress_are_found() {
        for cyclic in [
            json!({"$ref": "#"}),
            json!({"properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
        ] {
            assert!(refers_to_itself(&cyclic), "{cyclic}");
        }
        let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        assert!(!refers_to_itself(&tree));
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
