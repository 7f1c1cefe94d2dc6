//! How the program ends when it does not end well.

use crate::out;
use std::fmt;
use std::process::ExitCode;
use wrinklefree::settings::SettingsError;

/// Ends that are not plain failures; every other error exits with code 1, but for settings that make
/// no sense, which are usage errors.
#[derive(Debug)]
pub enum Exit {
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// Nobody reads standard output any more (`wf-run … | head`).
    OutputClosed,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Interrupted => f.write_str("interrupted"),
            Self::OutputClosed => f.write_str("standard output is closed"),
        }
    }
}

impl std::error::Error for Exit {}

/// A usage error with this message.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Exit::Usage(message.into()).into()
}

/// Tells the user on standard error and chooses the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Exit>() {
        Some(Exit::OutputClosed) => ExitCode::SUCCESS,
        Some(Exit::Interrupted) => ExitCode::from(130),
        None if !error.is::<SettingsError>() => {
            out::note(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
        Some(Exit::Usage(_)) | None => {
            out::note(format_args!("error: {error:#}\n\nFor more information, try '--help'."));
            ExitCode::from(2)
        }
    }
}
