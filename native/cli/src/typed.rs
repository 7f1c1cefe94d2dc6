//! Options with the source of their values: what the user typed, or what the configuration says.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id};

/// Options, and whether the command line has one of them. Where they mean nothing, typed ones are a
/// mistake, and those of the configuration are not.
#[derive(Debug, Default)]
pub struct Typed<T> {
    /// The options.
    pub options: T,
    /// True if the command line has one of them.
    pub is_typed: bool,
}

impl<T: Clone + Default> Typed<T> {
    /// Returns what the user asks for, and the defaults of the configuration.
    pub fn parts(&self) -> (T, Option<&T>) {
        if self.is_typed {
            (self.options.clone(), None)
        } else {
            (T::default(), Some(&self.options))
        }
    }
}

impl<T: Args> Args for Typed<T> {
    fn group_id() -> Option<Id> {
        T::group_id()
    }

    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T: Args> FromArgMatches for Typed<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let known = T::augment_args(Command::new(""));
        let is_typed = known.get_arguments().any(|arg| {
            matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        Ok(Self { options: T::from_arg_matches(matches)?, is_typed })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
