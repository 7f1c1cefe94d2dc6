//! Fields that ask for something, found without keeping their values.

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// Returns for each of these fields whether it asks for something: it is not null, false or empty, and no
/// object with the type `text` or `disabled`.
pub struct SetFields<'a>(pub &'a [&'a str]);

impl<'de> DeserializeSeed<'de> for SetFields<'_> {
    type Value = Vec<bool>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Vec<bool>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SetFields<'_> {
    type Value = Vec<bool>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<bool>, A::Error> {
        let mut set = vec![false; self.0.len()];
        while let Some(key) = map.next_key::<String>()? {
            match self.0.iter().position(|name| *name == key) {
                Some(index) => set[index] = map.next_value_seed(IsSet)?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(set)
    }
}

/// Returns whether a value asks for something.
struct IsSet;

impl<'de> DeserializeSeed<'de> for IsSet {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for IsSet {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(!text.is_empty())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let any = list.next_element::<IgnoredAny>()?.is_some();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(any)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut off = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "type" {
                let kind = map.next_value::<Value>()?;
                off = kind == "text" || kind == "disabled";
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(!off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Deserializer;

    #[test]
    fn values_that_mean_off_are_not_set() {
        let set = |json: &str| {
            let body = format!("{{\"y\": 1, \"x\": {json}}}");
            SetFields(&["x"]).deserialize(&mut Deserializer::from_str(&body)).expect("an object")[0]
        };
        for off in
            ["null", "false", "[]", "\"\"", "{\"type\": \"text\"}", "{\"type\":\"disabled\"}"]
        {
            assert!(!set(off), "{off}");
        }
        for on in ["0", "-1", "0.5", "true", "[0, [1]]", "\"a\"", "{}", "{\"type\": \"x\"}"] {
            assert!(set(on), "{on}");
        }
    }
}
