//! The filters, tests, methods and functions that chat templates use, each paying for its work.

use super::budget::{Budget, count, refused, restack, size, text};
use super::code::{ONE, pay};
use crate::text::python;
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, State, UndefinedBehavior, filters, functions, tests};
use minijinja_contrib::pycompat;

/// What is paid for a call.
#[derive(Clone, Copy)]
enum Cost {
    /// It takes as long for any value.
    Nothing,
    /// It looks at the first argument if that is a text, else at one of its items.
    Light,
    /// It walks through the items of the first argument.
    Items,
    /// It may look at all there is, and make so many times as much of it.
    Deep(usize),
    /// It has a price of its own.
    Own(fn(&Budget, &[Value]) -> Result<(), Error>),
}

impl Cost {
    fn pay(self, budget: &Budget, args: &[Value]) -> Result<(), Error> {
        match self {
            Self::Nothing => Ok(()),
            Self::Light | Self::Items => {
                let Some((first, rest)) = args.split_first() else { return Ok(()) };
                // Keys of maps among them: a key's hash covers all there is.
                deep(budget, rest)?;
                if matches!(self, Self::Light) {
                    budget.light(first)
                } else {
                    // A text becomes a list of its characters.
                    budget.shallow(first)?;
                    budget.pay(if first.as_str().is_some() { 32 * count(first) } else { 0 })
                }
            }
            Self::Deep(times) => {
                let paid = deep(budget, args)?;
                budget.pay(paid.saturating_mul(times - 1))
            }
            Self::Own(price) => price(budget, args),
        }
    }
}

/// What chat templates may use, and nothing else.
pub(crate) fn environment(budget: &Budget, fuel: u64) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(64);
    env.set_debug(false);
    env.set_fuel(Some(fuel));
    let own = budget.clone();
    env.set_formatter(move |out, _, value| {
        out.write_str(&written(&own, value)?).map_err(Error::from)
    });
    let own = budget.clone();
    env.set_unknown_method_callback(move |state, value, method, args| {
        let all: Vec<Value> = std::iter::once(value).chain(args).cloned().collect();
        method_cost(value, method).pay(&own, &all)?;
        own.solid(pycompat::unknown_method_callback(state, value, method, args)?)
    });
    env.add_global(ONE, 1);
    add_operators(&mut env, budget);
    add_filters(&mut env, budget);
    add_tests(&mut env, budget);
    add_function(&mut env, budget, "range", Cost::Nothing, Value::from_function(functions::range));
    let namespace = Value::from_function(functions::namespace);
    add_function(&mut env, budget, "namespace", Cost::Deep(1), namespace);
    add_function(&mut env, budget, "dict", Cost::Deep(1), Value::from_function(functions::dict));
    env
}

/// `str(value)`, paid for.
fn written(budget: &Budget, value: &Value) -> Result<String, Error> {
    let paid = budget.deep(value)?;
    let text = python::to_str(value)?;
    budget.pay(text.len().saturating_sub(paid))?;
    Ok(text)
}

fn deep(budget: &Budget, args: &[Value]) -> Result<usize, Error> {
    args.iter().map(|arg| budget.deep(arg)).sum()
}

fn guarded(
    budget: &Budget,
    cost: Cost,
    inner: Value,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    let budget = budget.clone();
    move |state, args| {
        let args = args.into_values();
        cost.pay(&budget, &args)?;
        budget.solid(inner.call(state, &args)?)
    }
}

fn add_function(
    env: &mut Environment<'static>,
    budget: &Budget,
    name: &'static str,
    cost: Cost,
    inner: Value,
) {
    env.add_function(name, guarded(budget, cost, inner));
}

/// What `code::rewrite` puts in.
fn add_operators(env: &mut Environment<'static>, budget: &Budget) {
    let mut look = |name: &'static str, cost: Cost| {
        let budget = budget.clone();
        env.add_filter(name.trim_end(), move |args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            cost.pay(&budget, &args)?;
            Ok::<_, Error>(restack(&args))
        });
    };
    look(pay::ITEM, Cost::Light);
    look(pay::SLICE, Cost::Own(|b, args| args.iter().try_for_each(|arg| b.shallow(arg))));
    look(pay::ADD, Cost::Own(|b, args| args.iter().try_for_each(|arg| b.shallow(arg))));
    look(pay::MULTIPLY, Cost::Own(multiply));
    look(pay::ALL, Cost::Deep(2));
    look(pay::CONTAINS, Cost::Own(contains));
    let mut pass = |name: &'static str, check: fn(&Budget, &Value) -> Result<(), Error>| {
        let budget = budget.clone();
        env.add_filter(name.trim_end(), move |args: Rest<ValueOrKwargs>| {
            let value = args.into_values().pop().unwrap_or_default();
            check(&budget, &value)?;
            Ok::<_, Error>(value)
        });
    };
    pass(pay::HELD, |b, value| b.deep(value).map(drop));
    pass(pay::KEPT, |b, value| {
        b.deep(value)?;
        acyclic(value)
    });
    pass(pay::LIGHT, Budget::light);
    pass(pay::SHALLOW, Budget::shallow);
    let budget = budget.clone();
    env.add_filter(pay::SOLID.trim_end(), move |value: Value| budget.solid(value));
}

