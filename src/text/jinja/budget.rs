//! What a template may spend.

use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a value costs besides its text: more than a `Value` takes in a list.
const EACH: usize = 32;
/// Deeper values are refused: they could only be made to exhaust the stack.
const MAX_DEPTH: usize = 64;

/// Bytes that a template may yet read or write.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// What is left.
    pub(super) fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Pays for so many bytes.
    pub(crate) fn pay(&self, bytes: usize) -> Result<(), Error> {
        // One template runs on one thread, so nobody else changes the number in between.
        let left = self.left().checked_sub(bytes);
        self.0.store(left.unwrap_or(0), Ordering::Relaxed);
        match left {
            Some(_) => Ok(()),
            None => Err(refused("it needs more memory or time than a chat template may use")),
        }
    }

    /// Pays for all that is in a value, shared parts as often as they occur. Gives what it paid.
    pub(crate) fn deep(&self, value: &Value) -> Result<usize, Error> {
        self.nested(value, 0)
    }

    fn nested(&self, value: &Value, depth: usize) -> Result<usize, Error> {
        if depth > MAX_DEPTH {
            return Err(refused(&format!("a value is nested more than {MAX_DEPTH} deep")));
        }
        let mut paid = EACH + text(value);
        self.pay(paid)?;
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

    /// Pays for a value's text or its list of items, not for what is in the items.
    pub(super) fn shallow(&self, value: &Value) -> Result<(), Error> {
        self.pay(size(value))
    }

    /// Pays for a value's text, or where there is no index to go by, its list of items.
    pub(super) fn light(&self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::String | ValueKind::Bytes => self.pay(text(value)),
            ValueKind::Iterable => self.shallow(value),
            _ => Ok(()),
        }
    }

    /// A list in place of a view of one: views of views could be stacked until a walk through them
    /// exhausts the stack.
    pub(super) fn solid(&self, value: Value) -> Result<Value, Error> {
        if value.kind() != ValueKind::Iterable {
            return Ok(value);
        }
        let mut items = Vec::new();
        for item in value.try_iter()? {
            self.pay(EACH)?;
            items.push(item);
        }
        Ok(Value::from(items))
    }
}

/// Bytes of text.
pub(super) fn text(value: &Value) -> usize {
    value.as_str().map(str::len).or(value.as_bytes().map(<[u8]>::len)).unwrap_or(0)
}

/// What a copy of a text or of a list of items takes.
pub(super) fn size(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => text(value),
        _ => text(value).saturating_add(count(value).saturating_mul(EACH)),
    }
}

/// Items of a list or a map; for a text, what its characters would be as a list.
pub(super) fn count(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => text(value),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => value.len().unwrap_or(0),
        _ => 0,
    }
}

/// Values that `UnpackList` puts on the stack in this order again.
pub(super) fn restack(values: &[Value]) -> Value {
    Value::from(Tuple::from(values.iter().rev().cloned().collect::<Vec<_>>()))
}

pub(super) fn refused(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.to_owned())
}
