//! Ctrl-C, SIGTERM, and a standard error that is closed.
#![cfg(unix)]

use crate::common::{Ran, names, wf_run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn kill(child: &Child, signal: &str) {
    let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
}

/// A hub that takes connections and says nothing: a model from it is never there.
struct SilentHub {
    listener: TcpListener,
    home: TempDir,
}

impl SilentHub {
    const MODEL: &str = "some/model";

    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Self { listener, home: tempfile::tempdir().expect("a directory") }
    }

    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let address = self.listener.local_addr().expect("bound");
        command.env("HF_ENDPOINT", format!("http://{address}")).env("HF_HOME", self.home.path())
    }
}

/// A killed program cannot remove its unfinished file: the next one in the folder does, and leaves those of
/// programs that run.
#[test]
fn what_a_killed_program_left_is_removed_by_the_next() {
    let (hub, outputs) = (SilentHub::start(), tempfile::tempdir().expect("a directory"));
    let model = SilentHub::MODEL;
    let output = outputs.path().join("out");
    let output = output.to_str().expect("UTF-8");
    let packed = ["convert", model, output];
    let directory = ["convert", model, output, "--to", "hf"];
    let start = |args: &[&str], files: usize| {
        let child = hub.environment(&mut wf_run(args)).spawn().expect("starts");
        let start = Instant::now();
        while names(outputs.path()).len() < files {
            assert!(start.elapsed() < Duration::from_secs(60), "no draft appears");
            sleep(Duration::from_millis(5));
        }
        child
    };
    for args in [&packed[..], &directory] {
        // What is no file is not touched, and nobody waits for it.
        let pipe = outputs.path().join(".wf-run-pipe.tmp");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("runs").success());
        let waiting = start(args, 2);
        kill(&waiting, "-INT");
        waiting.wait_with_output().expect("ends");
        std::fs::remove_file(&pipe).expect("still there");
        let mut killed = start(args, 1);
        kill(&killed, "-KILL");
        killed.wait().expect("ends");
        let left = names(outputs.path());
        assert!(left.len() == 1 && left[0].starts_with(".wf-run-"), "{left:?}");
        std::fs::write(outputs.path().join(".wf-run-of mine.tmp"), "mine").expect("written");
        let one = start(args, 2);
        let begin = Instant::now();
        while names(outputs.path()).contains(&left[0]) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{left:?} stays");
            sleep(Duration::from_millis(5));
        }
        let two = start(args, 3);
        sleep(Duration::from_millis(300));
        assert_eq!(names(outputs.path()).len(), 3, "those of both programs, and mine");
        for child in [one, two] {
            kill(&child, "-INT");
            child.wait_with_output().expect("ends");
        }
        assert_eq!(names(outputs.path()), [".wf-run-of mine.tmp"]);
        std::fs::remove_file(outputs.path().join(".wf-run-of mine.tmp")).expect("deleted");
    }
}

#[test]
fn signals_remove_unfinished_files() {
    let (hub, outputs) = (SilentHub::start(), tempfile::tempdir().expect("a directory"));
    let model = SilentHub::MODEL;
    let output = outputs.path().join("out");
    let output = output.to_str().expect("UTF-8");
    let convert = ["convert", model, output];
    let logits = ["logits", "--model", model, "--tokens", "1,2", "--output", output];
    for args in [&convert[..], &logits] {
        for signal in ["-INT", "-TERM", "-HUP"] {
            let child = hub.environment(&mut wf_run(args)).spawn().expect("starts");
            let start = Instant::now();
            while names(outputs.path()).is_empty() {
                assert!(start.elapsed() < Duration::from_secs(60), "no draft appears");
                sleep(Duration::from_millis(5));
            }
            kill(&child, signal);
            let ran: Ran = child.wait_with_output().expect("ends").into();
            assert_eq!(ran.ends(130, &[]).stderr, "", "{args:?} {signal}");
            assert_eq!(names(outputs.path()), [""; 0], "{args:?} {signal}");
        }
    }
}

