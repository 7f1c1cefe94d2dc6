//! Standard output and standard error. A closed pipe ends the program quietly.
//!
//! The print macros of std panic on a closed pipe, so only this file writes.

use crate::exit::Exit;
use crate::provenance;
use anstyle::Style;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Prints on standard output and flushes, so that streamed text appears at once. On a terminal control
/// characters, which models and names from files may hold, are replaced by a visible sign.
pub fn print(text: &str) -> anyhow::Result<()> {
    write(&shown(text, io::stdout().is_terminal()))
}

/// Returns a text as a terminal, or another output, gets it.
fn shown(text: &str, terminal: bool) -> Cow<'_, str> {
    if terminal && text.chars().any(|c| visible(c) != c) {
        return text.chars().map(visible).collect::<String>().into();
    }
    text.into()
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Exit::OutputClosed.into()),
        Err(e) => Err(anyhow::Error::new(e).context("cannot write to standard output")),
    }
}

/// Returns the columns of the terminal that standard output is, or `None` if it is none.
pub(crate) fn terminal_columns() -> Option<usize> {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map(|(terminal_size::Width(columns), _)| usize::from(columns).max(1))
}

/// Prints text with styles on standard output, and leaves the styles out where the user wants none. The
/// caller has made the control characters of others visible.
pub fn styled(text: &str) -> anyhow::Result<()> {
    match anstream::AutoStream::choice(&io::stdout()) {
        anstream::ColorChoice::Never => print(&anstream::adapter::strip_str(text).to_string()),
        _ => write(text),
    }
}

/// Prints a line on standard error and ignores failures. Control characters, which names from files
/// may hold, are replaced by a visible sign.
pub fn note(text: impl Display) {
    let text: String = text.to_string().chars().map(visible).collect();
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints dim text on standard error, as it is generated, and ignores failures.
pub fn dim(text: &str) {
    let (style, mut stderr) = (Style::new().dimmed(), anstream::stderr());
    let text: String = text.chars().map(visible).collect();
    let _ = write!(stderr, "{style}{text}{style:#}").and_then(|()| stderr.flush());
}

/// Replaces a control character by a visible sign.
pub fn visible(c: char) -> char {
    if c.is_control() && !['\n', '\t'].contains(&c) { char::REPLACEMENT_CHARACTER } else { c }
}

/// Prints a result as JSON, indented, with the machine, the program and the time.
pub fn json(result: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(&provenance::attached(result)?)? + "\n"))
}

/// Prints one of several results as JSON on a line, with the machine, the program and the time.
pub fn json_line(result: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string(&provenance::attached(result)?)? + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_no_control_characters_of_others() {
        let text = "a\x1b]0;title\x07\tb\u{9b}2J\r\n";
        assert_eq!(shown(text, true), "a\u{fffd}]0;title\u{fffd}\tb\u{fffd}2J\u{fffd}\n");
        assert_eq!(shown(text, false), text, "programs get what was generated");
        assert_eq!(shown("plain ä\n", true), "plain ä\n");
    }
}
