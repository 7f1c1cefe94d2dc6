//! The filters that `compile::rewrite` inserts: charges for instructions, and Python's operators where
//! minijinja's differ.

use super::args::{clamped, integer};
use super::budget::{Budget, EACH, count, refused, restack, size};
use super::compile::inserted;
use super::cost::{Cost, written};
use super::format::printf;
use super::methods::{self, Method};
use crate::text::python;
use minijinja::value::{Rest, Tuple, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State};

/// Adds all inserted filters.
pub(super) fn add(env: &mut Environment<'static>, budget: &Budget) {
    add_charges(env, budget);
    type Operator = fn(&Budget, &[Value]) -> Result<Value, Error>;
    let mut operator = |name: &'static str, compute: Operator| {
        let budget = budget.clone();
        env.add_filter(name.trim_end(), move |args: Rest<ValueOrKwargs>| {
            compute(&budget, &args.into_values())
        });
    };
    operator(inserted::SLICE, slice);
    operator(inserted::ADD, sum);
    operator(inserted::MULTIPLY, product);
    operator(inserted::REMAINDER, remainder);
    operator(inserted::CONCATENATE, |budget, args| {
        let texts = args.iter().map(|value| written(budget, value)).collect::<Result<Vec<_>, _>>();
        Ok(Value::from(texts?.concat()))
    });
    operator(inserted::ATTRIBUTE, attribute);
    operator(inserted::ONE_MORE, |_, args| {
        Ok(Value::from(args.first().and_then(Value::as_usize).unwrap_or(0) + 1))
    });
    let own = budget.clone();
    let call = move |state: &mut State, args: Rest<ValueOrKwargs>| {
        method(state, &own, &args.into_values())
    };
    env.add_filter(inserted::METHOD, call);
}

fn add_charges(env: &mut Environment<'static>, budget: &Budget) {
    let mut look = |name: &'static str, cost: Cost| {
        let budget = budget.clone();
        env.add_filter(name.trim_end(), move |args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            cost.charge(&budget, &args)?;
            Ok::<_, Error>(restack(&args))
        });
    };
    look(inserted::ITEM, Cost::First);
    look(inserted::COMPARE, Cost::Deep(2));
    look(inserted::UNPACK, Cost::Deep(1));
    look(inserted::CONTAINS, Cost::Custom(contains));
    let mut pass = |name: &'static str, check: fn(&Budget, &Value) -> Result<(), Error>| {
        let budget = budget.clone();
        env.add_filter(name.trim_end(), move |args: Rest<ValueOrKwargs>| {
            let value = args.into_values().pop().unwrap_or_default();
            check(&budget, &value)?;
            Ok::<_, Error>(value)
        });
    };
    pass(inserted::LIST, |b, value| b.charge_deep(value).map(drop));
    pass(inserted::NAMESPACE, |b, value| {
        b.charge_deep(value)?;
        acyclic(value)
    });
    pass(inserted::TEXT, Budget::charge_text);
    pass(inserted::SHALLOW, Budget::charge_shallow);
    let budget = budget.clone();
    env.add_filter(inserted::ITEMS.trim_end(), move |value: Value| match value.as_str() {
        // A loop knows the last item of a list only.
        Some(text) => {
            budget.charge(EACH * count(&value))?;
            Ok(text.chars().map(Value::from).collect())
        }
        None if value.is_none() => Err(python::not_iterable()),
        None => budget.materialize(value),
    });
}

/// Refuses what could hold itself and never be freed: a namespace in a namespace, or a loop.
fn acyclic(value: &Value) -> Result<(), Error> {
    let name = value.as_object().map_or("", |object| object.type_name());
    if name.ends_with("Namespace") || name.ends_with("Loop") || value.kind() == ValueKind::Plain {
        return Err(refused("only plain values can be kept here"));
    }
    match value.kind() {
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| acyclic(&item)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| acyclic(&value.get_item(&key)?)),
        _ => Ok(()),
    }
}

/// Charges for `in`.
pub(super) fn contains(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let [needle, hay] = args else { return Ok(()) };
    budget.charge_deep(needle)?;
    // A map is looked up by hash.
    if hay.kind() == ValueKind::Map { Ok(()) } else { budget.charge_deep(hay).map(drop) }
}

/// `value[start:stop:step]`.
fn slice(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [value, bounds @ ..] = args else { return Ok(Value::UNDEFINED) };
    budget.charge_shallow(value)?;
    let mut parsed = [None; 3];
    for (bound, slot) in bounds.iter().zip(&mut parsed) {
        if !bound.is_none() {
            let Some(bound) = integer(bound) else { return Ok(Value::UNDEFINED) };
            *slot = Some(clamped(bound));
        }
    }
    match value.kind() {
        ValueKind::String => {
            let characters: Vec<char> = value.as_str().unwrap_or_default().chars().collect();
            let text = indices(parsed, characters.len())?.map(|at| characters[at]).collect();
            Ok(like(text, value.is_safe()))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            budget.charge(EACH * items.len())?;
            let picked = indices(parsed, items.len())?.map(|at| items[at].clone()).collect();
            Ok(if value.is_tuple() { Tuple::new(picked).into() } else { picked.into() })
        }
        ValueKind::Undefined => Err(refused("an undefined value cannot be sliced")),
        _ => Ok(Value::UNDEFINED),
    }
}

