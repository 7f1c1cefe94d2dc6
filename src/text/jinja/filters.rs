//! Filters and tests of Python's Jinja that minijinja lacks or has otherwise.

use super::args::{Args, integer};
use super::budget::{Budget, EACH, count, refused, size};
use super::cost::written;
use super::format::printf;
use super::methods;
use crate::text::python;
use minijinja::Error;
use minijinja::value::{Kwargs, Value, ValueKind};

/// A filter of a value and its arguments.
pub(super) type Filter = fn(&Budget, &Value, &[Value]) -> Result<Value, Error>;

/// The filters by name.
pub(super) const FILTERS: &[(&str, Filter)] = &[
    ("default", default),
    ("d", default),
    ("int", int),
    ("float", float),
    ("length", length),
    ("count", length),
    ("items", items),
    ("join", join),
    ("replace", replace),
    ("indent", indent),
    ("trim", |budget, value, args| method(budget, value, "strip", args)),
    ("upper", |budget, value, args| method(budget, value, "upper", args)),
    ("lower", |budget, value, args| method(budget, value, "lower", args)),
    ("capitalize", |budget, value, args| method(budget, value, "capitalize", args)),
    ("center", center),
    ("title", title),
    ("truncate", truncate),
    ("wordcount", word_count),
    ("format", format),
    ("batch", batch),
    ("slice", slice),
    ("string", string),
    ("escape", |budget, value, args| escape(budget, value, args, false)),
    ("e", |budget, value, args| escape(budget, value, args, false)),
    ("forceescape", |budget, value, args| escape(budget, value, args, true)),
    ("tojson", to_json),
];

/// A string as it is, and anything else as Python prints it.
fn soft(budget: &Budget, value: &Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(_) => budget.charge(size(value)).map(|()| value.clone()),
        None => written(budget, value).map(Value::from),
    }
}

fn string(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    Args::new(args)?.finish()?;
    soft(budget, value)
}

/// A filter that is a method of strings.
fn method(budget: &Budget, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    methods::call(budget, &soft(budget, value)?, name, args)
}

fn default(_: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let other = args.value("default_value")?.unwrap_or_else(|| Value::from(""));
    let lax = args.truth("boolean")?;
    args.finish()?;
    let missing = value.is_undefined() || (lax && !value.is_true());
    Ok(if missing { other } else { value.clone() })
}

fn int(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    budget.charge_text(value)?;
    let mut args = Args::new(args)?;
    let default = args.value("default")?.unwrap_or_else(|| Value::from(0));
    let base = args.integer("base")?.unwrap_or(10);
    args.finish()?;
    let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base));
    let base = base.ok_or_else(|| refused("`base` must be between 2 and 36"))?;
    if let Some(n) = integer(value) {
        return Ok(Value::from(n));
    }
    let whole = |x: f64| x.is_finite().then(|| Value::from(x as i128));
    let parsed = match value.as_str() {
        Some(text) => {
            parse_int(text, base).map(Value::from).or_else(|| parse_float(text).and_then(whole))
        }
        None if value.is_number() => f64::try_from(value.clone()).ok().and_then(whole),
        None => None,
    };
    Ok(parsed.unwrap_or(default))
}

/// Python's `int(text, base)`.
fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(python::is_space);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    let digits = match digits.get(..prefix.len()) {
        Some(start) if start.eq_ignore_ascii_case(prefix) => &digits[prefix.len()..],
        _ => digits,
    };
    let odd = digits.starts_with(['+', '-', '_']) || digits.ends_with('_') || digits.contains("__");
    if odd {
        return None;
    }
    i128::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), base).ok()
}

fn parse_float(text: &str) -> Option<f64> {
    text.trim_matches(python::is_space).parse().ok()
}

fn float(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    budget.charge_text(value)?;
    let mut args = Args::new(args)?;
    let default = args.value("default")?.unwrap_or_else(|| Value::from(0.0));
    args.finish()?;
    let parsed = match (integer(value), value.as_str()) {
        (Some(n), _) => Some(n as f64),
        (None, Some(text)) => parse_float(text),
        (None, None) => f64::try_from(value.clone()).ok(),
    };
    Ok(parsed.map_or(default, Value::from))
}

