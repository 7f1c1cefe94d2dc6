//! Parameters of a tool, for formats that write each of them apart: what a schema of arguments means for
//! single parameters.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};

/// Most alternatives of a tool's parameters: of `anyOf`, also of several that are combined.
const MOST_ALTERNATIVES: usize = 16;
/// Most schemas and parameters that are looked at: references may lead in circles.
const MOST_STEPS: usize = 100_000;
/// Most schemas inside each other.
const MOST_DEPTH: usize = 100;

/// A set of parameters that a call may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters<'a> {
    /// Parameters with a name, in the order of the schema.
    pub named: Vec<Parameter<'a>>,
    /// Schemas that any other parameter must match, all of them; `None` if there are no others.
    pub others: Option<Vec<&'a Value>>,
    required: BTreeSet<&'a str>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter<'a> {
    /// The name.
    pub name: &'a str,
    /// Schemas that its value must match, all of them.
    pub schemas: Vec<&'a Value>,
    /// True if each call must have it.
    pub required: bool,
}

/// Returns the alternatives of a tool's parameters. A call has those of one.
///
/// # Errors
/// If the schema describes no objects, or is too complex.
pub fn alternatives(arguments: &Value) -> Result<Vec<Parameters<'_>>, String> {
    let mut reader = Reader { root: arguments, left: MOST_STEPS };
    let found = reader.read(arguments, 0)?.into_iter().filter_map(Parameters::finished);
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        Err("its parameters allow no arguments: a JSON schema of an object is expected".into())
    } else {
        Ok(found)
    }
}

struct Reader<'a> {
    root: &'a Value,
    left: usize,
}

impl<'a> Reader<'a> {
    fn count(&mut self, steps: usize) -> Result<(), String> {
        let left = self.left.checked_sub(steps + 1);
        self.left = left.ok_or("the schema of its parameters is too complex")?;
        Ok(())
    }

    fn read(&mut self, schema: &'a Value, depth: usize) -> Result<Vec<Parameters<'a>>, String> {
        self.count(if depth < MOST_DEPTH { 0 } else { MOST_STEPS })?;
        let fields = match schema {
            Value::Bool(true) => return Ok(vec![Parameters::any()]),
            Value::Bool(false) => return Ok(Vec::new()),
            Value::Object(fields) => fields,
            other => return Err(format!("a JSON schema is an object, not {other}")),
        };
        let is_object = match &schema["type"] {
            Value::String(kind) => kind == "object",
            Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
            _ => true,
        };
        if !is_object {
            return Ok(Vec::new());
        }
        let mut found = vec![self.own(fields)?];
        let pointer = schema["$ref"].as_str().and_then(pointer);
        if let Some(target) = pointer.and_then(|pointer| self.root.pointer(&pointer)) {
            let target = self.read(target, depth + 1)?;
            found = self.both(found, target)?;
        }
        for part in fields.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            let part = self.read(part, depth + 1)?;
            found = self.both(found, part)?;
        }
        for keyword in ["anyOf", "oneOf"] {
            let Some(options) = fields.get(keyword).and_then(Value::as_array) else { continue };
            let mut any = Vec::new();
            for option in options {
                any.extend(self.read(option, depth + 1)?);
            }
            found = self.both(found, any)?;
        }
        Ok(found)
    }

    /// Returns the parameters that an object names itself.
    fn own(&mut self, fields: &'a Map<String, Value>) -> Result<Parameters<'a>, String> {
        let named = fields.get("properties").and_then(Value::as_object);
        self.count(named.map_or(0, Map::len))?;
        let parameter = |(name, schema): (&'a String, &'a Value)| Parameter {
            name,
            schemas: vec![schema],
            required: false,
        };
        let named = named.into_iter().flatten().map(parameter).collect();
        let required = fields.get("required").and_then(Value::as_array).into_iter().flatten();
        let others = match fields.get("additionalProperties") {
            // Patterns of names are not held.
            _ if fields.get("patternProperties").is_some_and(Value::is_object) => Some(Vec::new()),
            Some(Value::Bool(false)) => None,
            Some(schema @ Value::Object(_)) => Some(vec![schema]),
            _ => Some(Vec::new()),
        };
        Ok(Parameters { named, others, required: required.filter_map(Value::as_str).collect() })
    }

    /// Returns the alternatives that match one of each list.
    fn both(
        &mut self,
        one: Vec<Parameters<'a>>,
        other: Vec<Parameters<'a>>,
    ) -> Result<Vec<Parameters<'a>>, String> {
        if one.len() * other.len() > MOST_ALTERNATIVES {
            return Err(format!(
                "its parameters have more than {MOST_ALTERNATIVES} alternatives in `anyOf` or `oneOf`"
            ));
        }
        let mut all = Vec::new();
        for first in &one {
            for second in &other {
                self.count(first.named.len() + second.named.len())?;
                all.push(first.clone().and(second));
            }
        }
        Ok(all)
    }
}

impl<'a> Parameters<'a> {
    fn any() -> Self {
        Self { others: Some(Vec::new()), ..Self::default() }
    }

