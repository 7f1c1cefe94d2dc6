//! A server on a port of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};

/// Starts `wf-run serve`; the child and what it says it listens on: `http://127.0.0.1:1234`.
pub fn start(mut command: Command) -> (Child, String) {
    let mut child = command.spawn().expect("starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on ").expect("an address");
    (child, address.into())
}
