//! Costs of calls, by their arguments.

use super::budget::{Budget, count};
use crate::text::python;
use minijinja::Error;
use minijinja::value::Value;

/// Cost of a call.
#[derive(Clone, Copy)]
pub(super) enum Cost {
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
    pub(super) fn charge(self, budget: &Budget, args: &[Value]) -> Result<(), Error> {
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

/// Python's `str(value)`, charged to the budget.
pub(super) fn written(budget: &Budget, value: &Value) -> Result<String, Error> {
    let paid = budget.charge_deep(value)?;
    let text = python::to_str(value)?;
    budget.charge(text.len().saturating_sub(paid))?;
    Ok(text)
}

/// Charges for everything in the arguments. Returns the cost.
pub(super) fn charge_all(budget: &Budget, args: &[Value]) -> Result<usize, Error> {
    args.iter().map(|arg| budget.charge_deep(arg)).sum()
}
