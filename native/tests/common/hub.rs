//! A local Hugging Face hub with the part of the protocol that the client uses.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Commit of every revision.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Bytes of a piece of a download.
const PIECE: usize = 256 << 10;

/// Behavior of the hub and a log of its requests.
#[derive(Default)]
pub struct State {
    /// Files by repository.
    pub repos: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Numbers of bytes after which to cut the connection, one per download, last first.
    pub cuts: Vec<usize>,
    /// Ignore `Range` in downloads.
    pub ignores_range: bool,
    /// Know GET alone.
    pub get_only: bool,
    /// Token that requests need.
    pub token: Option<String>,
    /// Headers that describe a file, by its name, instead of the honest ones.
    pub described: BTreeMap<String, String>,
    /// Contents that downloads send instead, by the file's name.
    pub forged: BTreeMap<String, Vec<u8>>,
    /// Whole responses to requests whose method and path contain this, first match first.
    pub scripts: Vec<(String, Vec<u8>)>,
    /// Time between pieces of a download.
    pub pause: Option<Duration>,
    /// Path and range of every request; those without a body begin with their method.
    pub log: Vec<String>,
    /// Tokens that arrived.
    pub tokens: Vec<String>,
}

/// A running hub.
pub struct Hub {
    state: Arc<Mutex<State>>,
    pub address: String,
}

impl Hub {
    /// Starts a hub that ends with the test process.
    pub fn start(state: State) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        Self { state, address }
    }

    /// Makes a command use this hub, with its cache in `home`.
    pub fn environment<'a>(&self, command: &'a mut Command, home: &Path) -> &'a mut Command {
        command.env("HF_ENDPOINT", &self.address).env("HF_HOME", home)
    }

    /// Changes the hub's state.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("no panic"));
    }

    /// Takes the log of requests.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().expect("no panic").log)
    }

    /// Takes the tokens that arrived.
    pub fn tokens(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().expect("no panic").tokens)
    }
}

/// A request, as far as the hub looks at it.
#[derive(Default)]
struct Request {
    method: String,
    path: String,
    range: Option<String>,
    token: Option<String>,
}

impl Request {
    fn read(stream: &TcpStream) -> std::io::Result<Self> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split(' ').map(Into::into);
        let mut request = Self {
            method: words.next().unwrap_or_default(),
            path: words.next().unwrap_or_default(),
            ..Self::default()
        };
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(": ") else { return Ok(request) };
            let after = |prefix| Some(value.trim_start_matches(prefix).to_string());
            match name.to_lowercase().as_str() {
                "range" => request.range = after("bytes="),
                "authorization" => request.token = after("Bearer "),
                _ => {}
            }
        }
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let Request { method, path, mut range, token } = Request::read(&stream)?;
    let mut state = state.lock().expect("no panic");
    let is_head = method == "HEAD";
    let name = if is_head { format!("HEAD {path}") } else { path.clone() };
    state.log.push(format!("{name} {}", range.as_deref().unwrap_or("-")));
    state.tokens.extend(token.clone());
    let line = format!("{method} {path}");
    if let Some((_, script)) = state.scripts.iter().find(|(part, _)| line.contains(part)) {
        let script = script.clone();
        drop(state);
        (&stream).write_all(&script)?;
        if script.is_empty() {
            thread::sleep(Duration::from_secs(60)); // silent, and open
        }
        return Ok(());
    }
    if is_head && state.get_only {
        return head(&stream, "501 Not Implemented", 0, "");
    }
    if state.token.is_some() && state.token != token {
        return head(&stream, "401 Unauthorized", 0, "");
    }
    let Some(body) = answer(&state, &path) else { return head(&stream, "404 Not Found", 0, "") };
    let file = path.rsplit('/').next().unwrap_or_default();
    let honest = format!("ETag: \"{}\"\r\nX-Repo-Commit: {COMMIT}\r\n", etag(&body));
    let described = state.described.get(file).cloned().unwrap_or(honest);
    if is_head {
        return head(&stream, "200 OK", body.len(), &described);
    }
    let body = state.forged.get(file).cloned().unwrap_or(body);
    if state.ignores_range {
        range = None;
    }
    let (first, last) = match range.as_deref().and_then(|r| r.split_once('-')) {
        Some((first, last)) => {
            (first.parse().unwrap_or(0), last.parse().unwrap_or(body.len().saturating_sub(1)))
        }
        None => (0, body.len().saturating_sub(1)),
    };
    if first > last {
        return head(&stream, "416 Range Not Satisfiable", 0, "");
    }
    let part = &body[first..(last + 1).min(body.len())];
    let is_file = path.contains("/resolve/") && range.as_deref() != Some("0-0");
    let cut = if is_file { state.cuts.pop() } else { None };
    let pause = state.pause;
    drop(state);
    let (status, extra) = match range {
        Some(_) => (
            "206 Partial Content",
            format!("{described}Content-Range: bytes {first}-{last}/{}\r\n", body.len()),
        ),
        None => ("200 OK", described),
    };
    head(&stream, status, part.len(), &extra)?;
    for piece in part[..cut.unwrap_or(part.len()).min(part.len())].chunks(PIECE) {
        (&stream).write_all(piece)?;
        pause.into_iter().for_each(thread::sleep);
    }
    Ok(())
}

/// Returns the file at a path, or the list of a repository's files.
fn answer(state: &State, path: &str) -> Option<Vec<u8>> {
    if let Some(rest) = path.strip_prefix("/api/models/") {
        let (repo, _) = rest.split_once("/revision/")?;
        let files = state.repos.get(repo)?.keys();
        let siblings: Vec<_> = files.map(|f| serde_json::json!({"rfilename": f})).collect();
        let info = serde_json::json!({"sha": COMMIT, "siblings": siblings});
        return Some(info.to_string().into_bytes());
    }
    let (repo, rest) = path.trim_start_matches('/').split_once("/resolve/")?;
    let (_, file) = rest.split_once('/')?;
    state.repos.get(repo)?.get(file).cloned()
}

fn head(mut stream: &TcpStream, status: &str, length: usize, extra: &str) -> std::io::Result<()> {
    let fixed = format!("Content-Length: {length}\r\nConnection: close\r\n");
    stream.write_all(format!("HTTP/1.1 {status}\r\n{fixed}{extra}\r\n").as_bytes())
}

/// Returns a hash of the contents.
fn etag(body: &[u8]) -> String {
    let sum = body.iter().fold(14_695_981_039_346_656_037u64, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(1_099_511_628_211)
    });
    format!("{sum:016x}{:08x}", body.len())
}
