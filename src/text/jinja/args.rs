//! Arguments of Python functions: by position or by name.

use super::budget::refused;
use minijinja::Error;
use minijinja::value::{Kwargs, Value, ValueKind, from_args};

/// Arguments that are taken in the order of the function's signature.
pub(super) struct Args<'a> {
    positional: &'a [Value],
    named: Kwargs,
    next: usize,
}

impl<'a> Args<'a> {
    pub(super) fn new(values: &'a [Value]) -> Result<Self, Error> {
        let (positional, named): (&[Value], Kwargs) = from_args(values)?;
        Ok(Self { positional, named, next: 0 })
    }

    /// Takes the next argument; `name` is its name in Python.
    pub(super) fn value(&mut self, name: &str) -> Result<Option<Value>, Error> {
        let at = self.next;
        self.next += 1;
        match self.positional.get(at) {
            Some(value) => Ok(Some(value.clone())),
            None if self.named.has(name) => self.named.get::<Value>(name).map(Some),
            None => Ok(None),
        }
    }

    /// Takes an argument that must be given.
    pub(super) fn required(&mut self, name: &str) -> Result<Value, Error> {
        self.value(name)?.ok_or_else(|| refused(&format!("the argument `{name}` is missing")))
    }

    /// Takes a string; `None` if it is missing or Python's `None`.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<Value>, Error> {
        let value = self.value(name)?.filter(|value| !value.is_none());
        match value {
            Some(value) if value.as_str().is_none() => {
                Err(refused(&format!("`{name}` must be a string, not {}", value.kind())))
            }
            value => Ok(value),
        }
    }

    /// Takes an integer; `None` if it is missing or Python's `None`.
    pub(super) fn integer(&mut self, name: &str) -> Result<Option<i64>, Error> {
        let value = self.value(name)?.filter(|value| !value.is_none());
        value
            .map(|value| {
                integer(&value).map(clamped).ok_or_else(|| {
                    refused(&format!("`{name}` must be an integer, not {}", value.kind()))
                })
            })
            .transpose()
    }

    /// Takes an argument for its truth.
    pub(super) fn truth(&mut self, name: &str) -> Result<bool, Error> {
        Ok(self.value(name)?.is_some_and(|value| value.is_true()))
    }

    /// Checks that there are no other arguments.
    pub(super) fn finish(self) -> Result<(), Error> {
        if self.positional.len() > self.next {
            return Err(refused("too many arguments"));
        }
        self.named.assert_all_used()
    }

    /// The other arguments by position, and those by name.
    pub(super) fn rest(self) -> (&'a [Value], Kwargs) {
        (self.positional.get(self.next..).unwrap_or_default(), self.named)
    }
}

/// An integer or a truth value, which is 0 or 1 in Python.
pub(super) fn integer(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

pub(super) fn clamped(n: i128) -> i64 {
    n.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}
