//! Errors of serde in the words of users: they do not know Rust's types.

use std::fmt::Display;

/// Most characters of a value that an error shows.
const SHOWN: usize = 60;

/// Returns what an error of serde about JSON says, without Rust's words: what a field takes and what was
/// found, or which field is missing, unknown or there twice. Other texts stay as they are.
///
/// ```
/// use wrinklefree::settings::explain_json_error;
///
/// let error = serde_json::from_str::<Vec<f32>>(r#"["hot"]"#).unwrap_err();
/// assert_eq!(explain_json_error(error), r#"expected a number, not "hot""#);
/// ```
pub fn explain_json_error(error: impl Display) -> String {
    let error = error.to_string();
    let error = without_position(&error);
    if let Some(name) = quoted_after(error, "missing field ") {
        return format!("the field `{name}` is missing");
    }
    if let Some(name) = quoted_after(error, "duplicate field ") {
        return format!("the field `{name}` is there twice");
    }
    let Some((found, wanted)) = error.rsplit_once(", expected ") else { return error.into() };
    if let Some(name) = quoted_after(found, "unknown field ") {
        return format!("there is no field `{name}`, only {}", names(wanted).join(", "));
    }
    if let Some(name) = quoted_after(found, "unknown variant ") {
        let names = names(wanted);
        let one_of = if names.len() > 1 { "one of " } else { "" };
        let name = shown(&format!("{name:?}"));
        return format!("expected {one_of}{}, not {name}", names.join(", "));
    }
    let value = found.strip_prefix("invalid type: ").or(found.strip_prefix("invalid value: "));
    let found = match (value, found.strip_prefix("invalid length ")) {
        (Some(value), _) => value_in_words(value),
        (None, Some(length)) => format!("an array of length {length}"),
        (None, None) => return error.into(),
    };
    format!("expected {}, not {found}", kind_in_words(wanted))
}

/// Returns the text of a value in an error, cut if it is long.
#[must_use]
pub fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.into(),
    }
}

/// Removes the line and the column: programs write JSON.
fn without_position(error: &str) -> &str {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match error.rsplit_once(" at line ") {
        Some((rest, place)) if place.split(" column ").all(number) => rest,
        _ => error,
    }
}

/// Returns the text between backticks that follows `start`.
fn quoted_after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(start)?.strip_prefix('`')?;
    rest.rsplit_once('`').map(|(name, _)| name)
}

/// Returns the texts between backticks: "one of `a`, `b`".
fn names(expected: &str) -> Vec<&str> {
    expected.split('`').skip(1).step_by(2).collect()
}

/// Returns a value as JSON, where serde shows it, or else its kind.
fn value_in_words(found: &str) -> String {
    match found {
        "unit value" => return "null".into(),
        "sequence" => return "an array".into(),
        "map" => return "an object".into(),
        _ => {}
    }
    for kind in ["integer ", "floating point ", "boolean ", "character "] {
        if let Some(value) = quoted_after(found, kind) {
            return value.into();
        }
    }
    shown(found.strip_prefix("string ").unwrap_or(found))
}

/// Returns the kind of value of a field in the words of JSON.
fn kind_in_words(expected: &str) -> String {
    let words = match expected {
        "f32" | "f64" => "a number",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "an object",
        "string or map" | "variant identifier" => "a string",
        kind if kind.starts_with("struct ") => "an object",
        kind if kind.starts_with("a nonzero ") => "a whole number from 1",
        kind => match kind.strip_prefix("a tuple of size ") {
            Some(length) => return format!("an array of length {length}"),
            None => kind,
        },
    };
    words.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde::de::DeserializeOwned;
    use std::num::NonZeroUsize;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Color {
        Red,
        Green,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Only {
        Function,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only errors are looked at")]
    struct Fields {
        size: u8,
        color: Option<Color>,
    }

    fn error<T: DeserializeOwned>(json: &str) -> String {
        let error = serde_json::from_str::<T>(json).err().expect("refused");
        explain_json_error(error)
    }

    #[test]
    fn values_of_a_wrong_kind_say_what_is_expected_and_found() {
        for (found, want) in [
            (error::<f32>(r#""hot""#), r#"expected a number, not "hot""#),
            (error::<f32>("null"), "expected a number, not null"),
            (error::<usize>("-1"), "expected a whole number from 0, not -1"),
            (error::<usize>("1.5"), "expected a whole number from 0, not 1.5"),
            (error::<u8>("256"), "expected a whole number from 0 to 255, not 256"),
            (error::<u32>("-3"), "expected a whole number from 0 to 4294967295, not -3"),
            (error::<NonZeroUsize>("0"), "expected a whole number from 1, not 0"),
            (error::<i64>("true"), "expected a whole number, not true"),
            (error::<bool>("3"), "expected true or false, not 3"),
            (error::<String>("{}"), "expected a string, not an object"),
            (error::<Vec<u32>>("{}"), "expected an array, not an object"),
            (error::<(u32, f32)>("3"), "expected an array of length 2, not 3"),
            (error::<(u32, f32)>("[3]"), "expected an array of length 2, not an array of length 1"),
            (error::<Fields>("[]"), "expected an object, not an array of length 0"),
            (error::<Fields>("3"), "expected an object, not 3"),
            (error::<Color>(r#""blue""#), r#"expected one of red, green, not "blue""#),
            (error::<Only>(r#""tool""#), r#"expected function, not "tool""#),
        ] {
            assert_eq!(found, want);
        }
        let error_of_name = serde_json::from_value::<Color>(3.into()).expect_err("refused");
        assert_eq!(explain_json_error(error_of_name), "expected a string, not 3");
        let long = error::<f32>(&format!("{:?}", "x".repeat(99)));
        assert!(long.ends_with("xxx…") && long.chars().count() < 90, "{long}");
    }

    #[test]
    fn fields_that_are_missing_unknown_or_twice_are_named() {
        for (json, want) in [
            ("{}", "the field `size` is missing"),
            (r#"{"size": 1, "n": 2}"#, "there is no field `n`, only size, color"),
            (r#"{"size": 1, "size": 2}"#, "the field `size` is there twice"),
            (r#"{"size": 1"#, "EOF while parsing an object"),
        ] {
            assert_eq!(error::<Fields>(json), want, "{json}");
        }
    }

    #[test]
    fn other_texts_stay() {
        for text in ["a red fox at line x", "unknown role `robot`: expected one of user", ""] {
            assert_eq!(explain_json_error(text), text);
        }
    }
}
