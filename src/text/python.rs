//! Prints values as Python does. Chat templates are written for Python's Jinja, where `{{ true }}` is
//! `True`, `{{ none }}` is `None`, and `tojson` puts spaces after `,` and `:`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deepest nesting of a value; more would only serve to exhaust the stack.
const MAX_DEPTH: usize = 128;

/// Python's `str.isspace` of a character.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The items that a value has in Python: those of a list, the keys of a dictionary, the characters of a
/// string, and none of an undefined value.
pub(super) fn items(value: &Value) -> Result<Vec<Value>, Error> {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => Ok(text.chars().map(Value::from).collect()),
        (None, ValueKind::Undefined) => Ok(Vec::new()),
        (None, ValueKind::None) => Err(not_iterable()),
        _ => Ok(value.try_iter()?.collect()),
    }
}

/// The error of a loop over `None`.
pub(super) fn not_iterable() -> Error {
    Error::new(ErrorKind::InvalidOperation, "`none` is not iterable")
}

/// Python's `str.splitlines`.
pub(super) fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    const ENDS: &[char] = &[
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
        '\u{2029}',
    ];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ENDS) {
        let end = &rest[at..];
        let width =
            if end.starts_with("\r\n") { 2 } else { end.chars().next().map_or(1, char::len_utf8) };
        lines.push(&rest[..if keep_ends { at + width } else { at }]);
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// Python's `str.split` and `str.rsplit`: at white space without a separator, up to `most` times.
pub(super) fn split<'a>(
    text: &'a str,
    separator: Option<&str>,
    most: Option<usize>,
    from_right: bool,
) -> Vec<&'a str> {
    let most = most.unwrap_or(usize::MAX - 1);
    let mut parts = Vec::new();
    let mut rest = text;
    match (separator, from_right) {
        (Some(separator), false) => return text.splitn(most + 1, separator).collect(),
        (Some(separator), true) => parts.extend(text.rsplitn(most + 1, separator)),
        (None, false) => loop {
            rest = rest.trim_start_matches(is_space);
            let cut = rest.find(is_space).filter(|_| parts.len() < most);
            let (part, after) = rest.split_at(cut.unwrap_or(rest.len()));
            if part.is_empty() {
                return parts;
            }
            parts.push(part);
            rest = after;
        },
        (None, true) => loop {
            rest = rest.trim_end_matches(is_space);
            let space = rest.char_indices().rev().find(|(_, c)| is_space(*c));
            let cut = space.filter(|_| parts.len() < most).map(|(at, c)| at + c.len_utf8());
            let (before, part) = rest.split_at(cut.unwrap_or(0));
            if part.is_empty() {
                break;
            }
            parts.push(part);
            rest = before;
        },
    }
    parts.reverse();
    parts
}

/// `markupsafe.escape` of a string.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

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
        ValueKind::Undefined if depth == 0 => {}
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(&item, depth + 1, out)?;
            }
            out.push_str(if value.is_tuple() && value.len() == Some(1) { "," } else { "" });
            out.push(close);
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
            c if is_printable(c) => out.push(c),
            c => match u32::from(c) {
                n @ 0..=0xFF => out.push_str(&format!("\\x{n:02x}")),
                n @ 0x100..=0xFFFF => out.push_str(&format!("\\u{n:04x}")),
                n => out.push_str(&format!("\\U{n:08x}")),
            },
        }
    }
    out.push(quote);
}

/// Python's `str.isprintable` of a character, without the code points that Unicode has not assigned.
fn is_printable(c: char) -> bool {
    let n = u32::from(c);
    c == ' '
        || !(c.is_control()
            || c.is_whitespace()
            // Format characters, and those for private use.
            || matches!(n, 0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x890 | 0x891 | 0x8E2)
            || matches!(n, 0x180E | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F)
            || matches!(n, 0xE000..=0xF8FF | 0xFEFF | 0xFFF9..=0xFFFB | 0xFFFE | 0xFFFF)
            || n >= 0xE0000)
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

/// Options of Python's `json.dumps`.
pub(super) struct JsonFormat {
    /// Text that each line is indented with, once for each level.
    pub(super) indent: Option<String>,
    /// Writes other characters than ASCII as `\uXXXX`.
    pub(super) ascii: bool,
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
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out),
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
                            self.write_string(&name, out);
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
            if let Some(indent) = &self.indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(indent.as_str(), depth));
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

    fn write_string(&self, text: &str, out: &mut String) {
        let json = serde_json::to_string(text).expect("a string is JSON");
        if !self.ascii {
            return out.push_str(&json);
        }
        for c in json.chars() {
            match c {
                ' '..='~' => out.push(c),
                _ => {
                    let units = c
                        .encode_utf16(&mut [0; 2])
                        .iter()
                        .map(|u| format!("\\u{u:04x}"))
                        .collect::<String>();
                    out.push_str(&units);
                }
            }
        }
    }
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
    fn texts_are_split_as_in_python() {
        assert_eq!(lines("a\r\nb\rc\u{2028}\n", false), ["a", "b", "c", ""]);
        assert_eq!(lines("a\r\nb\n", true), ["a\r\n", "b\n"]);
        assert_eq!(split(" a b  c ", None, None, false), ["a", "b", "c"]);
        assert_eq!(split(" a b  c ", None, Some(1), false), ["a", "b  c "]);
        assert_eq!(split(" a b  c ", None, Some(1), true), [" a b", "c"]);
        assert_eq!(split("a,b,c", Some(","), Some(1), true), ["a,b", "c"]);
        assert_eq!(split("a,b,c", Some(","), Some(0), false), ["a,b,c"]);
        assert_eq!(split("  ", None, None, true), [""; 0]);
    }

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
        let odd = Value::from(vec!["\u{a0}\u{200b}\u{e000}\u{10ffff}ß漢"]);
        assert_eq!(to_str(&odd).unwrap(), r"['\xa0\u200b\ue000\U0010ffffß漢']");
        assert_eq!(to_str(&Value::UNDEFINED).unwrap(), "");
    }
}