/// A namespace in a namespace could hold itself, and would never be freed.
fn acyclic(value: &Value) -> Result<(), Error> {
    let is_namespace = value.as_object().is_some_and(|o| o.type_name().ends_with("Namespace"));
    if is_namespace || value.kind() == ValueKind::Plain {
        return Err(refused("a namespace can only hold plain values"));
    }
    match value.kind() {
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| acyclic(&item)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| acyclic(&value.get_item(&key)?)),
        _ => Ok(()),
    }
}

fn multiply(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let [a, b] = args else { return Ok(()) };
    for (many, times) in [(a, b), (b, a)] {
        if matches!(many.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable) {
            let times = f64::try_from(times.clone()).unwrap_or(0.0).max(1.0) as usize;
            budget.pay(size(many).saturating_mul(times))?;
        }
    }
    Ok(())
}

fn contains(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let [needle, hay] = args else { return Ok(()) };
    budget.deep(needle)?;
    // A map has an index.
    if hay.kind() == ValueKind::Map { Ok(()) } else { budget.deep(hay).map(drop) }
}

fn add_filters(env: &mut Environment<'static>, budget: &Budget) {
    use Cost::{Deep, Items, Light, Nothing, Own};
    macro_rules! add {
        ($($name:literal: $cost:expr, $function:expr;)*) => {
            $(env.add_filter($name, guarded(budget, $cost, Value::from_function($function)));)*
        };
    }
    add! {
        "default": Nothing, filters::default;
        "d": Nothing, filters::default;
        "bool": Nothing, filters::bool;
        "abs": Nothing, filters::abs;
        "round": Nothing, filters::round;
        "int": Light, filters::int;
        "float": Light, filters::float;
        "length": Light, filters::length;
        "count": Light, filters::length;
        "first": Light, filters::first;
        "last": Light, filters::last;
        "attr": Light, filters::attr;
        "list": Items, filters::list;
        "reverse": Items, filters::reverse;
        "items": Items, filters::items;
        "map": Items, filters::map;
        "select": Items, filters::select;
        "reject": Items, filters::reject;
        "selectattr": Items, filters::selectattr;
        "rejectattr": Items, filters::rejectattr;
        "dictsort": Deep(8), filters::dictsort;
        "sort": Deep(8), filters::sort;
        "unique": Deep(8), filters::unique;
        "min": Deep(2), filters::min;
        "max": Deep(2), filters::max;
        "sum": Own(sum), filters::sum;
        "trim": Own(strip), filters::trim;
        "upper": Deep(4), filters::upper;
        "lower": Deep(4), filters::lower;
        "title": Deep(4), filters::title;
        "capitalize": Deep(4), filters::capitalize;
        "safe": Deep(4), filters::safe;
        "escape": Deep(6), filters::escape;
        "e": Deep(6), filters::escape;
        "replace": Own(replace), filters::replace;
        "join": Own(join), filters::join;
        "split": Own(split), filters::split;
        "indent": Own(indent), filters::indent;
        "format": Own(format), filters::format;
    }
    let own = budget.clone();
    env.add_filter("string", move |value: Value| written(&own, &value));
    let own = budget.clone();
    env.add_filter("tojson", move |value: Value, indent: Option<usize>, options: Kwargs| {
        to_json(&own, &value, indent, &options)
    });
}

fn add_tests(env: &mut Environment<'static>, budget: &Budget) {
    use Cost::{Deep, Nothing, Own};
    macro_rules! add {
        ($($name:literal: $cost:expr, $function:expr;)*) => {
            $(
                let call = guarded(budget, $cost, Value::from_function($function));
                env.add_test($name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
                    call(state, args).map(|yes| yes.is_true())
                });
            )*
        };
    }
    add! {
        "undefined": Nothing, tests::is_undefined;
        "defined": Nothing, tests::is_defined;
        "none": Nothing, tests::is_none;
        "boolean": Nothing, tests::is_boolean;
        "odd": Nothing, tests::is_odd;
        "even": Nothing, tests::is_even;
        "divisibleby": Nothing, tests::is_divisibleby;
        "number": Nothing, tests::is_number;
        "integer": Nothing, tests::is_integer;
        "float": Nothing, tests::is_float;
        "string": Nothing, tests::is_string;
        "sequence": Nothing, tests::is_sequence;
        "iterable": Nothing, tests::is_iterable;
        "mapping": Nothing, tests::is_mapping;
        "true": Nothing, tests::is_true;
        "false": Nothing, tests::is_false;
        "lower": Deep(1), tests::is_lower;
        "upper": Deep(1), tests::is_upper;
        "eq": Deep(1), tests::is_eq;
        "equalto": Deep(1), tests::is_eq;
        "==": Deep(1), tests::is_eq;
        "ne": Deep(1), tests::is_ne;
        "!=": Deep(1), tests::is_ne;
        "lt": Deep(1), tests::is_lt;
        "lessthan": Deep(1), tests::is_lt;
        "<": Deep(1), tests::is_lt;
        "le": Deep(1), tests::is_le;
        "<=": Deep(1), tests::is_le;
        "gt": Deep(1), tests::is_gt;
        "greaterthan": Deep(1), tests::is_gt;
        ">": Deep(1), tests::is_gt;
        "ge": Deep(1), tests::is_ge;
        ">=": Deep(1), tests::is_ge;
        "in": Own(contains), tests::is_in;
    }
}

