//! The filters, tests, methods and functions of chat templates. Each charges the budget for its work.

use super::budget::{Budget, count, refused, restack, size, text};
use super::compile::{ONE, charge};
use crate::text::python;
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, State, UndefinedBehavior, filters, functions, tests};
use minijinja_contrib::pycompat;

/// Cost of a call.
#[derive(Clone, Copy)]
enum Cost {
    /// Constant cost.
    Free,
    /// The first argument's text, or one of its items.
    First,
    /// The items of the first argument.
    Items,
    /// Everything in all arguments, multiplied by this number.
    Deep(usize),
    /// The function charges for the arguments.
    Custom(fn(&Budget, &[Value]) -> Result<(), Error>),
}

impl Cost {
    fn charge(self, budget: &Budget, args: &[Value]) -> Result<(), Error> {
        match self {
            Self::Free => Ok(()),
            Self::First | Self::Items => {
                let Some((first, rest)) = args.split_first() else { return Ok(()) };
                // Keys of maps may be among them, and hashing reads a whole key.
                charge_all(budget, rest)?;
                if matches!(self, Self::First) {
                    budget.charge_text(first)
                } else {
                    // A text becomes a list of its characters.
                    budget.charge_shallow(first)?;
                    budget.charge(if first.as_str().is_some() { 32 * count(first) } else { 0 })
                }
            }
            Self::Deep(times) => {
                let paid = charge_all(budget, args)?;
                budget.charge(paid.saturating_mul(times - 1))
            }
            Self::Custom(price) => price(budget, args),
        }
    }
}

/// Creates the environment of chat templates. It has nothing else than they may use.
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
        method_cost(value, method).charge(&own, &all)?;
        own.materialize(pycompat::unknown_method_callback(state, value, method, args)?)
    });
    env.add_global(ONE, 1);
    add_operators(&mut env, budget);
    add_filters(&mut env, budget);
    add_tests(&mut env, budget);
    add_function(&mut env, budget, "range", Cost::Free, Value::from_function(functions::range));
    let namespace = Value::from_function(functions::namespace);
    add_function(&mut env, budget, "namespace", Cost::Deep(1), namespace);
    add_function(&mut env, budget, "dict", Cost::Deep(1), Value::from_function(functions::dict));
    env
}

/// Python's `str(value)`, charged to the budget.
fn written(budget: &Budget, value: &Value) -> Result<String, Error> {
    let paid = budget.charge_deep(value)?;
    let text = python::to_str(value)?;
    budget.charge(text.len().saturating_sub(paid))?;
    Ok(text)
}

fn charge_all(budget: &Budget, args: &[Value]) -> Result<usize, Error> {
    args.iter().map(|arg| budget.charge_deep(arg)).sum()
}

fn guarded(
    budget: &Budget,
    cost: Cost,
    inner: Value,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    let budget = budget.clone();
    move |state, args| {
        let args = args.into_values();
        cost.charge(&budget, &args)?;
        budget.materialize(inner.call(state, &args)?)
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

/// Adds the filters that `compile::rewrite` inserts.
fn add_operators(env: &mut Environment<'static>, budget: &Budget) {
    let mut look = |name: &'static str, cost: Cost| {
        let budget = budget.clone();
        env.add_filter(name.trim_end(), move |args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            cost.charge(&budget, &args)?;
            Ok::<_, Error>(restack(&args))
        });
    };
    look(charge::ITEM, Cost::First);
    look(
        charge::SLICE,
        Cost::Custom(|b, args| args.iter().try_for_each(|arg| b.charge_shallow(arg))),
    );
    look(
        charge::ADD,
        Cost::Custom(|b, args| args.iter().try_for_each(|arg| b.charge_shallow(arg))),
    );
    look(charge::MULTIPLY, Cost::Custom(multiply));
    look(charge::ALL, Cost::Deep(2));
    look(charge::CONTAINS, Cost::Custom(contains));
    let mut pass = |name: &'static str, check: fn(&Budget, &Value) -> Result<(), Error>| {
        let budget = budget.clone();
        env.add_filter(name.trim_end(), move |args: Rest<ValueOrKwargs>| {
            let value = args.into_values().pop().unwrap_or_default();
            check(&budget, &value)?;
            Ok::<_, Error>(value)
        });
    };
    pass(charge::LIST, |b, value| b.charge_deep(value).map(drop));
    pass(charge::ATTRIBUTE, |b, value| {
        b.charge_deep(value)?;
        acyclic(value)
    });
    pass(charge::TEXT, Budget::charge_text);
    pass(charge::SHALLOW, Budget::charge_shallow);
    let budget = budget.clone();
    env.add_filter(charge::MATERIALIZE.trim_end(), move |value: Value| budget.materialize(value));
}

/// Refuses a namespace in a namespace, which could hold itself and never be freed.
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
            budget.charge(size(many).saturating_mul(times))?;
        }
    }
    Ok(())
}

fn contains(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let [needle, hay] = args else { return Ok(()) };
    budget.charge_deep(needle)?;
    // A map is looked up by hash.
    if hay.kind() == ValueKind::Map { Ok(()) } else { budget.charge_deep(hay).map(drop) }
}

