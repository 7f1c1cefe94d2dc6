//! Negation of schemas, where other keywords can express it.

use super::budget::Budget;
use serde_json::{Map, Value, json};

/// All types of JSON.
const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

/// Removes keywords.
pub fn without(fields: &mut Map<String, Value>, keywords: &[&str]) {
    fields.retain(|key, _| !keywords.contains(&&**key));
}

/// Returns the schema of exactly those values that `schema` does not match, without `not`. `None` if
/// the keywords that llguidance knows cannot express it, or the budget has no room for it.
pub fn negate(schema: &Value, budget: &mut Budget) -> Option<Value> {
    budget.take(1)?;
    let fields = match schema {
        Value::Bool(all) => return Some(json!(!all)),
        schema => schema.as_object()?,
    };
    let mut keys: Vec<&str> = fields.keys().map(String::as_str).collect();
    keys.sort_unstable();
    match keys[..] {
        [] => Some(json!(false)),
        ["not"] => budget.copy(&fields["not"]),
        ["type"] => Some(json!({"type": other_types(&fields["type"])?})),
        ["required"] => lacks(&fields["required"], budget),
        ["required", "type"] => {
            let others = json!({"type": other_types(&fields["type"])?});
            let lacks = lacks(&fields["required"], budget)?;
            (fields["type"] == "object").then(|| json!({"anyOf": [others, lacks]}))
        }
        ["anyOf"] => {
            let options = fields["anyOf"].as_array()?.iter();
            let negated: Vec<Value> =
                options.map(|option| negate(option, budget)).collect::<Option<_>>()?;
            Some(json!({"allOf": negated}))
        }
        _ => None,
    }
}

/// Returns the types that are not among those of a `type` keyword. Numbers that are no integers have no
/// type of their own.
fn other_types(types: &Value) -> Option<Vec<&'static str>> {
    let named: Vec<&str> = match types {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    if named.contains(&"integer") && !named.contains(&"number") {
        return None;
    }
    Some(TYPES.into_iter().filter(|name| !named.contains(name)).collect())
}

/// Returns the schema of objects that lack one of these properties. Other values have all that
/// `required` asks for.
fn lacks(names: &Value, budget: &mut Budget) -> Option<Value> {
    let names: Vec<&str> = names.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    budget.take(4 * names.len())?;
    let absent = |name: &&str| json!({"type": "object", "properties": {*name: false}});
    match &names[..] {
        [] => Some(json!(false)),
        [name] => Some(absent(name)),
        names => Some(json!({"anyOf": names.iter().map(absent).collect::<Vec<_>>()})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_matches_either_a_schema_or_its_negation() {
        let schemas = [
            json!(true),
            json!({}),
            json!({"type": "string"}),
            json!({"type": ["number", "null"]}),
            json!({"required": ["a"]}),
            json!({"required": ["a", "b"]}),
            json!({"type": "object", "required": ["a"]}),
            json!({"anyOf": [{"required": ["a"]}, {"type": "array"}]}),
            json!({"not": {"type": "boolean"}}),
        ];
        let values = [
            json!(null),
            json!(true),
            json!(1),
            json!(1.5),
            json!("x"),
            json!([]),
            json!({}),
            json!({"a": 1}),
            json!({"a": 1, "b": 2}),
        ];
        for schema in &schemas {
            let negated = negate(schema, &mut Budget::new()).expect("can be negated");
            for value in &values {
                let (is, is_not) =
                    (jsonschema::is_valid(schema, value), jsonschema::is_valid(&negated, value));
                assert_ne!(is, is_not, "{value} and {schema}, {negated}");
            }
        }
        for schema in [json!({"type": "integer"}), json!({"const": 1}), json!({"minimum": 1})] {
            assert_eq!(negate(&schema, &mut Budget::new()), None);
        }
    }
}
