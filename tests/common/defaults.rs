//! The table of defaults in docs/command-line.md, as tests of the shells read it.
#![allow(dead_code, reason = "each test file uses its part")]

use serde_json::Value;

const PAGE: &str = include_str!("../../docs/command-line.md");
const HEAD: &str =
    "| option | `generate`, `chat`, `run` | server | Python, Rust, C | npm | reason |";

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Commands,
    Server,
    Libraries,
    Npm,
}

pub const COLUMNS: [Column; 4] = [Column::Commands, Column::Server, Column::Libraries, Column::Npm];

/// Meaning of an absent option.
#[derive(Clone, Debug, PartialEq)]
pub enum Absent {
    /// The shell has no such option.
    NoOption,
    /// Each request draws a value.
    Drawn,
    /// As many tokens as fit the context.
    Fits,
    /// Nothing is added, cut or reported.
    Nothing,
    /// The same as this value.
    Equals(Value),
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    pub option: String,
    cells: [String; 4],
    pub reason: String,
}

/// Reads the table.
pub fn rows() -> Vec<Row> {
    let (_, after) = PAGE.split_once(HEAD).expect("docs/command-line.md has the table of defaults");
    let lines = after.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(Row::parse).collect()
}

impl Row {
    fn parse(line: &str) -> Self {
        let mut cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
        let mut next = || cells.next().unwrap_or_else(|| panic!("six cells: {line}"));
        let option = next().trim_matches('`').to_owned();
        let row = Self { option, cells: [next(), next(), next(), next()], reason: next() };
        assert!(cells.next().is_none(), "six cells: {line}");
        row
    }

    /// Returns what the absent option means in a shell. A cell such as `512, in `chat` 1024` has values for
    /// single commands or paths of it.
    pub fn absent(&self, column: Column, place: &str) -> Absent {
        let cell =
            &self.cells[COLUMNS.iter().position(|&other| other == column).expect("a column")];
        let (first, special) = cell.split_once(", in `").unwrap_or((cell, ""));
        let value = match special.split_once("` ") {
            Some((only, value)) if only == place => value,
            _ => first,
        };
        match value {
            "–" => Absent::NoOption,
            "drawn" => Absent::Drawn,
            "what fits the context" => Absent::Fits,
            "none" => Absent::Nothing,
            value => {
                let value = value.trim_matches('`');
                let read = serde_json::from_str(value);
                Absent::Equals(read.unwrap_or_else(|e| panic!("{}: {value}: {e}", self.option)))
            }
        }
    }

    /// Returns true if the shells that have the option agree.
    pub fn agrees(&self) -> bool {
        let mut cells = self.cells.iter().filter(|cell| *cell != "–");
        let first = cells.next().expect("some shell has the option");
        !first.contains(", in ") && cells.all(|cell| cell == first)
    }
}