fn add_filters(env: &mut Environment<'static>, budget: &Budget) {
    use Cost::{Custom, Deep, First, Free, Items};
    macro_rules! add {
        ($($name:literal: $cost:expr, $function:expr;)*) => {
            $(env.add_filter($name, guarded(budget, $cost, Value::from_function($function)));)*
        };
    }
    add! {
        "default": Free, filters::default;
        "d": Free, filters::default;
        "bool": Free, filters::bool;
        "abs": Free, filters::abs;
        "round": Free, filters::round;
        "int": First, filters::int;
        "float": First, filters::float;
        "length": First, filters::length;
        "count": First, filters::length;
        "first": First, filters::first;
        "last": First, filters::last;
        "attr": First, filters::attr;
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
        "sum": Custom(sum), filters::sum;
        "trim": Custom(strip), filters::trim;
        "upper": Deep(4), filters::upper;
        "lower": Deep(4), filters::lower;
        "title": Deep(4), filters::title;
        "capitalize": Deep(4), filters::capitalize;
        "safe": Deep(4), filters::safe;
        "escape": Deep(6), filters::escape;
        "e": Deep(6), filters::escape;
        "replace": Custom(replace), filters::replace;
        "join": Custom(join), filters::join;
        "split": Custom(split), filters::split;
        "indent": Custom(indent), filters::indent;
        "format": Custom(format), filters::format;
    }
    let own = budget.clone();
    env.add_filter("string", move |value: Value| written(&own, &value));
    let own = budget.clone();
    env.add_filter("tojson", move |value: Value, indent: Option<usize>, options: Kwargs| {
        to_json(&own, &value, indent, &options)
    });
}

fn add_tests(env: &mut Environment<'static>, budget: &Budget) {
    use Cost::{Custom, Deep, Free};
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
        "undefined": Free, tests::is_undefined;
        "defined": Free, tests::is_defined;
        "none": Free, tests::is_none;
        "boolean": Free, tests::is_boolean;
        "odd": Free, tests::is_odd;
        "even": Free, tests::is_even;
        "divisibleby": Free, tests::is_divisibleby;
        "number": Free, tests::is_number;
        "integer": Free, tests::is_integer;
        "float": Free, tests::is_float;
        "string": Free, tests::is_string;
        "sequence": Free, tests::is_sequence;
        "iterable": Free, tests::is_iterable;
        "mapping": Free, tests::is_mapping;
        "true": Free, tests::is_true;
        "false": Free, tests::is_false;
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
        "in": Custom(contains), tests::is_in;
    }
}

/// Cost of a method of Python's strings, lists and dictionaries.
fn method_cost(value: &Value, method: &str) -> Cost {
    match (value.kind(), method) {
        (ValueKind::Map, "get") => Cost::First,
        (ValueKind::Map, _) => Cost::Items,
        (_, "strip" | "lstrip" | "rstrip") => Cost::Custom(strip),
        (_, "replace") => Cost::Custom(replace),
        (_, "split") => Cost::Custom(split),
        (_, "splitlines") => {
            Cost::Custom(|budget, args| split(budget, &[args[0].clone(), Value::from("\n")]))
        }
        (_, "format") => Cost::Custom(format),
        (_, "join") => Cost::Custom(|budget, args| match args {
            [joiner, values] => join(budget, &[values.clone(), joiner.clone()]),
            _ => Ok(()),
        }),
        _ => Cost::Deep(4),
    }
}

/// Charges for `strip`, which compares each character at an end with each character to remove.
fn strip(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?;
    let characters = args.get(1).map_or(0, text);
    budget.charge(paid.saturating_mul(characters))
}

fn replace(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?;
    let texts: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    match texts[..] {
        [text, from, to, ..] => {
            budget.charge(paid.saturating_add(text.matches(from).count().saturating_mul(to.len())))
        }
        // Numbers are converted to texts.
        _ => budget.charge(paid.saturating_mul(paid)),
    }
}

fn join(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?;
    let items = args.first().map_or(0, count);
    let joiner =
        args[1..].iter().map(|arg| budget.charge_deep(arg)).sum::<Result<usize, Error>>()?;
    budget.charge(paid.saturating_mul(4).saturating_add(items.saturating_mul(joiner)))
}

fn split(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?;
    let Some(text) = args[0].as_str() else {
        return budget.charge(paid.saturating_mul(32));
    };
    let pieces = match args.get(1).and_then(Value::as_str) {
        Some(separator) => text.matches(separator).count(),
        None => text.split_whitespace().count(),
    };
    budget.charge(paid + (pieces + 1).saturating_mul(64))
}

/// Charges for `sum`, which also adds texts and lists, and copies the sum each time.
fn sum(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?;
    budget.charge(paid.saturating_mul(args.first().map_or(0, count)))
}

fn indent(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?;
    let (args, options): (&[Value], Kwargs) = from_args(args)?;
    let width = args.get(1).cloned().or(options.get::<Option<Value>>("width")?);
    let width = width.and_then(|width| usize::try_from(width).ok()).unwrap_or(4);
    let lines = args.first().and_then(Value::as_str).map_or(1, |t| t.matches('\n').count() + 1);
    budget.charge(paid.saturating_add(lines.saturating_mul(width)))
}

/// Charges for `format`, and refuses large widths such as `%9999d` and `{:9999}`.
fn format(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?;
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
        // The width is an argument: `%*d`, `{:{}}`.
        let starred = start == "%" && field.contains('*');
        let nested = start == "{" && !field.is_empty() && next.starts_with('{');
        if wide || starred || nested {
            return Err(refused(
                "a format has a width of more than 999, or takes it from an argument",
            ));
        }
    }
    budget.charge(paid.saturating_add(1000).saturating_mul(fields))
}

/// The `tojson` of `transformers`, which unlike Jinja's does not escape HTML.
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
        .map_err(|_| refused("separators must be two strings"))?;
    budget.charge_deep(value)?;
    let json = python::JsonFormat {
        // Larger indents would only serve to produce much output.
        indent: indent.map(|n| n.min(32)),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        item_separator: item,
        key_separator: key,
        max_bytes: budget.remaining(),
    };
    // Accepted and ignored: no template wants escapes for its model.
    options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    let text = json.dump(value)?;
    budget.charge(text.len())?;
    Ok(text)
}
