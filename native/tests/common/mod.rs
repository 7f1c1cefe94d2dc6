//! Helpers that run `wf-run` and check its output.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod bodies;
pub mod hub;
pub mod model;
pub mod server;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns a command without environment variables that change its behavior.
pub fn wf_run(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wf-run"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().to_uppercase();
        let ours = name.starts_with("WF_") || name == "MODEL_PATH";
        if ours || name.starts_with("HF_") || name.starts_with("OTEL_") || name.ends_with("_PROXY")
        {
            command.env_remove(&*name).env_remove(name.to_lowercase());
        }
    }
    command
}

/// Exit code and output of a run.
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
    /// Asserts the exit code and that standard error contains all of `parts`.
    #[track_caller]
    pub fn ends(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in: {}", self.stderr);
        }
        self
    }
}

/// Runs with `args`.
pub fn run(args: &[&str]) -> Ran {
    wf_run(args).output().expect("wf-run starts").into()
}

/// Runs with `args` and `input` on standard input.
pub fn run_with_input(args: &[&str], input: &[u8]) -> Ran {
    let mut child = wf_run(args).stdin(Stdio::piped()).spawn().expect("wf-run starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A program that fails early does not read its input.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("wf-run ends").into()
}

/// Returns the sorted names in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().expect("a directory");
    let mut names: Vec<_> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}
