//! Prints values as Python does. Chat templates are written for Python's Jinja, where `{{ true }}` is
//! `True`, `{{ none }}` is `None`, and `tojson` puts spaces after `,` and `:`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deepest nesting of a value; more would only serve to exhaust the stack.
const MAX_DEPTH: usize = 128;

/// Converts a JSON value; objects keep the order of their keys.
pub(super) fn from_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => ().into(),
        Json::Bool(yes) => (*yes).into(),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => n.into(),
            (_, Some(n)) => n.into(),
            _ => n.as_f64().unwrap_or(f64::NAN).into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => items.iter().map(from_json).collect(),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(k, v)| (k.as_str(), from_json(v)))),
    }
}

/// Python's `str(value)`.
pub(super) fn to_str(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.into()),
        None => {
            let mut out = String::new();
            write_repr(value, 0, &mut out)?;
            Ok(out)
        }
    }
}

fn write_repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    check_depth(depth)?;
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(&item, depth + 1, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(&key, depth + 1, out)?;
                out.push_str(": ");
                write_repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// Python's `repr` of a string: in single quotes unless double quotes save escapes.
fn repr_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 || (0x7F..0xA0).contains(&u32::from(c)) => {
                out.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Python's `repr` of a number. Floats have the shortest digits that parse to the same value, and an
/// exponent from 1e16 up and below 1e-4.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let x = f64::try_from(value.clone()).unwrap_or(f64::NAN);
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        return format!("{x:?}");
    }
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Options of Python's `json.dumps(value, ensure_ascii=False, …)`.
pub(super) struct JsonFormat {
    pub(super) indent: Option<usize>,
    pub(super) sort_keys: bool,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    /// Bytes of output from which dumping fails.
    pub(super) max_bytes: usize,
}

impl JsonFormat {
    pub(super) fn dump(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(value, 0, &mut out)?;
        Ok(out)
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        check_depth(depth)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(match number(value).as_str() {
                "nan" => "NaN",
                "inf" => "Infinity",
                "-inf" => "-Infinity",
                finite => finite,
            }),
            ValueKind::String => write_string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_items(('[', ']'), &items, depth, out, |item, out| {
                    self.write(item, depth + 1, out)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.write_items(('{', '}'), &keys, depth, out, |key, out| {
                    match key.kind() {
                        ValueKind::String => self.write(key, depth + 1, out)?,
                        _ => {
                            let mut name = String::new();
                            self.write(key, depth + 1, &mut name)?;
                            write_string(&name, out);
                        }
                    }
                    out.push_str(&self.key_separator);
                    self.write(&value.get_item(key)?, depth + 1, out)
                })?;
            }
            kind => {
                return Err(Error::new(ErrorKind::BadSerialization, format!("{kind} is not JSON")));
            }
        }
        Ok(())
    }

    fn write_items(
        &self,
        (open, close): (char, char),
        items: &[Value],
        depth: usize,
        out: &mut String,
        mut each: impl FnMut(&Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let new_line = |depth: usize, out: &mut String| {
            if let Some(indent) = self.indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        out.push(open);
        for (i, item) in items.iter().enumerate() {
            if out.len() > self.max_bytes {
                return Err(Error::new(ErrorKind::InvalidOperation, "the JSON is too long"));
            }
            out.push_str(if i > 0 { &self.item_separator } else { "" });
            new_line(depth + 1, out);
            each(item, out)?;
        }
        if !items.is_empty() {
            new_line(depth, out);
        }
        out.push(close);
        Ok(())
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a string is JSON"));
}

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("a value is nested more than {MAX_DEPTH} deep"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_in_python() {
        let value: serde_json::Value = serde_json::from_str(
            r#"[null, true, 1, 1.0, 0.1, 1e16, 1.5e-7, -0.0, "a'b", "q\"'\n\u0001é", {"k": [false]}]"#,
        )
        .unwrap();
        assert_eq!(
            to_str(&from_json(&value)).unwrap(),
            r#"[None, True, 1, 1.0, 0.1, 1e+16, 1.5e-07, -0.0, "a'b", 'q"\'\n\x01é', {'k': [False]}]"#
        );
        assert_eq!(to_str(&Value::from("a'b")).unwrap(), "a'b");
        assert_eq!(to_str(&Value::UNDEFINED).unwrap(), "");
    }
}
