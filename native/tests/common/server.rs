//! A running `wf-run serve` and a client for it.

use super::{Ran, wf_run};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A server on a free port, killed at the end of the test.
pub struct Server {
    pub child: Child,
    pub address: String,
    /// Reads standard error until the server ends.
    log: Option<JoinHandle<String>>,
}

/// Waits until something is done.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Starts `wf-run serve` and returns the child and its address, such as `http://127.0.0.1:1234`.
pub fn start(mut command: Command) -> (Child, String) {
    let mut child = command.spawn().expect("starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on ").expect("an address");
    (child, address.into())
}

/// Opens a connection from this address of the machine itself, with a read timeout of a minute.
pub fn connect_from(from: &str, server: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from: SocketAddr = format!("{from}:0").parse().expect("an address");
    socket.bind(&from.into()).expect("bound");
    let to: SocketAddr = server.parse().expect("an address");
    socket.connect(&to.into()).expect("connects");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    stream
}

/// A response.
pub struct Reply {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: String,
}

impl Reply {
    /// Parses the responses of a closed connection, without interim ones (1xx). The last one may be cut
    /// off.
    pub fn all(mut text: &str) -> Vec<Self> {
        let mut replies = Vec::new();
        while let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
            if let 100..200 = status {
                text = rest;
                continue;
            }
            let (body, after) = body(&head.to_lowercase(), rest);
            replies.push(Self { status, head: head.to_lowercase(), body });
            text = after;
        }
        replies
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// Returns the data of all server-sent events.
    pub fn events(&self) -> Vec<String> {
        let data = |line: &str| line.strip_prefix("data: ").map(Into::into);
        self.body.lines().filter_map(data).collect()
    }

    /// Returns the chunks of a complete stream.
    pub fn chunks(&self) -> Vec<Value> {
        let events = self.events();
        assert_eq!(events.last().map(String::as_str), Some("[DONE]"), "{}", self.body);
        let chunk = |event: &String| serde_json::from_str(event).expect("JSON");
        events[..events.len() - 1].iter().map(chunk).collect()
    }

    /// Returns the text of a streamed chat response.
    pub fn streamed(&self) -> String {
        let text = |chunk: Value| {
            chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_string()
        };
        self.chunks().into_iter().map(text).collect()
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }
}

impl Server {
    pub fn start(args: &[&str]) -> Self {
        Self::with("", "warn", args)
    }

    /// Starts a server whose responses take seconds, for tests that act meanwhile: longer ones than the
    /// model was trained for.
    pub fn slow(args: &[&str]) -> Self {
        Self::with("scalar", "warn", &[&["--context", "2048"], args].concat())
    }

    /// Resident memory in MiB.
    #[cfg(target_os = "linux")]
    pub fn resident_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("the server runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number") / 1024.0
    }

    /// Processor time in seconds.
    #[cfg(target_os = "linux")]
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("the server runs");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        let ticks = fields.split(' ').skip(11).take(2).map(|n| n.parse::<f64>().expect("a number"));
        ticks.sum::<f64>() / 100.0
    }

    /// The heap in use in MiB; zero if the allocator does not count it.
    pub fn heap_mib(&self) -> f64 {
        self.metric("", "wf_heap_bytes") / f64::from(1 << 20)
    }

    /// The value of a metric without labels, asked with these headers.
    pub fn metric(&self, headers: &str, name: &str) -> f64 {
        let metrics = self.send("GET", "/metrics", headers, "").is(200).body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().expect("a number")
    }

    /// Starts a server that logs every request.
    pub fn logging(args: &[&str]) -> Self {
        Self::with("", "info", args)
    }

    fn with(isa: &str, log: &str, args: &[&str]) -> Self {
        let args = [&["serve", "--port", "0", "-t", "1"], args].concat();
        let mut command = wf_run(&args);
        command.env("WF_LOG", log);
        if !isa.is_empty() {
            command.env("WF_ISA", isa);
        }
        Self::of(command)
    }

    /// Starts the server of this command, and waits until it is ready.
    pub fn of(command: Command) -> Self {
        let (mut child, address) = start(command);
        let mut stderr = child.stderr.take().expect("piped");
        // A full pipe would block the server.
        let log = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).expect("text");
            text
        });
        let address = address.strip_prefix("http://").expect("an address").into();
        let server = Self { address, child, log: Some(log) };
        let begin = Instant::now();
        while server.get("/health").status != 200 {
            assert!(begin.elapsed() < Duration::from_secs(60), "the model is loaded in time");
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Opens a connection with a read timeout of a minute.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        stream
    }

    pub fn open(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}"
        );
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").expect("sent");
        stream
    }

    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let mut text = String::new();
        let mut stream = self.open(method, path, headers, body);
        stream.read_to_string(&mut text).expect("a response");
        Reply::all(&text).pop().expect("a response")
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, "content-type: application/json\r\n", &body.to_string())
    }

    pub fn chat(&self, body: &Value) -> Reply {
        self.post("/v1/chat/completions", body)
    }

    /// Waits until no request runs and all pages are free.
    pub fn idle(&self) {
        let begin = Instant::now();
        loop {
            let load = self.get("/v1/loads").json();
            if load["num_running_reqs"] == 0 && load["kv_pages_used"] == 0 {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{load}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("runs").success());
    }

    pub fn ended(mut self) -> Ran {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                break status;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "the server ends");
            thread::sleep(Duration::from_millis(10));
        };
        let mut stdout = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
        let log = self.log.take().expect("not taken yet");
        Ran { code: status.code(), stdout, stderr: log.join().expect("text") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Splits a response's body from the bytes after it. `head` is in lower case.
fn body<'a>(head: &str, rest: &'a str) -> (String, &'a str) {
    if head.contains("transfer-encoding: chunked") {
        return unchunk(rest);
    }
    let length = head.lines().find_map(|l| l.strip_prefix("content-length: "));
    let length = length.map_or(rest.len(), |l| l.parse().expect("a length"));
    let (body, after) = rest.split_at(length.min(rest.len()));
    (body.into(), after)
}

/// Splits the body of a chunked response from the bytes after it.
fn unchunk(mut rest: &str) -> (String, &str) {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        if after.len() < size + 2 {
            return (body + after, "");
        }
        body += &after[..size];
        rest = &after[size + 2..];
        if size == 0 {
            break;
        }
    }
    (body, rest)
}

/// Returns a chat request at temperature 0 with additional fields.
pub fn ask(text: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": text}], "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}
