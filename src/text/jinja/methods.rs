//! The methods of Python's strings, lists and dictionaries.

use super::args::Args;
use super::budget::{Budget, EACH, count, refused, text};
use super::format::str_format;
use crate::text::python::{self, is_space};
use minijinja::value::{Object, ObjectRepr, Tuple, Value, ValueKind};
use minijinja::{Error, State};
use std::sync::Arc;

const OF_STRINGS: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
/// The last ones change a list or a dictionary, which the sandbox of `transformers` refuses.
const OF_LISTS: &[&str] =
    &["copy", "count", "index", "append", "clear", "extend", "insert", "pop", "remove", "reverse"];
const OF_DICTIONARIES: &[&str] =
    &["copy", "get", "items", "keys", "values", "clear", "pop", "popitem", "setdefault", "update"];

/// Returns true if a value has this method in Python.
pub(super) fn has(value: &Value, name: &str) -> bool {
    let known = match value.kind() {
        ValueKind::String => OF_STRINGS,
        ValueKind::Seq => OF_LISTS,
        ValueKind::Map if is_dictionary(value) => OF_DICTIONARIES,
        _ => return false,
    };
    known.contains(&name)
}

/// Returns true for a dictionary, and false for minijinja's other objects with attributes.
pub(super) fn is_dictionary(value: &Value) -> bool {
    let name = value.as_object().map_or("", |object| object.type_name());
    let other = ["Namespace", "Loop", "Macro", "Module"].iter().any(|end| name.ends_with(end));
    value.kind() == ValueKind::Map && !other
}

/// A method as a value: `message.items is defined`, `{% set get = message.get %}`.
#[derive(Debug)]
pub(super) struct Method {
    budget: Budget,
    value: Value,
    name: String,
}

impl Method {
    pub(super) fn new(budget: &Budget, value: &Value, name: &str) -> Self {
        Self { budget: budget.clone(), value: value.clone(), name: name.to_owned() }
    }
}

impl Object for Method {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        call(&self.budget, &self.value, &self.name, args)
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<built-in method {}>", self.name)
    }
}

/// Calls a method that [`has`] knows.
pub(super) fn call(
    budget: &Budget,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => {
            let result = of_string(budget, value, name, args)?;
            // What Python makes of a safe text is safe.
            Ok(match result.as_str() {
                Some(text) if value.is_safe() && name != "format" => {
                    Value::from_safe_string(text.to_owned())
                }
                _ => result,
            })
        }
        ValueKind::Seq => of_list(budget, value, name, args),
        _ => of_dictionary(budget, value, name, args),
    }
}

fn of_list(budget: &Budget, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let result = match name {
        "copy" => {
            budget.charge_shallow(value)?;
            value.clone()
        }
        "count" | "index" => {
            let wanted = args.required("value")?;
            budget.charge_deep(value)?;
            let mut items = value.try_iter()?;
            match name {
                "count" => Value::from(items.filter(|item| *item == wanted).count()),
                _ => Value::from(
                    items
                        .position(|item| item == wanted)
                        .ok_or_else(|| refused("`index`: the value is not in the list"))?,
                ),
            }
        }
        _ => return Err(refused(&format!("`{name}` would change a list, which is not allowed"))),
    };
    args.finish()?;
    Ok(result)
}

fn of_dictionary(
    budget: &Budget,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    if name != "get" {
        budget.charge(EACH * 4 * count(value))?;
    }
    let keys = || value.try_iter();
    let result = match name {
        "get" => {
            let key = args.required("key")?;
            // Hashing reads the whole key.
            budget.charge_deep(&key)?;
            let found = value.get_item(&key)?;
            let default = args.value("default")?;
            if found.is_undefined() { default.unwrap_or_else(|| Value::from(())) } else { found }
        }
        "keys" => keys()?.collect(),
        "values" => keys()?.map(|key| value.get_item(&key)).collect::<Result<_, _>>()?,
        "items" => {
            let pair = |key: Value| {
                let item = value.get_item(&key)?;
                Ok(Value::from(Tuple::from([key, item])))
            };
            keys()?.map(pair).collect::<Result<_, Error>>()?
        }
        "copy" => value.clone(),
        _ => {
            return Err(refused(&format!(
                "`{name}` would change a dictionary, which is not allowed"
            )));
        }
    };
    args.finish()?;
    Ok(result)
}

