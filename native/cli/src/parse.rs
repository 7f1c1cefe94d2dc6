//! Parsing of arguments, with errors in the words of users.

use super::exit::usage;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgMatches, Command};
use std::error::Error;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

/// Lets every option of a command, and of its commands, read a negative number as its value. So the error
/// about it names the option.
pub fn with_negative_values(command: Command) -> Command {
    let reads = |arg: Arg| {
        let takes_value = !arg.is_positional() && arg.get_action().takes_values();
        if takes_value { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(reads).mut_subcommands(with_negative_values)
}

/// Parses arguments, the program's name first. Ends the program where they ask for help, or where clap's
/// own error says what is wrong.
///
/// # Errors
/// A usage error that says which number an option takes.
pub fn matches(
    command: Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> anyhow::Result<ArgMatches> {
    command.try_get_matches_from(arguments).map_err(|error| match wrong_number(&error) {
        Some(message) => usage(message),
        None => error.exit(),
    })
}

/// Returns a message that names an option whose value is not a number, and what it takes; `None` for other
/// errors.
pub fn wrong_number(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    let (option, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let expected = expected(error.source()?, value)?;
    Some(format!("invalid value '{value}' for '{option}': {expected}"))
}

/// Returns which number was expected instead of `value`, for the errors of Rust's own parsers; `None` for
/// other errors.
pub fn expected(error: &(dyn Error + 'static), value: &str) -> Option<&'static str> {
    if error.is::<ParseFloatError>() {
        return Some("expected a number, as in 0.5");
    }
    Some(match error.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::Zero => "expected a whole number from 1",
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "the number is too large",
        _ if value.trim_start().starts_with('-') => "expected a number that is not negative",
        _ => "expected a whole number, as in 4",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::num::NonZeroUsize;

    #[derive(Debug, Parser)]
    struct Only {
        #[arg(long, value_name = "N")]
        count: Option<NonZeroUsize>,
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..9))]
        port: Option<u16>,
        #[arg(long, value_name = "X")]
        share: Option<f32>,
    }

    #[test]
    fn wrong_numbers_say_what_is_expected() {
        for (argument, want) in [
            (
                "--count=0",
                Some("invalid value '0' for '--count <N>': expected a whole number from 1"),
            ),
            (
                "--count=x",
                Some("invalid value 'x' for '--count <N>': expected a whole number, as in 4"),
            ),
            (
                "--count=-1",
                Some(
                    "invalid value '-1' for '--count <N>': expected a number that is not negative",
                ),
            ),
            (
                "--port=a",
                Some("invalid value 'a' for '--port <N>': expected a whole number, as in 4"),
            ),
            ("--port=70000", None),
            (
                "--share=1,5",
                Some("invalid value '1,5' for '--share <X>': expected a number, as in 0.5"),
            ),
            ("--color=red", None),
        ] {
            let error = Only::try_parse_from(["x", argument]).expect_err(argument);
            assert_eq!(wrong_number(&error).as_deref(), want, "{argument}");
        }
        let error =
            Only::try_parse_from(["x", "--count", "99999999999999999999"]).expect_err("large");
        assert!(wrong_number(&error).expect("a number").ends_with("the number is too large"));
    }
}