/// The methods of Python's strings, lists and dictionaries.
fn method_cost(value: &Value, method: &str) -> Cost {
    match (value.kind(), method) {
        (ValueKind::Map, "get") => Cost::Light,
        (ValueKind::Map, _) => Cost::Items,
        (_, "strip" | "lstrip" | "rstrip") => Cost::Own(strip),
        (_, "replace") => Cost::Own(replace),
        (_, "split") => Cost::Own(split),
        (_, "splitlines") => {
            Cost::Own(|budget, args| split(budget, &[args[0].clone(), Value::from("\n")]))
        }
        (_, "format") => Cost::Own(format),
        (_, "join") => Cost::Own(|budget, args| match args {
            [joiner, values] => join(budget, &[values.clone(), joiner.clone()]),
            _ => Ok(()),
        }),
        _ => Cost::Deep(4),
    }
}

/// Each character at an end is compared with each that is to go.
fn strip(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = deep(budget, args)?;
    let characters = args.get(1).map_or(0, text);
    budget.pay(paid.saturating_mul(characters))
}

fn replace(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = deep(budget, args)?;
    let texts: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    match texts[..] {
        [text, from, to, ..] => {
            budget.pay(paid.saturating_add(text.matches(from).count().saturating_mul(to.len())))
        }
        // Numbers that are taken for texts.
        _ => budget.pay(paid.saturating_mul(paid)),
    }
}

fn join(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = deep(budget, args)?;
    let items = args.first().map_or(0, count);
    let joiner = args[1..].iter().map(|arg| budget.deep(arg)).sum::<Result<usize, Error>>()?;
    budget.pay(paid.saturating_mul(4).saturating_add(items.saturating_mul(joiner)))
}

fn split(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = deep(budget, args)?;
    let Some(text) = args[0].as_str() else {
        return budget.pay(paid.saturating_mul(32));
    };
    let pieces = match args.get(1).and_then(Value::as_str) {
        Some(separator) => text.matches(separator).count(),
        None => text.split_whitespace().count(),
    };
    budget.pay(paid + (pieces + 1).saturating_mul(64))
}

/// `sum` adds texts and lists as well, copying what it has each time.
fn sum(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = deep(budget, args)?;
    budget.pay(paid.saturating_mul(args.first().map_or(0, count)))
}

fn indent(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = deep(budget, args)?;
    let (args, options): (&[Value], Kwargs) = from_args(args)?;
    let width = args.get(1).cloned().or(options.get::<Option<Value>>("width")?);
    let width = width.and_then(|width| usize::try_from(width).ok()).unwrap_or(4);
    let lines = args.first().and_then(Value::as_str).map_or(1, |t| t.matches('\n').count() + 1);
    budget.pay(paid.saturating_add(lines.saturating_mul(width)))
}

/// `%9999d` and `{:9999}` make much of little.
fn format(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = deep(budget, args)?;
    let text = args.first().and_then(Value::as_str).unwrap_or_default();
    let mut fields: usize = 1;
    for (at, start) in text.match_indices(['%', '{']) {
        fields += 1;
        let rest = &text[at + 1..];
        let field = match start {
            "%" => rest.trim_start_matches(|c: char| "#0-+ .*123456789".contains(c)),
            _ => rest.trim_start_matches(|c: char| !"{}".contains(c)),
        };
        let (field, next) = rest.split_at(rest.len() - field.len());
        let wide = field.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 3);
        // A width from elsewhere: `%*d`, `{:{}}`.
        let starred = start == "%" && field.contains('*');
        let nested = start == "{" && !field.is_empty() && next.starts_with('{');
        if wide || starred || nested {
            return Err(refused("a format has a width of more than 999, or one from elsewhere"));
        }
    }
    budget.pay(paid.saturating_add(1000).saturating_mul(fields))
}

/// The `tojson` of `transformers`: not Jinja's own, which escapes HTML.
fn to_json(
    budget: &Budget,
    value: &Value,
    indent: Option<usize>,
    options: &Kwargs,
) -> Result<String, Error> {
    let indent = match indent {
        None => options.get::<Option<usize>>("indent")?,
        some => some,
    };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let item = if indent.is_some() { "," } else { ", " };
    let [item, key] = separators
        .unwrap_or_else(|| vec![item.into(), ": ".into()])
        .try_into()
        .map_err(|_| refused("separators are two strings"))?;
    budget.deep(value)?;
    let json = python::Json {
        // A page is wide enough; hostile indents are wider.
        indent: indent.map(|n| n.min(32)),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        item,
        key,
        limit: budget.left(),
    };
    // Python can escape other scripts; no template wants that from its model.
    options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    let text = json.dump(value)?;
    budget.pay(text.len())?;
    Ok(text)
}
