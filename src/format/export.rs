//! Errors of writing a model in the format of other programs.

use std::io;

/// A model cannot be written in a format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The format cannot hold a part of the model.
    #[error("{part}: expected {expected}, found {found} ({advice})")]
    Unsupported {
        /// The tensor or setting.
        part: String,
        /// Contents that the format can hold there.
        expected: String,
        /// Contents that the model has.
        found: String,
        /// Advice on what to do.
        advice: String,
    },
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ExportError {
    pub(super) fn unsupported(
        part: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            part: part.into(),
            expected: expected.into(),
            found: found.into(),
            advice: advice.into(),
        }
    }
}
