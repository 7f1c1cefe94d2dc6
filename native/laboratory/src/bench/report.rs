//! Results as Markdown, CSV or JSON.

use super::plot::{self, Bar};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use wf_run_cli::{human, out, provenance};

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

/// Options for results.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value = "md")]
    output: Format,
    /// Draw the results in this file too
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// A result.
pub trait Record: Sized {
    /// Names of the Markdown table's columns; a colon at the end aligns to the right.
    const COLUMNS: &[&str];

    /// The cells of the Markdown table.
    fn cells(&self) -> Vec<String>;

    /// Everything, as an object.
    fn fields(&self) -> Value;

    /// The name of its bar in a drawing.
    fn label(&self) -> String {
        self.cells().swap_remove(0)
    }

    /// Returns the text below the Markdown table.
    fn summary(_rows: &[Self]) -> String {
        String::new()
    }
}

/// The bar of a record: its speed, or else its perplexity.
fn bar(record: &impl Record) -> Option<Bar> {
    let fields = record.fields();
    let of = |name: &str, unit| Some((fields[name].as_f64()?, unit));
    let (value, unit) =
        of("tokens_per_second", "t/s").or_else(|| of("perplexity", "perplexity"))?;
    Some(Bar { label: record.label(), value, unit })
}

/// All fields of a record, and where and when it was measured.
fn all_fields(record: &impl Record) -> Map<String, Value> {
    let Value::Object(mut fields) = record.fields() else { unreachable!("an object was made") };
    fields.append(&mut provenance::fields());
    fields
}

/// All fields but lists, and their names.
fn scalars(record: &impl Record) -> Vec<(String, String)> {
    let fields = all_fields(record);
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

/// Formats a Markdown table with columns of one width. A colon at the end of a column's name aligns it
/// to the right.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let right: Vec<bool> = columns.iter().map(|column| column.ends_with(':')).collect();
    let names = columns.iter().map(|column| inert(column.trim_end_matches(':'))).collect();
    let rows = rows.iter().map(|row| row.iter().map(|cell| inert(cell)).collect());
    let mut lines: Vec<Vec<String>> = [names].into_iter().chain(rows).collect();
    let width =
        |c: usize| lines.iter().map(|cells| human::width(&cells[c])).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let rule = right.iter().zip(&widths).map(|(&right, &width)| {
        if right { "-".repeat(width - 1) + ":" } else { "-".repeat(width) }
    });
    lines.insert(1, rule.collect());
    let cell = |((cell, &width), &right): ((&String, &usize), &bool)| {
        let space = " ".repeat(width - human::width(cell));
        if right { space + cell } else { cell.clone() + &space }
    };
    let line = |cells: &Vec<String>| {
        let cells: Vec<String> = cells.iter().zip(&widths).zip(&right).map(cell).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    lines.iter().map(line).collect()
}

/// The text of a table with single spaces.
#[cfg(test)]
pub fn squeezed(text: &str) -> String {
    text.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Prints rows as they come, and a table at the end, when the widths of its columns are known.
pub struct Report<R> {
    format: Format,
    plot: Option<PathBuf>,
    rows: Vec<R>,
}

impl<R: Record> Report<R> {
    /// An empty report.
    pub fn new(OutputArgs { output, plot }: &OutputArgs) -> Self {
        Self { format: *output, plot: plot.clone(), rows: Vec::new() }
    }

    /// A report of these rows as a whole.
    #[cfg(test)]
    pub fn text(format: Format, rows: impl IntoIterator<Item = R>) -> String {
        let mut report = Self { format, plot: None, rows: Vec::new() };
        let begin = report.head();
        let lines: String = rows.into_iter().map(|row| report.row(row)).collect();
        begin + &lines + &report.tail()
    }

    /// Returns the text before the first row.
    pub fn head(&self) -> String {
        match self.format {
            Format::Json => "[".into(),
            Format::Md | Format::Csv | Format::Jsonl => String::new(),
        }
    }

    /// A row, with a heading where the format wants one.
    pub fn row(&mut self, row: R) -> String {
        let first = self.rows.is_empty();
        let text = match self.format {
            Format::Md => String::new(),
            Format::Csv => {
                let (names, cells): (Vec<_>, Vec<_>) = scalars(&row).into_iter().unzip();
                let names = if first { names.join(",") + "\n" } else { String::new() };
                names + &cells.join(",") + "\n"
            }
            Format::Json => {
                format!("{}\n  {}", if first { "" } else { "," }, json!(all_fields(&row)))
            }
            Format::Jsonl => format!("{}\n", json!(all_fields(&row))),
        };
        self.rows.push(row);
        text
    }

    /// Prints the text after the last row, and draws all rows if the user wants it.
    pub fn finish(&self) -> anyhow::Result<()> {
        out::print(&self.tail())?;
        if self.format == Format::Md {
            out::print(&format!("\n{}\n", provenance::line()))?;
        }
        let Some(path) = &self.plot else { return Ok(()) };
        let bars: Vec<Bar> = self.rows.iter().filter_map(bar).collect();
        let title = self.rows.first().map_or(Value::Null, |row| row.fields()["model"].take());
        plot::write(path, title.as_str().unwrap_or("wf-run"), &bars)
    }

    /// Returns the text after the last row.
    fn tail(&self) -> String {
        match self.format {
            Format::Md => {
                let rows: Vec<_> = self.rows.iter().map(R::cells).collect();
                table(R::COLUMNS, &rows) + &R::summary(&self.rows)
            }
            Format::Json => "\n]\n".into(),
            Format::Csv | Format::Jsonl => String::new(),
        }
    }
}