fn length(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    Args::new(args)?.finish()?;
    match (value.as_str(), value.kind()) {
        (Some(text), _) => {
            budget.charge(text.len())?;
            Ok(Value::from(text.chars().count()))
        }
        (None, ValueKind::Undefined) => Ok(Value::from(0)),
        (None, kind) => {
            value.len().map(Value::from).ok_or_else(|| refused(&format!("{kind} has no length")))
        }
    }
}

fn items(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Vec::<Value>::new().into()),
        ValueKind::Map => methods::call(budget, value, "items", args),
        kind => Err(refused(&format!("`items` takes a mapping, not {kind}"))),
    }
}

fn join(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let joiner = soft(budget, &args.value("d")?.unwrap_or_else(|| Value::from("")))?;
    let joiner = joiner.as_str().unwrap_or_default();
    let attribute = args.value("attribute")?.filter(|name| !name.is_none());
    args.finish()?;
    budget.charge_deep(value)?;
    let mut out = String::new();
    for (at, item) in python::items(value)?.into_iter().enumerate() {
        let item = match &attribute {
            None => item,
            Some(name) => attribute_of(&item, name)?,
        };
        let text = written(budget, &item)?;
        budget.charge(joiner.len())?;
        out.push_str(if at > 0 { joiner } else { "" });
        out.push_str(&text);
    }
    Ok(out.into())
}

/// The item that a path such as `function.name` names.
fn attribute_of(item: &Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return item.get_item(path) };
    let step = |value: Value, name: &str| match name.parse::<i64>() {
        Ok(at) => value.get_item(&Value::from(at)),
        Err(_) => value.get_attr(name),
    };
    path.split('.').try_fold(item.clone(), step)
}

fn replace(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let (old, new) = (args.required("old")?, args.required("new")?);
    let most = args.value("count")?.unwrap_or_else(|| Value::from(()));
    args.finish()?;
    let text = Value::from(written(budget, value)?);
    let args = [written(budget, &old)?.into(), written(budget, &new)?.into(), most];
    methods::call(budget, &text, "replace", &args)
}

fn indent(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let text = soft(budget, value)?;
    let mut args = Args::new(args)?;
    let width = args.value("width")?.unwrap_or_else(|| Value::from(4));
    let (first, blank) = (args.truth("first")?, args.truth("blank")?);
    args.finish()?;
    // Python's Jinja adds the newline before it splits, so an end of line at the end stays.
    let lines = text.as_str().unwrap_or_default().to_owned() + "\n";
    let lines = python::lines(&lines, false);
    let indent = match (width.as_str(), integer(&width)) {
        (Some(text), _) => text.to_owned(),
        (None, Some(width)) => {
            let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
            budget.charge(width.saturating_mul(lines.len()))?;
            " ".repeat(width)
        }
        (None, None) => return Err(refused("`width` must be an integer or a string")),
    };
    budget.charge(indent.len().saturating_mul(lines.len()))?;
    let mut out = String::new();
    for (at, line) in lines.iter().enumerate() {
        let indented = if at == 0 { first } else { blank || !line.is_empty() };
        out.push_str(if at > 0 { "\n" } else { "" });
        out.push_str(if indented { &indent } else { "" });
        out.push_str(line);
    }
    Ok(if text.is_safe() { Value::from_safe_string(out) } else { out.into() })
}

fn center(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let width = args.value("width")?.unwrap_or_else(|| Value::from(80));
    args.finish()?;
    method(budget, value, "center", &[width])
}

fn title(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    Args::new(args)?.finish()?;
    let text = written(budget, value)?;
    budget.charge(3 * text.len())?;
    let mut out = String::with_capacity(text.len());
    let mut starts = true;
    for c in text.chars() {
        if starts {
            out.extend(c.to_uppercase())
        } else {
            out.extend(c.to_lowercase())
        }
        starts = python::is_space(c) || "-({[<".contains(c);
    }
    Ok(out.into())
}

