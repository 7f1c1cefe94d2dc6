//! The filters, tests, methods and functions of chat templates. Each charges the budget for its work.

use super::budget::{Budget, count};
use super::compile::{ONE, inserted};
use super::cost::{Cost, charge_all, written};
use super::filters::{FILTERS, Filter, TESTS, dict, divisible, with_names};
use super::operators::{self, contains};
use crate::text::python;
use minijinja::value::{Rest, Value, ValueOrKwargs};
use minijinja::{
    AutoEscape, Environment, Error, State, UndefinedBehavior, filters, functions, tests,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Levels that loops, macros and blocks may nest while they run, minijinja's own limit. A macro takes six
/// and one for each block in it, so a macro with two loops can call itself 60 times.
const MAX_NESTING: usize = 500;

/// Keeps the last line that a template with marked lines reached; 0 before the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reporter(Arc<AtomicUsize>);

impl Reporter {
    pub(crate) fn line(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Creates the environment of chat templates. It has nothing else than they may use.
pub(crate) fn environment(budget: &Budget, fuel: u64, reporter: &Reporter) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(MAX_NESTING);
    env.set_debug(false);
    env.set_fuel(Some(fuel));
    let own = budget.clone();
    env.set_formatter(move |out, state, value| {
        let mut text = written(&own, value)?;
        if !matches!(state.auto_escape(), AutoEscape::None) && !value.is_safe() {
            own.charge(5 * text.len())?;
            text = python::escape(&text);
        }
        out.write_str(&text).map_err(Error::from)
    });
    env.add_global(ONE, 1);
    // The template itself, which has no blocks to name.
    env.add_global("self", Value::from_pairs([] as [(&str, Value); 0]));
    let line = reporter.clone();
    env.add_filter(inserted::LINE.trim_end(), move |value: usize| {
        line.0.store(value, Ordering::Relaxed);
        value
    });
    operators::add(&mut env, budget);
    add_filters(&mut env, budget);
    add_tests(&mut env, budget);
    add_function(&mut env, budget, "range", Cost::Free, Value::from_function(functions::range));
    let namespace = Value::from_function(functions::namespace);
    add_function(&mut env, budget, "namespace", Cost::Deep(1), namespace);
    let own = budget.clone();
    env.add_function("dict", move |args: Rest<ValueOrKwargs>| dict(&own, &args.into_values()));
    env
}

fn guarded(
    budget: &Budget,
    cost: Cost,
    inner: Value,
) -> impl Fn(&mut State, Vec<Value>) -> Result<Value, Error> + Send + Sync + 'static {
    let budget = budget.clone();
    move |state, args| {
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
    let call = guarded(budget, cost, inner);
    env.add_function(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
        call(state, args.into_values())
    });
}

fn add_filters(env: &mut Environment<'static>, budget: &Budget) {
    use Cost::{Custom, Deep, First, Free, Items};
    macro_rules! add {
        ($($name:literal: $cost:expr, $function:expr;)*) => {
            $({
                let call = guarded(budget, $cost, Value::from_function($function));
                env.add_filter($name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
                    call(state, args.into_values())
                });
            })*
        };
    }
    add! {
        "abs": Free, filters::abs;
        "round": Free, filters::round;
        "first": First, filters::first;
        "last": First, filters::last;
        "attr": First, filters::attr;
        "list": Items, filters::list;
        "reverse": Items, filters::reverse;
        "map": Items, filters::map;
        "select": Items, filters::select;
        "reject": Items, filters::reject;
        "selectattr": Items, filters::selectattr;
        "rejectattr": Items, filters::rejectattr;
        "sum": Custom(sum), filters::sum;
        "safe": Deep(4), filters::safe;
    }
    macro_rules! sorting {
        ($($name:literal $names:expr => $function:expr;)*) => {
            $({
                let call = guarded(budget, Deep(8), Value::from_function($function));
                env.add_filter($name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
                    call(state, with_names(&$names, &args.into_values())?)
                });
            })*
        };
    }
    sorting! {
        "dictsort" ["case_sensitive", "by", "reverse"] => filters::dictsort;
        "sort" ["reverse", "case_sensitive", "attribute"] => filters::sort;
        "unique" ["case_sensitive", "attribute"] => filters::unique;
        "groupby" ["attribute", "default", "case_sensitive"] => filters::groupby;
        "min" ["case_sensitive", "attribute"] => filters::min;
        "max" ["case_sensitive", "attribute"] => filters::max;
    }
    for &(name, filter) in FILTERS {
        add_own(env, budget, name, filter);
    }
}

fn add_own(env: &mut Environment<'static>, budget: &Budget, name: &'static str, filter: Filter) {
    let budget = budget.clone();
    env.add_filter(name, move |value: Value, args: Rest<ValueOrKwargs>| {
        filter(&budget, &value, &args.into_values())
    });
}

fn add_tests(env: &mut Environment<'static>, budget: &Budget) {
    use Cost::{Custom, Deep, Free};
    macro_rules! add {
        ($($name:literal: $cost:expr, $function:expr;)*) => {
            $(
                let call = guarded(budget, $cost, Value::from_function($function));
                env.add_test($name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
                    call(state, args.into_values()).map(|yes| yes.is_true())
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
        "integer": Free, tests::is_integer;
        "float": Free, tests::is_float;
        "string": Free, tests::is_string;
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
        "sameas": Deep(1), tests::is_eq;
    }
    env.add_test("divisibleby", |value: Value, by: Value| divisible(&value, &by));
    for &(name, test) in TESTS {
        env.add_test(name, move |value: Value| test(&value));
    }
    let names: Vec<&'static str> = FILTERS.iter().map(|(name, _)| *name).collect();
    env.add_test("filter", move |value: &str| names.contains(&value));
}

/// Charges for `sum`, which also adds texts and lists, and copies the sum each time.
fn sum(budget: &Budget, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?;
    budget.charge(paid.saturating_mul(args.first().map_or(0, count)))
}
