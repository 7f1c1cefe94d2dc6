//! Budgets by count: they hold on every system and in every process, also where nothing limits memory
//! and time.

use super::walk::{ANNOTATIONS, Inside, inside};
use serde_json::{Map, Value};
use std::io::{self, Write};

/// Largest size of a grammar's text in bytes: of all texts and schemas that one request asks for, and of
/// the grammar that is made of them.
pub const TEXT: usize = 128 << 10;
/// Largest nesting of a schema. What reads schemas recurses, and JSON texts nest 128 deep at most.
pub const DEPTH: usize = 100;
/// Largest number of JSON values that rewriting may add to a schema. A text of [`TEXT`] bytes has no
/// room for more.
const ADDED_VALUES: usize = TEXT / 4;

/// Checks the size of a text.
///
/// # Errors
/// If it has more than [`TEXT`] bytes.
pub fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > TEXT {
        return Err(format!("it has {bytes} bytes, of which there may be {TEXT}"));
    }
    Ok(())
}

/// Checks the nesting of a value without recursion, so values of any depth may be given.
///
/// # Errors
/// If it has more than [`DEPTH`] levels.
pub fn check_depth(value: &Value) -> Result<(), String> {
    let mut waiting = vec![(value, 0)];
    while let Some((value, depth)) = waiting.pop() {
        if depth > DEPTH {
            return Err(format!("it is nested too deeply: {DEPTH} levels are the most"));
        }
        match value {
            Value::Array(list) => waiting.extend(list.iter().map(|value| (value, depth + 1))),
            Value::Object(map) => waiting.extend(map.values().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// Returns a copy of a schema without what describes it and constrains nothing, which counts in no
/// budget.
///
/// # Errors
/// If the schema is nested too deeply.
pub fn without_annotations(schema: &Value) -> Result<Value, String> {
    check_depth(schema)?;
    Ok(copy(schema))
}

fn copy(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let kept = fields.iter().filter(|(key, _)| !ANNOTATIONS.contains(&&***key));
    let copied = kept.map(|(key, value)| {
        let value = match (inside(key, value), value) {
            (Inside::Schema, schema) => copy(schema),
            (Inside::List, Value::Array(list)) => list.iter().map(copy).collect(),
            (Inside::Map, Value::Object(map)) => {
                let map = map.iter().map(|(name, schema)| (name.clone(), copy(schema)));
                Value::Object(map.collect::<Map<_, _>>())
            }
            (_, value) => value.clone(),
        };
        (key.clone(), value)
    });
    Value::Object(copied.collect())
}

/// Returns the size of a value as JSON text, or `None` if that is more than `most`. Does not make the
/// text.
#[must_use]
pub fn json_size(value: &impl serde::Serialize, most: usize) -> Option<usize> {
    struct Counter(usize, usize);
    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            if self.0 > self.1 { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0, most);
    serde_json::to_writer(&mut counter, value).ok()?;
    Some(counter.0)
}

/// JSON values that rewriting may still add to a schema.
#[derive(Debug)]
pub struct Budget {
    left: usize,
    /// True once there was too little left.
    pub exhausted: bool,
}

impl Budget {
    /// Returns the budget of one schema.
    pub fn new() -> Self {
        Self { left: ADDED_VALUES, exhausted: false }
    }

    /// Returns a budget for no rewriting that copies.
    pub fn none() -> Self {
        Self { left: 0, exhausted: false }
    }

    /// Takes `values` from the budget; `None` if there are too few left.
    pub fn take(&mut self, values: usize) -> Option<()> {
        if let Some(left) = self.left.checked_sub(values) {
            self.left = left;
            return Some(());
        }
        (self.left, self.exhausted) = (0, true);
        None
    }

    /// Returns a copy of a value, whose values it takes from the budget.
    pub fn copy(&mut self, value: &Value) -> Option<Value> {
        self.take_all(value)?;
        Some(value.clone())
    }

    fn take_all(&mut self, value: &Value) -> Option<()> {
        self.take(1)?;
        match value {
            Value::Array(list) => list.iter().try_for_each(|value| self.take_all(value)),
            Value::Object(map) => map.values().try_for_each(|value| self.take_all(value)),
            _ => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_and_depths_are_counted() {
        let value = json!({"a": [1, "x\n", null]});
        assert_eq!(json_size(&value, 100), Some(value.to_string().len()));
        assert_eq!(json_size(&value, value.to_string().len() - 1), None);
        let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
        assert!(check_depth(&nested(DEPTH)).is_ok());
        assert!(check_depth(&nested(DEPTH + 1)).expect_err("deep").contains("nested"));
    }

    #[test]
    fn annotations_go_and_members_of_their_names_stay() {
        let schema = json!({"title": "T", "properties": {"title": {"type": "string",
            "description": "d"}}, "anyOf": [{"examples": [1]}], "items": {"default": 1},
            "enum": [{"title": "kept"}]});
        let want = json!({"properties": {"title": {"type": "string"}}, "anyOf": [{}], "items": {},
            "enum": [{"title": "kept"}]});
        assert_eq!(without_annotations(&schema), Ok(want));
    }

    #[test]
    fn a_budget_ends() {
        let mut budget = Budget::new();
        let large = json!(vec![0; ADDED_VALUES / 2]);
        assert!(budget.copy(&large).is_some() && !budget.exhausted);
        assert!(budget.copy(&large).is_none() && budget.exhausted);
        assert!(budget.take(1).is_none());
    }
}
