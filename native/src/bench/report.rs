//! Results as Markdown, CSV or JSON.

use clap::ValueEnum;
use serde_json::Value;

/// Output formats of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A Markdown table
    Md,
    /// Comma-separated values
    Csv,
    /// A JSON array
    Json,
    /// A JSON object per line
    Jsonl,
}

/// A result.
pub trait Record: Sized {
    /// Names of the Markdown table's columns; a colon at the end aligns to the right.
    const COLUMNS: &[&str];

    /// The cells of the Markdown table.
    fn cells(&self) -> Vec<String>;

    /// Everything, as an object.
    fn fields(&self) -> Value;

    /// Returns the text below the Markdown table.
    fn summary(_rows: &[Self]) -> String {
        String::new()
    }
}

/// All fields but lists, and their names.
fn scalars(record: &impl Record) -> Vec<(String, String)> {
    let Value::Object(fields) = record.fields() else { unreachable!("an object was made") };
    let cell = |value: Value| match value {
        Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let scalar = fields.into_iter().filter(|(_, value)| !value.is_array() && !value.is_object());
    scalar.map(|(name, value)| (name, cell(value))).collect()
}

/// A cell's text that neither ends the cell nor moves a cursor: names may come from anywhere.
fn inert(cell: &str) -> String {
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    cell.replace('|', "\\|").chars().map(printable).collect()
}

/// A line of a Markdown table.
pub fn line<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    let cells: Vec<_> = cells.into_iter().map(|cell| inert(cell.as_ref())).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The head of a Markdown table; a colon at a column's end aligns it to the right.
pub fn heading(columns: &[&str]) -> String {
    let rule = |c: &&str| if c.ends_with(':') { "---:" } else { "---" };
    line(columns.iter().map(|c| c.trim_end_matches(':'))) + &line(columns.iter().map(rule))
}

/// Prints rows as they come.
pub struct Report<R> {
    format: Format,
    rows: Vec<R>,
}

impl<R: Record> Report<R> {
    /// An empty report.
    pub fn new(format: Format) -> Self {
        Self { format, rows: Vec::new() }
    }

    /// Returns the text before the first row.
    pub fn head(&self) -> String {
        match self.format {
            Format::Md => heading(R::COLUMNS),
            Format::Json => "[".into(),
            Format::Csv | Format::Jsonl => String::new(),
        }
    }

    /// A row, with a heading where the format wants one.
    pub fn row(&mut self, row: R) -> String {
        let first = self.rows.is_empty();
        let text = match self.format {
            Format::Md => line(row.cells()),
            Format::Csv => {
                let (names, cells): (Vec<_>, Vec<_>) = scalars(&row).into_iter().unzip();
                let names = if first { names.join(",") + "\n" } else { String::new() };
                names + &cells.join(",") + "\n"
            }
            Format::Json => format!("{}\n  {}", if first { "" } else { "," }, row.fields()),
            Format::Jsonl => format!("{}\n", row.fields()),
        };
        self.rows.push(row);
        text
    }

    /// Returns the text after the last row.
    pub fn tail(&self) -> String {
        match self.format {
            Format::Md => R::summary(&self.rows),
            Format::Json => "\n]\n".into(),
            Format::Csv | Format::Jsonl => String::new(),
        }
    }
}
