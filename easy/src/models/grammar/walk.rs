//! Schemas within a schema, and their places.

use serde_json::{Map, Value};

/// Keywords that describe and constrain nothing.
pub const ANNOTATIONS: [&str; 10] = [
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
/// Most places in a list, and most bytes of one.
const PLACES: usize = 64;
const PLACE_BYTES: usize = 300;

/// Kind of a keyword's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// A schema.
    Schema,
    /// An array of schemas.
    List,
    /// An object whose values are schemas.
    Map,
    /// No schemas.
    Nothing,
}

/// Returns what the value of the keyword `key` is.
pub fn inside(key: &str, value: &Value) -> Inside {
    match value {
        Value::Array(_) if LISTS.contains(&key) || key == "items" => Inside::List,
        Value::Object(_) if MAPS.contains(&key) => Inside::Map,
        _ if SCHEMAS.contains(&key) => Inside::Schema,
        _ => Inside::Nothing,
    }
}

/// The place of a schema within the whole one: keys and indices, innermost last. It is written out only
/// where it is shown, as it may be long, and the schemas below it many.
#[derive(Debug, Default)]
pub struct Place(Vec<String>);

impl Place {
    /// Goes to the place that is these steps below.
    pub fn enter(&mut self, steps: &[&str]) {
        self.0.extend(steps.iter().map(ToString::to_string));
    }

    /// Goes back by a number of steps.
    pub fn leave(&mut self, steps: usize) {
        self.0.truncate(self.0.len().saturating_sub(steps));
    }
}

/// Keywords with their places, each as `` `uniqueItems` at `#/properties/tags` ``. The first ones are
/// kept, the others counted.
#[derive(Debug, Default)]
pub struct Places {
    listed: Vec<String>,
    others: usize,
}

impl Places {
    /// Adds a keyword at a place.
    pub fn add(&mut self, keyword: &str, place: &Place) {
        if self.listed.len() == PLACES {
            self.others += 1;
            return;
        }
        let mut text = format!("`{keyword}` at `#");
        for step in &place.0 {
            text.push('/');
            let mut end = step.len().min(PLACE_BYTES.saturating_sub(text.len()));
            while !step.is_char_boundary(end) {
                end -= 1;
            }
            // Escaped for a JSON pointer.
            text += &step[..end].replace('~', "~0").replace('/', "~1");
            if text.len() >= PLACE_BYTES {
                text.push('…');
                break;
            }
        }
        text.push('`');
        self.listed.push(text);
    }

    /// Returns the list.
    pub fn into_list(self) -> Vec<String> {
        let Self { mut listed, others } = self;
        listed.extend((others > 0).then(|| format!("{others} more")));
        listed
    }
}

/// Returns the schemas directly inside one, each with its keyword and its name or index there.
pub fn children(
    schema: &Map<String, Value>,
) -> impl Iterator<Item = (&str, Option<String>, &Value)> {
    schema.iter().flat_map(|(key, value)| {
        let key = key.as_str();
        let list: Vec<(&str, Option<String>, &Value)> = match (inside(key, value), value) {
            (Inside::Schema, schema) => vec![(key, None, schema)],
            (Inside::List, Value::Array(list)) => {
                let item = |(index, schema): (usize, _)| (key, Some(index.to_string()), schema);
                list.iter().enumerate().map(item).collect()
            }
            (Inside::Map, Value::Object(map)) => {
                map.iter().map(|(name, schema)| (key, Some(name.clone()), schema)).collect()
            }
            _ => Vec::new(),
        };
        list
    })
}

/// Calls `visit` for a schema and all schemas inside it.
pub fn each(schema: &Value, visit: &mut dyn FnMut(&Map<String, Value>, &Place)) {
    each_at(schema, &mut Place::default(), visit);
}

fn each_at(schema: &Value, place: &mut Place, visit: &mut dyn FnMut(&Map<String, Value>, &Place)) {
    let Some(fields) = schema.as_object() else { return };
    visit(fields, place);
    for (key, name, child) in children(fields) {
        let steps = [&[key][..], name.as_deref().as_slice()].concat();
        place.enter(&steps);
        each_at(child, place, visit);
        place.leave(steps.len());
    }
}

/// Returns the places of a keyword.
#[must_use]
pub fn places(schema: &Value, keyword: &str) -> Vec<String> {
    let mut found = Places::default();
    each(schema, &mut |schema, place| {
        if schema.contains_key(keyword) {
            found.add(keyword, place);
        }
    });
    found.into_list()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_places_are_cut_and_many_are_counted() {
        let schema =
            json!({"properties": {"é".repeat(60_000): {"anyOf": vec![json!({"not": 1}); 100]}}});
        let found = places(&schema, "not");
        assert_eq!(found.len(), PLACES + 1);
        assert_eq!(found[PLACES], "36 more");
        assert!(found[0].len() < PLACE_BYTES + 8 && found[0].ends_with("…`"), "{}", found[0]);
    }
}
