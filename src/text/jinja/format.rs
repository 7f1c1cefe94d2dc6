//! Python's formats of texts: `%` and `str.format`.

use super::budget::{Budget, refused};
use super::cost::{charge_all, written};
use minijinja::Error;
use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Value, ValueKind};

/// Python's `text % args`.
pub(super) fn printf(budget: &Budget, text: &str, args: &[Value]) -> Result<String, Error> {
    let args = printable(budget, text, args)?;
    format(FormatStyle::Printf, text, &args)
}

/// Python's `text.format(*args)`.
pub(super) fn str_format(budget: &Budget, text: &str, args: &[Value]) -> Result<String, Error> {
    let args = printable(budget, text, args)?;
    format(FormatStyle::StrFormat, text, &args)
}

/// Checks and charges a format, and turns its arguments to what Python prints.
fn printable(budget: &Budget, text: &str, args: &[Value]) -> Result<Vec<Value>, Error> {
    charge_format(budget, text, args)?;
    args.iter()
        .map(|arg| match arg.kind() {
            ValueKind::Number | ValueKind::String | ValueKind::Map => Ok(arg.clone()),
            // `%d` takes it as a number.
            ValueKind::Bool if text.contains("%d") => Ok(Value::from(i64::from(arg.is_true()))),
            _ => written(budget, arg).map(Value::from),
        })
        .collect()
}

/// Charges for `format`, and refuses large widths such as `%9999d` and `{:9999}`.
fn charge_format(budget: &Budget, text: &str, args: &[Value]) -> Result<(), Error> {
    let paid = charge_all(budget, args)?.saturating_add(text.len());
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
