//! Files that are no models, odd paths, limits of the system, and files that change in use.
#![cfg(unix)]

use crate::common::server::{Server, ask, start};
use crate::common::{Ran, names, wf_run};
use serde_json::json;
#[cfg(target_os = "linux")]
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");

fn folder() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Runs a command that must end within half a minute.
#[track_caller]
fn within(mut command: Command) -> Ran {
    let mut child = command.spawn().expect("starts");
    let begin = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        if begin.elapsed() > Duration::from_secs(30) {
            child.kill().expect("killed");
            panic!("hangs: {command:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("ended").into()
}

fn with(args: &[&str], path: &Path) -> Command {
    let mut command = wf_run(args);
    command.arg(path);
    command
}

fn fifo(path: &Path) -> PathBuf {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
    path.into()
}

#[test]
fn what_is_no_regular_file_is_refused_by_name() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let _socket = UnixListener::bind(at("socket")).expect("bound");
    for (path, what) in [
        (fifo(&at("pipe.gguf")), "a pipe (FIFO)"),
        (at("socket"), "a socket"),
        ("/dev/zero".into(), "a device"),
    ] {
        let named = path.display().to_string();
        within(with(&["inspect"], &path)).ends(1, &[what, &named]);
        within(with(&["generate", "x", "-n", "1", "-m"], &path)).ends(1, &[what, &named]);
    }
    // In a directory, too.
    let directory = |name: &str| {
        let path = at(name);
        fs::create_dir(&path).expect("made");
        path
    };
    let (pipes, folders) = (directory("pipes"), directory("folders"));
    fifo(&pipes.join("m.gguf"));
    within(with(&["inspect"], &pipes)).ends(1, &["m.gguf", "a pipe (FIFO)"]);
    fs::create_dir(folders.join("m.gguf")).expect("made");
    within(with(&["inspect"], &folders)).ends(1, &["m.gguf", "a directory"]);
}

/// Other systems have no such names.
#[cfg(target_os = "linux")]
#[test]
fn paths_need_not_be_utf8() {
    let folder = folder();
    let odd = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
    let (file, directory) = (odd(b"m\xff.safetensors"), odd(b"d\xfe"));
    fs::copy(MODEL, &file).expect("copied");
    fs::create_dir(&directory).expect("made");
    fs::copy(MODEL, directory.join(OsStr::from_bytes(b"\xfd.safetensors"))).expect("copied");
    for path in [&file, &directory] {
        within(with(&["inspect"], path)).ends(0, &[]);
        within(with(&["generate", "Once", "-n", "1", "-m"], path)).ends(0, &[]);
    }
    let copy = odd(b"copy\xff");
    within({
        let mut command = with(&["convert"], &file);
        command.arg(&copy);
        command
    })
    .ends(0, &[]);
    within(with(&["inspect"], &copy)).ends(0, &[]);

    // From the environment; and values that are no paths are refused.
    let mut command = wf_run(&["serve", "--port", "0", "-t", "1", "--print-config"]);
    within({
        command.env("MODEL_PATH", &file);
        command
    })
    .ends(0, &[]);
    for variable in ["WF_PORT", "WF_CORS_ORIGIN", "WF_LOG", "WF_ISA"] {
        let mut command = wf_run(&["serve", "--port", "0"]);
        command.env(variable, OsStr::from_bytes(b"\xff"));
        within(command).ends(2, &[variable]);
    }
    let missing = odd(b"missing\xff");
    within(with(&["inspect"], &missing)).ends(1, &["no file or directory", "missing"]);
}

#[test]
fn empty_variables_are_unset() {
    let mut command = wf_run(&["generate", "Once", "-n", "1"]);
    command.env("WF_ISA", "").env("MODEL_PATH", "").env("WF_LOG", "").env("HF_HOME", "");
    within(command).ends(0, &[]);
    let mut command = wf_run(&["serve", "--port", "0", "-t", "1"]);
    for name in ["WF_ISA", "WF_LOG", "WF_CONFIG", "WF_HOST", "WF_THREADS", "WF_API_KEY"] {
        command.env(name, "");
    }
    let (mut child, _) = start(command);
    child.kill().expect("killed");
    let mut log = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut log).expect("text");
    assert!(!log.contains("WF_"), "{log}");
    child.wait().expect("ended");
}

#[test]
fn a_limit_on_file_sizes_leaves_nothing_behind() {
    let folder = folder();
    let script = "ulimit -f 64 && exec \"$0\" convert \"$1\" \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_wf-run"), MODEL]);
    command.arg(folder.path().join("out.safetensors"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    within(command).ends(1, &["out.safetensors", "File too large"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_model_that_is_cut_short_in_use_ends_the_program_with_its_name() {
    let folder = folder();
    let path = folder.path().join("in-use.safetensors");
    fs::copy(MODEL, &path).expect("copied");
    let server = Server::slow(&["--weights", "mapped", "-m", path.to_str().expect("UTF-8")]);
    let mut stream = server.open(
        "POST",
        "/v1/chat/completions",
        "content-type: application/json\r\n",
        &ask("Hello!", json!({"stream": true, "max_tokens": 1000})).to_string(),
    );
    stream.read_exact(&mut [0; 300]).expect("it generates");
    File::options().write(true).open(&path).expect("there").set_len(4096).expect("cut");
    server.ended().ends(1, &["error: ", "in-use.safetensors was cut short", "restore the file"]);
}

#[test]
fn a_bus_error_that_no_file_causes_stays_one() {
    let (mut child, _) = start(wf_run(&["serve", "--port", "0", "-t", "1"]));
    let (id, begin) = (child.id().to_string(), Instant::now());
    // The first one may go to the handler of the standard library, which ignores it once.
    while child.try_wait().expect("waits").is_none() {
        assert!(begin.elapsed() < Duration::from_secs(30), "it ignores SIGBUS");
        let _ = Command::new("kill").args(["-BUS", &id]).stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = child.wait().expect("ended");
    assert!(status.signal().is_some() && status.code().is_none(), "{status}");
}