fn of_string(budget: &Budget, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let s = value.as_str().unwrap_or_default();
    let mut paid = budget.charge_deep(value)?;
    for arg in args {
        paid += budget.charge_deep(arg)?;
    }
    // What changes characters writes them once more, some with more bytes.
    budget.charge(paid.saturating_mul(3))?;
    match name {
        "format" => return str_format(budget, s, args).map(Value::from),
        "join" => return join(budget, s, args),
        "strip" | "lstrip" | "rstrip" => return strip(budget, s, name, args),
        "split" | "rsplit" | "splitlines" | "partition" | "rpartition" => {
            return split(budget, s, name, args);
        }
        "find" | "rfind" | "index" | "rindex" | "count" | "startswith" | "endswith" => {
            return search(s, name, args);
        }
        "replace" => return replace(budget, s, args),
        "ljust" | "rjust" | "center" | "zfill" | "expandtabs" => {
            return pad(budget, s, name, args);
        }
        _ => {}
    }
    let mut args = Args::new(args)?;
    let result = match name {
        "upper" => s.to_uppercase().into(),
        "lower" => s.to_lowercase().into(),
        "casefold" => s.to_lowercase().replace('ß', "ss").into(),
        "title" => title(s).into(),
        "capitalize" => capitalize(s).into(),
        "swapcase" => s.chars().map(swap_case).collect::<String>().into(),
        "removeprefix" | "removesuffix" => {
            let part = args.required(if name == "removeprefix" { "prefix" } else { "suffix" })?;
            let part = part.as_str().ok_or_else(|| refused(&format!("`{name}` takes a string")))?;
            let rest =
                if name == "removeprefix" { s.strip_prefix(part) } else { s.strip_suffix(part) };
            rest.unwrap_or(s).into()
        }
        _ => Value::from(is(s, name)),
    };
    args.finish()?;
    Ok(result)
}

/// The methods that ask for a kind of characters.
fn is(s: &str, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !s.is_empty() && s.chars().all(test);
    match name {
        "isascii" => s.is_ascii(),
        "isspace" => all(is_space),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isdecimal" | "isdigit" | "isnumeric" => all(char::is_numeric),
        "islower" => {
            s.chars().any(char::is_lowercase)
                && !s.chars().any(|c| c.is_uppercase() && !c.is_lowercase())
        }
        _ => s.chars().any(char::is_uppercase) && !s.chars().any(char::is_lowercase),
    }
}

fn title(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        if inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}

pub(super) fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>());
    first.unwrap_or_default() + &chars.as_str().to_lowercase()
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}

fn join(budget: &Budget, s: &str, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let values = args.required("iterable")?;
    args.finish()?;
    budget.charge(count(&values).saturating_mul(s.len()))?;
    let mut out = String::new();
    for (at, item) in python::items(&values)?.iter().enumerate() {
        let Some(item) = item.as_str() else {
            let kind = item.kind();
            return Err(refused(&format!("`join` takes strings, but item {at} is a {kind}")));
        };
        out.push_str(if at > 0 { s } else { "" });
        out.push_str(item);
    }
    Ok(out.into())
}

/// Removes characters at the ends. Each is compared with each character to remove.
fn strip(budget: &Budget, s: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let chars = args.text("chars")?;
    args.finish()?;
    budget.charge(s.len().saturating_mul(chars.as_ref().map_or(0, text)))?;
    let set: Option<Vec<char>> =
        chars.map(|set| set.as_str().unwrap_or_default().chars().collect());
    let out = |c: char| set.as_ref().map_or_else(|| is_space(c), |set| set.contains(&c));
    Ok(Value::from(match name {
        "strip" => s.trim_matches(out),
        "lstrip" => s.trim_start_matches(out),
        _ => s.trim_end_matches(out),
    }))
}

fn split(budget: &Budget, s: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    if name == "splitlines" {
        let keep = args.truth("keepends")?;
        args.finish()?;
        let lines = python::lines(s, keep);
        budget.charge(lines.len().saturating_mul(2 * EACH))?;
        return Ok(lines.into_iter().map(Value::from).collect());
    }
    let separator = args.text("sep")?;
    let separator = separator.as_ref().and_then(Value::as_str);
    if separator == Some("") {
        return Err(refused("empty separator"));
    }
    if let "partition" | "rpartition" = name {
        args.finish()?;
        let separator = separator.ok_or_else(|| refused("the argument `sep` is missing"))?;
        let (found, parts) = if name == "partition" {
            (s.split_once(separator), [s, "", ""])
        } else {
            (s.rsplit_once(separator), ["", "", s])
        };
        let parts = found.map_or(parts, |(before, after)| [before, separator, after]);
        return Ok(Value::from(Tuple::from(parts.map(Value::from))));
    }
    let most = args.integer("maxsplit")?.and_then(|n| usize::try_from(n).ok());
    args.finish()?;
    let parts = python::split(s, separator, most, name == "rsplit");
    budget.charge(parts.len().saturating_mul(2 * EACH))?;
    Ok(parts.into_iter().map(Value::from).collect())
}

