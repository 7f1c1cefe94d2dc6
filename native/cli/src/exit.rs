//! Exit codes of the program.

use std::fmt;
use std::process::ExitCode;
use wrinklefree::engine::NOT_FINITE;
use wrinklefree::settings::SettingsError;
use wrinklefree_easy::machine::MachineError;

/// Errors that are not plain failures. Every other error exits with code 1, except for settings that
/// make no sense or do not fit the machine: these are usage errors.
#[derive(Debug)]
pub enum Exit {
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The model computed a number that is not finite.
    NotFinite,
    /// The reader of standard output is gone (`wf-run … | head`).
    OutputClosed,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Interrupted => f.write_str("interrupted"),
            Self::NotFinite => f.write_str(NOT_FINITE),
            Self::OutputClosed => f.write_str("standard output is closed"),
        }
    }
}

impl std::error::Error for Exit {}

/// Makes a usage error.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Exit::Usage(message.into()).into()
}

/// Returns the message for the user, if there is one, and the exit code.
pub(crate) fn outcome(error: &anyhow::Error) -> (Option<String>, ExitCode) {
    match error.downcast_ref::<Exit>() {
        Some(Exit::OutputClosed) => (None, ExitCode::SUCCESS),
        Some(Exit::Interrupted) => (None, ExitCode::from(130)),
        Some(Exit::NotFinite) => failure(error),
        None if !error.is::<SettingsError>() && !error.is::<MachineError>() => failure(error),
        Some(Exit::Usage(_)) | None => {
            let message = format!("error: {error:#}\n\nFor more information, try '--help'.");
            (Some(message), ExitCode::from(2))
        }
    }
}

/// A plain failure.
fn failure(error: &anyhow::Error) -> (Option<String>, ExitCode) {
    (Some(format!("error: {error:#}")), ExitCode::FAILURE)
}
