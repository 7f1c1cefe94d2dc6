//! Objects without further members, where a schema does not mention any.

use serde_json::{Map, Value};

/// Keywords below which a schema describes only a part of an object.
const PARTIAL: [&str; 8] =
    ["not", "if", "then", "else", "dependentSchemas", "dependencies", "contains", "propertyNames"];
/// Keywords next to which `properties` may not name all members.
const MORE_MEMBERS: [&str; 12] = [
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "if",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "minProperties",
];

/// Returns the schema with closed objects: one that lists `properties` and says nothing of others has no
/// others. Models invent members else, and OpenAI's API closes objects too.
#[must_use]
pub fn closed(mut schema: Value) -> Value {
    let definitions = !joins(&schema);
    close(&mut schema, definitions);
    schema
}

/// Returns true if the schema joins several others, so that a definition may be a part of an object.
fn joins(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            let several = value.as_array().is_some_and(|parts| parts.len() > 1);
            (key == "allOf" && several) || joins(value)
        }),
        Value::Array(items) => items.iter().any(joins),
        _ => false,
    }
}

fn close(schema: &mut Value, definitions: bool) {
    let Value::Object(fields) = schema else { return };
    let complete = fields.get("properties").is_some_and(|listed| names_all(listed, fields))
        && !MORE_MEMBERS.iter().any(|key| fields.contains_key(*key));
    if complete {
        fields.insert("additionalProperties".into(), false.into());
    }
    let partial = fields.contains_key("properties") && !complete;
    for (key, value) in fields.iter_mut() {
        match key.as_str() {
            key if PARTIAL.contains(&key) => {}
            "properties" | "patternProperties" => each(value, definitions),
            "$defs" | "definitions" if definitions => each(value, definitions),
            "anyOf" | "oneOf" if !partial => each(value, definitions),
            "allOf" if value.as_array().is_some_and(|parts| parts.len() == 1) && !partial => {
                each(value, definitions);
            }
            "items" | "prefixItems" if value.is_array() => each(value, definitions),
            "items" | "additionalProperties" | "unevaluatedProperties" => {
                close(value, definitions);
            }
            _ => {}
        }
    }
}

/// Returns true if `listed` has all members that are required.
fn names_all(listed: &Value, fields: &Map<String, Value>) -> bool {
    let required = fields.get("required").and_then(Value::as_array);
    let mut names = required.into_iter().flatten().filter_map(Value::as_str);
    listed.is_object() && names.all(|name| listed.get(name).is_some())
}

fn each(schemas: &mut Value, definitions: bool) {
    match schemas {
        Value::Object(named) => values(named).for_each(|schema| close(schema, definitions)),
        Value::Array(list) => list.iter_mut().for_each(|schema| close(schema, definitions)),
        _ => {}
    }
}

fn values(named: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    named.iter_mut().map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_with_properties_are_closed() {
        let inner = json!({"type": "object", "properties": {"x": {}}});
        let shut =
            json!({"type": "object", "properties": {"x": {}}, "additionalProperties": false});
        for keep in [
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            json!({"properties": {"a": {}}, "patternProperties": {"^b": {}}}),
            json!({"allOf": [inner, {"properties": {"y": {}}}]}),
            json!({"properties": {"a": {}}, "anyOf": [inner]}),
            json!({"not": inner}),
            json!({"properties": {"a": {}}, "required": ["b"]}),
            json!({"properties": {"a": {}}, "dependentRequired": {"a": ["b"]}}),
            json!({"allOf": [{"$ref": "#/$defs/a"}, {"required": ["y"]}], "$defs": {"a": inner}}),
        ] {
            assert_eq!(closed(keep.clone()), keep);
        }
        assert_eq!(closed(inner.clone()), shut);
        for around in [
            |inner: &Value| json!({"items": inner}),
            |inner: &Value| json!({"anyOf": [inner, {"type": "null"}]}),
            |inner: &Value| json!({"allOf": [inner]}),
            |inner: &Value| json!({"$ref": "#/$defs/a", "$defs": {"a": inner}}),
            |inner: &Value| json!({"additionalProperties": inner}),
        ] {
            assert_eq!(closed(around(&inner)), around(&shut));
        }
        // A member that has a keyword's name is a member.
        let named = json!({"properties": {"allOf": inner}, "additionalProperties": false});
        let want = json!({"properties": {"allOf": shut}, "additionalProperties": false});
        assert_eq!(closed(named), want);
    }
}