/// The methods that look for a text between two positions.
fn search(s: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let wanted = args.required("sub")?;
    let (start, end) = (args.integer("start")?, args.integer("end")?);
    args.finish()?;
    let length = s.chars().count();
    let place = |at: Option<i64>, default: usize| match at {
        None => default,
        Some(at) if at < 0 => length.saturating_sub(at.unsigned_abs() as usize),
        Some(at) => usize::try_from(at).unwrap_or(usize::MAX),
    };
    let (start, end) = (place(start, 0), place(end, length).min(length));
    let offset = |at: usize| s.char_indices().nth(at).map_or(s.len(), |(at, _)| at);
    let part = (start <= end).then(|| &s[offset(start)..offset(end)]);
    if let "startswith" | "endswith" = name {
        let affixes = if wanted.is_tuple() { wanted.try_iter()?.collect() } else { vec![wanted] };
        let mut found = false;
        for affix in &affixes {
            let affix = affix.as_str();
            let affix =
                affix.ok_or_else(|| refused(&format!("`{name}` takes a string or a tuple")))?;
            let at_start = name == "startswith";
            found |= part
                .is_some_and(|p| if at_start { p.starts_with(affix) } else { p.ends_with(affix) });
        }
        return Ok(found.into());
    }
    let wanted = wanted.as_str().ok_or_else(|| refused(&format!("`{name}` takes a string")))?;
    if name == "count" {
        return Ok(part.map_or(0, |part| part.matches(wanted).count()).into());
    }
    let found = match (part, name.starts_with('r')) {
        (None, _) => None,
        (Some(part), false) => part.find(wanted).map(|at| &part[..at]),
        (Some(part), true) => part.rfind(wanted).map(|at| &part[..at]),
    };
    match found {
        Some(before) => Ok(Value::from(start + before.chars().count())),
        None if name.ends_with("find") => Ok(Value::from(-1)),
        None => Err(refused("substring not found")),
    }
}

/// Replaces a text up to `count` times.
fn replace(budget: &Budget, s: &str, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let (old, new) = (args.text("old")?, args.text("new")?);
    let most = args.integer("count")?.and_then(|n| usize::try_from(n).ok());
    args.finish()?;
    let (Some(old), Some(new)) = (old, new) else {
        return Err(refused("`replace` takes two strings"));
    };
    let (old, new) = (old.as_str().unwrap_or_default(), new.as_str().unwrap_or_default());
    budget.charge(s.matches(old).count().saturating_mul(new.len()))?;
    Ok(Value::from(match most {
        Some(most) => s.replacen(old, new, most),
        None => s.replace(old, new),
    }))
}

/// The methods that add characters up to a width.
fn pad(budget: &Budget, s: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let width = args.integer(if name == "expandtabs" { "tabsize" } else { "width" })?;
    let width = usize::try_from(width.unwrap_or(8)).unwrap_or(0);
    let fill = if let "zfill" | "expandtabs" = name { None } else { args.text("fillchar")? };
    args.finish()?;
    let tabs = if name == "expandtabs" { s.matches('\t').count() } else { 1 };
    budget.charge(width.saturating_mul(4 * tabs))?;
    if name == "expandtabs" {
        return Ok(expand_tabs(s, width).into());
    }
    let fill = fill.as_ref().and_then(Value::as_str).unwrap_or(" ");
    let missing = width.saturating_sub(s.chars().count());
    Ok(Value::from(match name {
        "ljust" => s.to_owned() + &fill.repeat(missing),
        "rjust" => fill.repeat(missing) + s,
        "zfill" => {
            let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
            format!("{sign}{}{digits}", "0".repeat(missing))
        }
        _ => {
            // Python's rule for an odd number.
            let left = missing / 2 + (missing & width & 1);
            format!("{}{s}{}", fill.repeat(left), fill.repeat(missing - left))
        }
    }))
}

fn expand_tabs(s: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for c in s.chars() {
        match c {
            '\t' if width == 0 => {}
            '\t' => {
                let spaces = width - column % width;
                out.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
            }
            _ => {
                out.push(c);
                column = if c == '\n' || c == '\r' { 0 } else { column + 1 };
            }
        }
    }
    out
}