fn truncate(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let length = args.integer("length")?.unwrap_or(255);
    let kill_words = args.truth("killwords")?;
    let end = args.value("end")?.map_or_else(|| Ok("...".into()), |end| written(budget, &end))?;
    let leeway = args.integer("leeway")?.unwrap_or(5);
    args.finish()?;
    let text = written(budget, value)?;
    let characters = text.chars().count() as i64;
    if characters <= length.saturating_add(leeway) {
        return Ok(text.into());
    }
    let kept = usize::try_from(length.saturating_sub(end.chars().count() as i64));
    let kept = kept.map_err(|_| refused("`length` is shorter than `end`"))?;
    let cut: String = text.chars().take(kept).collect();
    let cut = if kill_words { &cut } else { cut.rsplit_once(' ').map_or(&*cut, |parts| parts.0) };
    Ok(Value::from(format!("{cut}{end}")))
}

fn word_count(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    Args::new(args)?.finish()?;
    let text = written(budget, value)?;
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
}

/// `value % arguments`
fn format(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (given, named) = Args::new(args)?.rest();
    let text = written(budget, value)?;
    let given = match named.args().next() {
        Some(_) => vec![Value::from_pairs(
            named
                .args()
                .map(|name| Ok((name, named.get::<Value>(name)?)))
                .collect::<Result<Vec<_>, Error>>()?,
        )],
        None => given.to_vec(),
    };
    printf(budget, &text, &given).map(Value::from)
}

/// The items of a value in a list that the budget has been charged for.
fn listed(budget: &Budget, value: &Value) -> Result<Vec<Value>, Error> {
    budget.charge(EACH.saturating_mul(2 * count(value)))?;
    python::items(value)
}

fn positive(args: &mut Args<'_>, name: &str) -> Result<usize, Error> {
    let number = args.integer(name)?.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
    number.ok_or_else(|| refused(&format!("`{name}` must be an integer from 1")))
}

fn batch(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let size = positive(&mut args, "linecount")?;
    let fill = args.value("fill_with")?.filter(|fill| !fill.is_none());
    args.finish()?;
    let items = listed(budget, value)?;
    let mut batches: Vec<Vec<Value>> = items.chunks(size).map(<[Value]>::to_vec).collect();
    if let (Some(fill), Some(last)) = (fill, batches.last_mut()) {
        budget.charge(EACH.saturating_mul(size - last.len()))?;
        last.resize(size, fill);
    }
    Ok(batches.into_iter().map(Value::from).collect())
}

fn slice(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let slices = positive(&mut args, "slices")?;
    let fill = args.value("fill_with")?.filter(|fill| !fill.is_none());
    args.finish()?;
    let items = listed(budget, value)?;
    budget.charge(EACH.saturating_mul(2).saturating_mul(slices))?;
    let (each, longer) = (items.len() / slices, items.len() % slices);
    let mut rest = items.as_slice();
    let mut out = Vec::with_capacity(slices);
    for at in 0..slices {
        let (part, after) = rest.split_at(each + usize::from(at < longer));
        rest = after;
        let mut part = part.to_vec();
        part.extend(fill.clone().filter(|_| at >= longer));
        out.push(Value::from(part));
    }
    Ok(out.into())
}

fn escape(budget: &Budget, value: &Value, args: &[Value], all: bool) -> Result<Value, Error> {
    Args::new(args)?.finish()?;
    if value.is_safe() && !all {
        return Ok(value.clone());
    }
    let text = written(budget, value)?;
    budget.charge(5 * text.len())?;
    Ok(Value::from_safe_string(python::escape(&text)))
}

