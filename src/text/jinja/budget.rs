//! The budget of a template's work, in bytes.

use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Cost of a value besides its text, in bytes: more than a `Value` takes in a list.
pub(super) const EACH: usize = 32;
/// Deepest nesting of a value; more would only serve to exhaust the stack.
const MAX_DEPTH: usize = 64;

/// Number of bytes that a template may still read or write.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Number of bytes that are left.
    pub(super) fn remaining(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Charges this many bytes.
    ///
    /// # Errors
    /// When the budget is used up.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Error> {
        // A template runs on one thread, so the number does not change in between.
        let left = self.remaining().checked_sub(bytes);
        self.0.store(left.unwrap_or(0), Ordering::Relaxed);
        match left {
            Some(_) => Ok(()),
            None => Err(refused("it needs more memory or time than a chat template may use")),
        }
    }

    /// Charges for a value with everything in it, and for shared parts each time they occur. Returns
    /// the cost.
    pub(crate) fn charge_deep(&self, value: &Value) -> Result<usize, Error> {
        self.nested(value, 0)
    }

    fn nested(&self, value: &Value, depth: usize) -> Result<usize, Error> {
        if depth > MAX_DEPTH {
            return Err(refused(&format!("a value is nested more than {MAX_DEPTH} deep")));
        }
        let mut paid = EACH + text(value);
        self.charge(paid)?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    paid += self.nested(&item, depth + 1)?;
                }
            }
            ValueKind::Map => {
                for key in value.try_iter()? {
                    paid += self.nested(&key, depth + 1)?;
                    paid += self.nested(&value.get_item(&key)?, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(paid)
    }

    /// Charges for a value's text or its list of items, without the contents of the items.
    pub(super) fn charge_shallow(&self, value: &Value) -> Result<(), Error> {
        self.charge(size(value))
    }

    /// Charges for a value's text, or for its list of items if it cannot be indexed.
    pub(super) fn charge_text(&self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::String | ValueKind::Bytes => self.charge(text(value)),
            ValueKind::Iterable => self.charge_shallow(value),
            _ => Ok(()),
        }
    }

    /// Turns a lazy view of a list into a list. Nested views could exhaust the stack when they are
    /// iterated.
    pub(super) fn materialize(&self, value: Value) -> Result<Value, Error> {
        if value.kind() != ValueKind::Iterable {
            return Ok(value);
        }
        let mut items = Vec::new();
        for item in value.try_iter()? {
            self.charge(EACH)?;
            items.push(item);
        }
        Ok(Value::from(items))
    }
}

/// Bytes of a value's text.
pub(super) fn text(value: &Value) -> usize {
    value.as_str().map(str::len).or(value.as_bytes().map(<[u8]>::len)).unwrap_or(0)
}

/// Cost of copying a text or a list of items.
pub(super) fn size(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => text(value),
        _ => text(value).saturating_add(count(value).saturating_mul(EACH)),
    }
}

/// Number of items of a list or a map; for a text, an upper bound of its characters.
pub(super) fn count(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => text(value),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => value.len().unwrap_or(0),
        _ => 0,
    }
}

/// A list of values that `UnpackList` puts back on the stack in the same order.
pub(super) fn restack(values: &[Value]) -> Value {
    Value::from(Tuple::from(values.iter().rev().cloned().collect::<Vec<_>>()))
}

pub(super) fn refused(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.to_owned())
}
