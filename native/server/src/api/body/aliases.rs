//! Fields that have several names. Some clients send a value under two of them.

use super::Selected;
use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Deserializer as Json, Map, Value};
use std::fmt;

/// Names of the same field. Which of them are equal depends on the struct that is read.
const NAMES: [&[&str]; 8] = [
    &["add_special_tokens", "add_special"],
    &["content", "input"],
    &["content", "prompt"],
    &["min_tokens", "min_new_tokens"],
    &["model", "name"],
    &["n_predict", "max_tokens"],
    &["repetition_penalty", "repeat_penalty"],
    &["thinking_budget", "thinking_token_budget", "thinking_budget_tokens"],
];

/// Error of a JSON text, with the path of the field.
pub type PathError = serde_path_to_error::Error<serde_json::Error>;

/// Reads the fields of `T`. One that comes under several names must have one value; null counts as none.
///
/// # Errors
/// Names the field that is missing, has the wrong type, or comes twice with different values.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, PathError> {
    let mut skipped = Vec::new();
    loop {
        let unique = WithoutFields { json: &mut Json::from_slice(json), skipped: &skipped };
        let error = match serde_path_to_error::deserialize(unique) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let Some(names) = superfluous(json, &error, &skipped) else { return Err(error) };
        skipped.extend(names);
    }
}

/// Returns the names to skip so that the field of an error comes once; `None` if that is impossible.
fn superfluous(
    json: &[u8],
    error: &PathError,
    skipped: &[&'static str],
) -> Option<Vec<&'static str>> {
    let (text, path) = (error.inner().to_string(), error.path().to_string());
    let field = match text.strip_prefix("duplicate field `") {
        Some(rest) => rest.split('`').next()?,
        None if text.starts_with("invalid type: null") => path.as_str(),
        None => return None,
    };
    let group = |names: &&&[&'static str]| {
        let new = !names.iter().any(|name| skipped.contains(name));
        new && names.contains(&field) && given(json, names).len() > 1
    };
    let names = NAMES.iter().find(group)?;
    let given = given(json, names);
    let values: Vec<&Value> = given.values().filter(|value| !value.is_null()).collect();
    if values.windows(2).any(|pair| pair[0] != pair[1]) {
        return None;
    }
    let kept = given.iter().find(|(_, value)| !value.is_null()).or(given.iter().next());
    let kept = kept.map(|(name, _)| name.as_str());
    Some(names.iter().copied().filter(|name| Some(*name) != kept).collect())
}

fn given(json: &[u8], names: &[&str]) -> Map<String, Value> {
    Selected(names).deserialize(&mut Json::from_slice(json)).unwrap_or_default()
}

/// An object without some of its fields.
struct WithoutFields<'a, D> {
    json: D,
    skipped: &'a [&'a str],
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WithoutFields<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.json.deserialize_map(WithoutFields { json: visitor, skipped: self.skipped })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for WithoutFields<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.json.visit_map(WithoutFields { json: map, skipped: self.skipped })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutFields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.json.next_key::<String>()? {
            if !self.skipped.contains(&key.as_str()) {
                let key: StringDeserializer<A::Error> = key.into_deserializer();
                return seed.deserialize(key).map(Some);
            }
            self.json.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.json.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Fields {
        #[serde(alias = "name")]
        model: String,
        #[serde(alias = "thinking_token_budget", alias = "thinking_budget_tokens")]
        thinking_budget: Option<usize>,
    }

    #[test]
    fn a_field_may_come_under_several_names() {
        let read = |json: &str| read::<Fields>(json.as_bytes()).map_err(|e| e.inner().to_string());
        let all = Fields { model: "m".into(), thinking_budget: Some(5) };
        for json in [
            r#"{"model": "m", "thinking_budget": 5}"#,
            r#"{"model": null, "thinking_budget": 5, "name": "m", "x": [{}]}"#,
            r#"{"name": "m", "model": "m", "thinking_token_budget": 5}"#,
            r#"{"model": "m", "thinking_budget": 5, "thinking_budget_tokens": null, "thinking_token_budget": 5}"#,
        ] {
            assert_eq!(read(json).as_ref(), Ok(&all), "{json}");
        }
        for json in [r#"{"model": "m", "name": "n"}"#, r#"{"model": "m", "model": "m"}"#] {
            let error = read(json).expect_err("two models");
            assert!(error.starts_with("duplicate field `model`"), "{error}");
        }
        let error = read(r#"{"model": null, "name": "m", "thinking_budget": -1}"#).expect_err("-1");
        assert!(error.starts_with("invalid value"), "{error}");
        // Two fields may come twice.
        let twice =
            r#"{"model": null, "name": "m", "thinking_budget": 5, "thinking_token_budget": 5}"#;
        assert_eq!(read(twice).as_ref(), Ok(&all));
    }
}