/// The `tojson` of `transformers`, which unlike Jinja's does not escape HTML.
fn to_json(budget: &Budget, value: &Value, args: &[Value]) -> Result<Value, Error> {
    let mut args = Args::new(args)?;
    let ascii = args.truth("ensure_ascii")?;
    let indent = args.value("indent")?.filter(|indent| !indent.is_none());
    let separators = args.value("separators")?.filter(|pair| !pair.is_none());
    let sort_keys = args.truth("sort_keys")?;
    args.finish()?;
    let indent = match indent {
        None => None,
        Some(indent) => match (indent.as_str(), integer(&indent)) {
            (Some(text), _) => Some(text.to_owned()),
            // Larger indents would only serve to produce much output.
            (None, Some(width)) => Some(" ".repeat(width.clamp(0, 32) as usize)),
            (None, None) => return Err(refused("`indent` must be an integer or a string")),
        },
    };
    let separators = match separators {
        None => [if indent.is_some() { "," } else { ", " }.into(), ": ".into()],
        Some(pair) => {
            let texts = pair.try_iter()?.map(|text| text.as_str().map(str::to_owned));
            let texts: Option<Vec<String>> = texts.collect();
            texts
                .and_then(|texts| <[String; 2]>::try_from(texts).ok())
                .ok_or_else(|| refused("`separators` must be two strings"))?
        }
    };
    let [item_separator, key_separator] = separators;
    budget.charge_deep(value)?;
    let max_bytes = budget.remaining();
    let json =
        python::JsonFormat { indent, ascii, sort_keys, item_separator, key_separator, max_bytes };
    let text = json.dump(value)?;
    budget.charge(text.len())?;
    Ok(text.into())
}

/// Gives the arguments by position after the value the names that minijinja wants.
pub(super) fn with_names(names: &[&str], args: &[Value]) -> Result<Vec<Value>, Error> {
    let (given, named) = Args::new(args)?.rest();
    if given.len() > names.len() + 1 {
        return Err(refused("too many arguments"));
    }
    let by_position = given.iter().skip(1).zip(names).map(|(value, name)| (*name, value.clone()));
    let by_name: Vec<(&str, Value)> = named
        .args()
        .map(|name| Ok((name, named.get::<Value>(name)?)))
        .collect::<Result<_, Error>>()?;
    let all: Kwargs = by_position.chain(by_name).collect();
    Ok(given.first().cloned().into_iter().chain([Value::from(all)]).collect())
}

/// The function `dict`: of another dictionary or a list of pairs, and of named values.
pub(super) fn dict(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let (given, named) = Args::new(args)?.rest();
    let mut pairs = Vec::new();
    for source in given {
        budget.charge_deep(source)?;
        if methods::is_dictionary(source) {
            for key in source.try_iter()? {
                let item = source.get_item(&key)?;
                pairs.push((key, item));
            }
            continue;
        }
        for pair in python::items(source)? {
            match <[Value; 2]>::try_from(python::items(&pair)?) {
                Ok([key, item]) => pairs.push((key, item)),
                Err(_) => return Err(refused("`dict` takes pairs")),
            }
        }
    }
    for name in named.args() {
        pairs.push((name.into(), named.get::<Value>(name)?));
    }
    Ok(Value::from_pairs(pairs))
}

/// The test `divisibleby`; minijinja's divides by zero.
pub(super) fn divisible(value: &Value, by: &Value) -> Result<bool, Error> {
    match (integer(value), integer(by)) {
        (Some(_), Some(0)) => Err(refused("modulo by zero")),
        (Some(value), Some(by)) => Ok(value.checked_rem(by).unwrap_or(0) == 0),
        _ => Err(refused("`divisibleby` takes integers")),
    }
}

/// A test of a value.
pub(super) type Test = fn(&Value) -> bool;

/// The tests by name.
pub(super) const TESTS: &[(&str, Test)] = &[
    ("iterable", |value| {
        let kinds = [ValueKind::String, ValueKind::Seq, ValueKind::Map, ValueKind::Iterable];
        kinds.contains(&value.kind()) || value.is_undefined()
    }),
    ("sequence", |value| {
        let kinds = [ValueKind::String, ValueKind::Seq, ValueKind::Map];
        kinds.contains(&value.kind()) || value.is_undefined()
    }),
    ("mapping", methods::is_dictionary),
    ("number", |value| value.is_number() || value.kind() == ValueKind::Bool),
    ("callable", |value| {
        let is_macro = value.as_object().is_some_and(|o| o.type_name().ends_with("Macro"));
        value.kind() == ValueKind::Plain || is_macro || value.is_undefined()
    }),
    ("escaped", Value::is_safe),
];