#[test]
fn ctrl_c_removes_partial_logits() {
    let outputs = tempfile::tempdir().expect("a directory");
    let output = outputs.path().join("out");
    let tokens: Vec<_> = (0..2048).map(|t| t.to_string()).collect();
    let args =
        ["logits", "-t1", "--rope-scaling", "yarn:4", "--tokens", &tokens.join(","), "--output"];
    let child = wf_run(&args).arg(&output).spawn().expect("starts");
    let begun = || {
        let entries = outputs.path().read_dir().expect("a directory");
        entries.flatten().any(|e| e.metadata().is_ok_and(|m| m.len() > 0))
    };
    let start = Instant::now();
    while !begun() {
        assert!(start.elapsed() < Duration::from_secs(60), "no logits appear");
        sleep(Duration::from_millis(1));
    }
    kill(&child, "-INT");
    let ran: Ran = child.wait_with_output().expect("ends").into();
    assert_eq!(ran.ends(130, &[]).stderr, "");
    assert_eq!(names(outputs.path()), [""; 0]);
}

#[test]
fn a_loading_server_ends_at_once() {
    let hub = SilentHub::start();
    let mut server = wf_run(&["serve", "--port", "0", "--model", SilentHub::MODEL]);
    let mut server = hub.environment(&mut server).spawn().expect("starts");
    let mut stdout = BufReader::new(server.stdout.take().expect("piped"));
    stdout.read_line(&mut String::new()).expect("it listens");
    // The signal handler is installed a moment later.
    sleep(Duration::from_millis(300));
    let start = Instant::now();
    kill(&server, "-TERM");
    assert_eq!(server.wait().expect("ends").code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn signals_end_a_chat_without_a_terminal() {
    let args = ["chat", "-n", "1900", "-t1", "--logit-bias", "2=-inf"];
    let mut waiting = wf_run(&args).stdin(Stdio::piped()).spawn().expect("starts");
    let mut input = waiting.stdin.take().expect("piped");
    writeln!(input, "/stats").expect("reads");
    let mut lines = BufReader::new(waiting.stderr.take().expect("piped")).lines();
    assert!(lines.any(|l| l.expect("UTF-8") == "no answer yet"));
    kill(&waiting, "-TERM");
    assert_eq!(waiting.wait().expect("ends").code(), Some(130));

    let mut answering = wf_run(&args).stdin(Stdio::piped()).spawn().expect("starts");
    let mut input = answering.stdin.take().expect("piped");
    writeln!(input, "Hello").expect("reads");
    let mut stdout = answering.stdout.take().expect("piped");
    stdout.read_exact(&mut [0]).expect("some text");
    kill(&answering, "-TERM");
    stdout.read_to_end(&mut Vec::new()).expect("the rest");
    let ran: Ran = answering.wait_with_output().expect("ends").into();
    ran.ends(130, &["(stopped)"]);
}

/// Runs a command whose standard error is closed.
fn run_without_stderr(args: &[&str], input: &[u8]) -> Ran {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let child = wf_run(args).stdin(Stdio::piped()).stderr(writer).spawn();
    let mut child = child.expect("starts");
    // A program that fails early does not read its input.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("ends").into()
}

#[test]
fn a_closed_standard_error_does_not_stop_commands() {
    let ran = run_without_stderr(&["generate", "Hello", "-n", "4"], b"").ends(0, &[]);
    assert!(!ran.stdout.is_empty());
    run_without_stderr(&["inspect", "/no/such/model"], b"").ends(1, &[]);
    run_without_stderr(&["generate", ""], b"").ends(2, &[]);
    let ran = run_without_stderr(&["chat", "-n", "4"], b"/help\n/nope\n/reset\n/stats\nHello\n")
        .ends(0, &[]);
    assert!(!ran.stdout.trim().is_empty(), "the message is answered");
}
