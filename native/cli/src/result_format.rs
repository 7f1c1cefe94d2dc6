//! The format of results that are no table of records.

use clap::{Args, ValueEnum};

/// A text for people, or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A text
    Text,
    /// JSON with CPU, version, commit and date
    Json,
}

/// Options for such results.
#[derive(Args, Clone, Debug)]
pub struct ResultFormat {
    /// Output format
    #[arg(
        id = "output_format",
        short = 'o',
        long = "output",
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    format: Format,
    /// The same as -o json
    #[arg(long, conflicts_with = "output_format")]
    json: bool,
}

impl ResultFormat {
    /// Returns true if the result is JSON.
    pub fn is_json(&self) -> bool {
        self.json || self.format == Format::Json
    }
}