    /// Returns the parameters that match both.
    fn and(mut self, other: &Self) -> Self {
        let places: HashMap<&str, usize> = self
            .named
            .iter()
            .enumerate()
            .map(|(place, parameter)| (parameter.name, place))
            .collect();
        let mut met = vec![false; self.named.len()];
        let mut new = Vec::new();
        for parameter in &other.named {
            match places.get(parameter.name) {
                Some(&place) => {
                    met[place] = true;
                    self.named[place].schemas.extend(&parameter.schemas);
                }
                None => new.extend(parameter.clone().within(self.others.as_deref())),
            }
        }
        let old = std::mem::take(&mut self.named).into_iter().zip(met);
        let old = old.filter_map(|(parameter, met)| {
            if met { Some(parameter) } else { parameter.within(other.others.as_deref()) }
        });
        self.named = old.chain(new).collect();
        self.others = match (self.others, &other.others) {
            (Some(own), Some(others)) => Some([own, others.clone()].concat()),
            _ => None,
        };
        self.required.extend(&other.required);
        self
    }

    /// Marks the required parameters; `None` if one of them is impossible.
    fn finished(mut self) -> Option<Self> {
        let mut missing = self.required.clone();
        for parameter in &mut self.named {
            parameter.required = missing.remove(parameter.name);
        }
        let possible =
            |parameter: &Parameter<'_>| !parameter.schemas.contains(&&Value::Bool(false));
        if self.named.iter().any(|parameter| parameter.required && !possible(parameter)) {
            return None;
        }
        self.named.retain(possible);
        for name in missing {
            self.named.push(Parameter { name, schemas: self.others.clone()?, required: true });
        }
        Some(self)
    }
}

impl<'a> Parameter<'a> {
    /// Returns the parameter where `others` are the schemas of parameters without a name.
    fn within(mut self, others: Option<&[&'a Value]>) -> Option<Self> {
        self.schemas.extend(others?);
        Some(self)
    }
}

/// Returns the JSON pointer of a reference; `None` for a reference to another document, or by name.
#[must_use]
pub fn pointer(reference: &str) -> Option<String> {
    let fragment = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    (fragment.is_empty() || fragment.starts_with('/')).then(|| fragment.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Writes alternatives as `a!` for a required parameter, `b` for another, and `*` for any others.
    fn written(schema: &Value) -> Result<Vec<String>, String> {
        let one = |set: &Parameters<'_>| {
            let name =
                |p: &Parameter<'_>| format!("{}{}", p.name, if p.required { "!" } else { "" });
            let mut names: Vec<String> = set.named.iter().map(name).collect();
            names.extend(set.others.as_ref().map(|_| "*".to_string()));
            names.join(" ")
        };
        Ok(alternatives(schema)?.iter().map(one).collect())
    }

    #[test]
    fn a_schema_means_what_it_means_for_objects() {
        let closed =
            |properties: Value| json!({"properties": properties, "additionalProperties": false});
        let ab = closed(json!({"a": {}, "b": {}}));
        let with = |more: Value| {
            let mut schema = ab.clone();
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            schema
        };
        for (schema, want) in [
            (json!({}), vec!["*"]),
            (json!(true), vec!["*"]),
            (json!({"type": "object", "properties": null, "required": null}), vec!["*"]),
            (json!({"additionalProperties": {"type": "integer"}}), vec!["*"]),
            (ab.clone(), vec!["a b"]),
            (with(json!({"required": ["b"]})), vec!["a b!"]),
            (json!({"required": ["c"]}), vec!["c! *"]),
            (json!({"$ref": "#/$defs/A", "$defs": {"A": ab}}), vec!["a b"]),
            (
                json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]}),
                vec!["a! b *"],
            ),
            (json!({"allOf": [ab, closed(json!({"b": {}, "c": {}}))]}), vec!["b"]),
            (
                with(json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]})),
                vec!["a! b", "a b!"],
            ),
            (
                json!({"oneOf": [ab, {"type": "string"}, closed(json!({"c": {}}))]}),
                vec!["a b", "c"],
            ),
            (with(json!({"properties": {"a": false, "b": {}}})), vec!["b"]),
        ] {
            let want: Vec<String> = want.into_iter().map(String::from).collect();
            assert_eq!(written(&schema), Ok(want), "{schema}");
        }
        for wrong in [
            json!("x"),
            json!({"type": "string"}),
            json!(false),
            with(json!({"required": ["c"]})),
            json!({"$ref": "#"}),
            json!({"anyOf": vec![json!({}); 17]}),
        ] {
            assert!(written(&wrong).is_err(), "{wrong}");
        }
        let both = json!({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"minLength": 1}}}]});
        let all = alternatives(&both).expect("objects");
        assert_eq!(all[0].named[0].schemas, [&json!({"type": "string"}), &json!({"minLength": 1})]);
    }

    #[test]
    fn chains_of_references_are_bounded() {
        let link = |n: usize| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}));
        let chain: Map<String, Value> = (0..100_000).map(link).collect();
        assert!(written(&json!({"$ref": "#/$defs/d0", "$defs": chain})).is_err());
        let wide = json!({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]});
        let root = json!({"$ref": "#/$defs/a", "$defs": {"a": wide}});
        assert!(written(&root).is_err());
    }
}