/// The indices of a slice, as Python's `slice.indices` bounds them.
fn indices(
    [start, stop, step]: [Option<i64>; 3],
    len: usize,
) -> Result<impl Iterator<Item = usize>, Error> {
    let step = i128::from(step.unwrap_or(1));
    if step == 0 {
        return Err(refused("slice step cannot be zero"));
    }
    let len = len as i128;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bounded = |bound: Option<i64>, default: i128| match bound {
        None => default,
        Some(at) if at < 0 => (i128::from(at) + len).max(lowest),
        Some(at) => i128::from(at).min(highest),
    };
    let (first, end) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (start, stop) = (bounded(start, first), bounded(stop, end));
    let inside = move |at: &i128| if step > 0 { *at < stop } else { *at > stop };
    let next = move |at: &i128| Some(at + step);
    Ok(std::iter::successors(Some(start), next).take_while(inside).map(|at| at as usize))
}

/// A text that is marked as safe from escapes, or not.
fn like(text: String, safe: bool) -> Value {
    if safe { Value::from_safe_string(text) } else { Value::from(text) }
}

/// A text as part of a safe one.
fn escaped(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    if value.is_safe() { text.to_owned() } else { python::escape(text) }
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn unsupported(operator: &str, a: &Value, b: &Value) -> Error {
    refused(&format!("`{operator}` does not take {} and {}", a.kind(), b.kind()))
}

fn float(value: &Value) -> Option<f64> {
    match integer(value) {
        Some(n) => Some(n as f64),
        None if value.is_number() => f64::try_from(value.clone()).ok(),
        None => None,
    }
}

/// `a + b`
fn sum(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [a, b] = args else { return Ok(Value::UNDEFINED) };
    budget.charge_shallow(a)?;
    budget.charge_shallow(b)?;
    match (a.as_str(), b.as_str()) {
        (Some(_), Some(_)) if a.is_safe() || b.is_safe() => {
            budget.charge(5 * (size(a) + size(b)))?;
            return Ok(Value::from_safe_string(escaped(a) + &escaped(b)));
        }
        (Some(a), Some(b)) => return Ok(Value::from([a, b].concat())),
        _ => {}
    }
    if is_list(a) && is_list(b) && a.is_tuple() == b.is_tuple() {
        let items: Vec<Value> = a.try_iter()?.chain(b.try_iter()?).collect();
        return Ok(if a.is_tuple() { Tuple::new(items).into() } else { items.into() });
    }
    number(a, b, i128::checked_add, |a, b| a + b).ok_or_else(|| unsupported("+", a, b))
}

/// Computes with integers if both are, and else with floats; `None` if there is no result.
fn number(
    a: &Value,
    b: &Value,
    integers: impl Fn(i128, i128) -> Option<i128>,
    floats: impl Fn(f64, f64) -> f64,
) -> Option<Value> {
    if let (Some(a), Some(b)) = (integer(a), integer(b)) {
        let result = integers(a, b)?;
        return Some(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from));
    }
    Some(Value::from(floats(float(a)?, float(b)?)))
}

/// `a * b`
fn product(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [a, b] = args else { return Ok(Value::UNDEFINED) };
    for (many, times) in [(a, b), (b, a)] {
        let Some(times) = integer(times) else { continue };
        let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
        if let Some(text) = many.as_str() {
            budget.charge(size(many).saturating_mul(times))?;
            return Ok(like(text.repeat(times), many.is_safe()));
        }
        if is_list(many) {
            budget.charge(size(many).saturating_mul(times))?;
            let once: Vec<Value> = many.try_iter()?.collect();
            let items: Vec<Value> = std::iter::repeat_n(once, times).flatten().collect();
            return Ok(if many.is_tuple() { Tuple::new(items).into() } else { items.into() });
        }
    }
    number(a, b, i128::checked_mul, |a, b| a * b).ok_or_else(|| unsupported("*", a, b))
}

/// `a % b`, which formats if `a` is a string.
fn remainder(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [a, b] = args else { return Ok(Value::UNDEFINED) };
    if let Some(text) = a.as_str() {
        let args = if b.is_tuple() { b.try_iter()?.collect() } else { vec![b.clone()] };
        return printf(budget, text, &args).map(|text| like(text, a.is_safe()));
    }
    if float(b) == Some(0.0) {
        return Err(refused("modulo by zero"));
    }
    let integers = |a: i128, b: i128| {
        let rest = a.checked_rem(b)?;
        Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
    };
    let floats = |a: f64, b: f64| {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
    };
    number(a, b, integers, floats).ok_or_else(|| unsupported("%", a, b))
}

/// `value.name`
fn attribute(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [value, name] = args else { return Ok(Value::UNDEFINED) };
    let name = name.as_str().unwrap_or_default();
    if methods::has(value, name) {
        return Ok(Value::from_object(Method::new(budget, value, name)));
    }
    value.get_attr(name)
}

/// `value.name(args)`: the values are the object, the arguments and the name.
fn method(state: &mut State, budget: &Budget, values: &[Value]) -> Result<Value, Error> {
    let [value, args @ .., name] = values else { return Ok(Value::UNDEFINED) };
    let name = name.as_str().unwrap_or_default();
    if methods::has(value, name) {
        return methods::call(budget, value, name, args);
    }
    if value.as_object().is_some_and(|object| object.type_name().ends_with("Loop")) {
        // minijinja divides by the number of arguments, and keeps and compares them.
        if args.is_empty() {
            return Err(refused(&format!("`loop.{name}` needs an argument")));
        }
        Cost::Deep(2).charge(budget, args)?;
        args.iter().try_for_each(acyclic)?;
    }
    budget.materialize(value.call_method(state, name, args)?)
}
