//! Runs `wf-run` and looks at what it does.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod hub;
pub mod server;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program, with nothing of the environment that could change what it does.
pub fn wf_run(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wf-run"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().to_uppercase();
        if name.starts_with("HF_") || name.starts_with("WF_") || name.ends_with("_PROXY") {
            command.env_remove(&*name).env_remove(name.to_lowercase());
        }
    }
    command
}

/// What a run left behind.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Ran {
    /// Fails the test unless the exit code is this and standard error has all of `parts`.
    #[track_caller]
    pub fn ends(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in: {}", self.stderr);
        }
        self
    }
}

/// Runs with these arguments.
pub fn run(args: &[&str]) -> Ran {
    wf_run(args).output().expect("wf-run starts").into()
}

/// Runs with a text on standard input.
pub fn run_with_input(args: &[&str], input: &[u8]) -> Ran {
    let mut child = wf_run(args).stdin(Stdio::piped()).spawn().expect("wf-run starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A program that fails early does not read its input.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("wf-run ends").into()
}

/// Names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().expect("a directory");
    let mut names: Vec<_> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}
