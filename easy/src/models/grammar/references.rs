//! References of a schema that lead back to themselves.

use super::walk::children;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ptr;

/// Keywords whose schemas apply to the same value as the schema that they stand in.
const SAME_VALUE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies", "not", "if", "then", "else"];

/// Returns true if a schema applies itself to the same value again, which no validator ends.
///
/// Takes each schema and each reference once, and does not recurse.
#[must_use]
pub fn refers_to_itself(root: &Value) -> bool {
    let mut graph = Graph::default();
    graph.index(root);
    let mut next = 0;
    while next < graph.schemas.len() {
        graph.expand(root, next);
        next += 1;
    }
    graph.has_cycle()
}

/// The schemas of a schema, and which of them apply to the same value.
#[derive(Default)]
struct Graph<'a> {
    schemas: Vec<&'a Map<String, Value>>,
    indices: HashMap<*const Map<String, Value>, usize>,
    /// For each schema the schemas that it applies to its own value.
    applied: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    /// Returns the index of a schema, which it adds if it is new; `None` for a boolean.
    fn index(&mut self, schema: &'a Value) -> Option<usize> {
        let fields = schema.as_object()?;
        Some(*self.indices.entry(ptr::from_ref(fields)).or_insert_with(|| {
            self.schemas.push(fields);
            self.schemas.len() - 1
        }))
    }

    /// Adds the schemas inside the one with this index, and the one that it refers to.
    fn expand(&mut self, root: &'a Value, index: usize) {
        let fields = self.schemas[index];
        let mut applied = Vec::new();
        for (keyword, _, schema) in children(fields) {
            let child = self.index(schema);
            applied.extend(child.filter(|_| SAME_VALUE.contains(&keyword)));
        }
        let reference = fields.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|text| root.pointer(text.strip_prefix('#')?));
        applied.extend(target.and_then(|schema| self.index(schema)));
        self.applied.push(applied);
    }

    /// Takes away schemas that no other one applies until none is left, or only cycles are.
    fn has_cycle(&self) -> bool {
        let mut users = vec![0_usize; self.schemas.len()];
        self.applied.iter().flatten().for_each(|&schema| users[schema] += 1);
        let mut free: Vec<usize> = (0..users.len()).filter(|&schema| users[schema] == 0).collect();
        let mut taken = 0;
        while let Some(schema) = free.pop() {
            taken += 1;
            for &applied in &self.applied[schema] {
                users[applied] -= 1;
                free.extend((users[applied] == 0).then_some(applied));
            }
        }
        taken < self.schemas.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn long_chains_take_linear_time() {
        let link = |i: usize| (format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", i + 1)}));
        let mut definitions: Map<String, Value> = (0..100_000).map(link).collect();
        let open = json!({"$ref": "#/$defs/d0", "$defs": definitions});
        assert!(!refers_to_itself(&open));
        definitions.insert("d100000".into(), json!({"anyOf": [true, {"$ref": "#/$defs/d0"}]}));
        assert!(refers_to_itself(&json!({"$ref": "#/$defs/d0", "$defs": definitions})));
    }
}
