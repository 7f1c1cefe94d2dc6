//! Standard output and standard error. A closed pipe is a quiet end, not a failure.
//!
//! The macros of std panic when nobody reads; nothing but this file writes.

use crate::cli::exit::Exit;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes and flushes, so that streamed text appears at once.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Exit::OutputClosed.into()),
        Err(e) => Err(anyhow::Error::new(e).context("cannot write to standard output")),
    }
}

/// Tells the user something on standard error, on a line of its own. Whether anybody reads it
/// changes nothing. Names from files may hold what a terminal would obey; it gets to see that.
pub fn note(text: impl Display) {
    let text: String = text.to_string().chars().map(visible).collect();
    let _ = writeln!(io::stderr(), "{text}");
}

/// A character, or a sign that there was one that would do something.
fn visible(c: char) -> char {
    if c.is_control() && !['\n', '\t'].contains(&c) { char::REPLACEMENT_CHARACTER } else { c }
}

/// Prints one JSON value, indented.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}
