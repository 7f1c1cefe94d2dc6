//! Limits of memory: of a container, of the shell, and of the key/value pool that waits to be used.
#![cfg(target_os = "linux")]

use crate::common::server::{Server, start};
use crate::common::{run, wf_run};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Bytes of a line such as `VmRSS:  123 kB`.
fn status(child: &Child, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let value = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    let kilobytes = value.trim().trim_end_matches("kB").trim();
    kilobytes.parse::<u64>().expect("a number") * 1024
}

fn inspect(args: &[&str]) -> Value {
    let ran = run(&[&["inspect", "--json"], args].concat()).ends(0, &[]);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn an_idle_server_takes_memory_for_weights_and_tokenizer_whatever_the_context() {
    let memory = &inspect(&["--context", "4096"])["memory"];
    let number = |key: &str| memory[key].as_u64().expect("a number");
    let pool = 1536 << 20;
    let tokens = (pool / (number("kv_cache") / 4096)).to_string();
    let server = Server::start(&["--kv-tokens", &tokens]);
    let idle = status(&server.child, "VmRSS:");
    let most = number("weights") + number("tokenizer") + 100_000_000;
    assert!(idle <= most, "{idle} bytes, not {most}, for a pool of {pool}");
    // Memory comes when it is used.
    let body = json!({"prompt": "Once upon a time", "max_tokens": 64, "ignore_eos": true});
    let headers = "content-type: application/json\r\n";
    server.send("POST", "/v1/completions", headers, &body.to_string()).is(200);
    let used = status(&server.child, "VmRSS:");
    assert!(used <= most, "{used} bytes after a short text");
}

#[test]
fn a_pool_that_does_not_fit_is_refused_with_numbers() {
    let words =
        ["not enough memory", "a KV cache of", "positions takes", "are left", "8-bit KV type"];
    let more = ["serve", "--port", "0", "--kv-tokens", "4000000000"];
    run(&more).ends(1, &words);
}

/// Runs `wf-run` with these arguments by a shell that runs `before` first.
fn after(before: &str, args: &[&str]) -> Command {
    let command = wf_run(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before} && exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

/// Starts a server by `after`, and lets it answer.
fn serves(before: &str) {
    // By default they would share 768 MB.
    let args = ["serve", "--port", "0", "-t", "1", "--max-sequences", "64"];
    let (mut child, address) = start(after(before, &args));
    let address = address.strip_prefix("http://").expect("an address");
    let mut ready = false;
    for _ in 0..600 {
        if child.try_wait().expect("known").is_some() {
            break;
        }
        ready = get(address).is_some_and(|reply| reply.starts_with("HTTP/1.1 200"));
        if ready {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let _ = child.kill();
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    let code = child.wait().expect("it ends");
    assert!(ready, "{before}: {code}: {stderr}");
}

/// Returns the response of `/health`.
fn get(address: &str) -> Option<String> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn the_default_pool_follows_a_limit_of_address_space() {
    // The threads' stacks and the allocator's arenas take address space, too.
    serves("ulimit -v 600000");
}

/// A control group of 150 MB; removed at the end.
struct Group(PathBuf);

impl Group {
    /// Returns `None` where none can be made: without root, or without the controller.
    fn new() -> Option<Self> {
        let name = format!("wf-run-test-{}", std::process::id());
        for (top, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let group = Self(Path::new(top).join(&name));
            let made = fs::create_dir(&group.0).is_ok();
            if made && fs::write(group.0.join(limit), "150000000").is_ok() {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_server_starts_in_a_container_of_150_mb() {
    let Some(group) = Group::new() else {
        eprintln!("skipped: this user cannot make control groups");
        return;
    };
    let enter = format!("echo $$ > {}/cgroup.procs", group.0.display());
    serves(&enter);
    // What does not fit is said; nothing is killed.
    let ran = after(&enter, &["serve", "--port", "0", "--kv-tokens", "1000000"]).output();
    let ran: crate::common::Ran = ran.expect("it runs").into();
    ran.ends(1, &["not enough memory", "the container's limit (cgroup) of 149 MB"]);
}
