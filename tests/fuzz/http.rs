//! Fuzzes the server over HTTP: bodies, templates' input and grammars. Each case is a valid body of an
//! endpoint with random changes to its values and then to its bytes.
//!
//! `WF_FUZZ_CASES` sets the number of cases (1,000), `WF_FUZZ_SEED` the seed (1). A case fails if the
//! answer is none, is no JSON, takes longer than 30 s or has a status that blames the server.

#[path = "http/bytes.rs"]
mod bytes;
#[path = "../../native/tests/common/mod.rs"]
mod common;
#[path = "http/seeds.rs"]
mod seeds;
#[path = "http/values.rs"]
mod values;

use common::server::{Reply, Server};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Concurrent clients; the server runs more.
const CLIENTS: u64 = 8;
/// Longest time for an answer.
const LONGEST: Duration = Duration::from_secs(30);
/// Statuses of a server that is well.
const EXPECTED: [u16; 8] = [200, 400, 404, 405, 413, 415, 422, 429];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().expect("a number"))
}

#[test]
fn random_bodies_are_answered_or_refused() {
    let (cases, seed) = (number("WF_FUZZ_CASES", 1000), number("WF_FUZZ_SEED", 1));
    let server = Server::start(&["--request-timeout", "20"]);
    let (next, statuses) = (AtomicU64::new(0), Mutex::new(BTreeMap::<(String, u16), u64>::new()));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = None;
                loop {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= cases {
                        return;
                    }
                    let (path, status) = run(&server, &mut connection, seed, case);
                    *statuses.lock().expect("unlocked").entry((path, status)).or_default() += 1;
                }
            });
        }
    });
    for ((path, status), count) in &*statuses.lock().expect("unlocked") {
        println!("{count:>8} {status} {path}");
    }
    server.idle();
    server.get("/health").is(200);
    #[cfg(unix)]
    {
        server.terminate();
        let log = server.ended().ends(0, &[]).stderr;
        assert!(!log.contains("panicked") && !log.contains("internal error"), "{log}");
    }
}

/// Sends a case and returns its path and the status of the answer.
fn run(
    server: &Server,
    connection: &mut Option<BufReader<TcpStream>>,
    seed: u64,
    case: u64,
) -> (String, u16) {
    let mut rng = Rng::with_seed(seed ^ (case << 20));
    let (path, mut body) = seeds::choose(&mut rng);
    values::values(&mut body, &mut rng);
    let bytes = bytes::bytes(body.to_string().into_bytes(), &mut rng);
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
    let begin = Instant::now();
    let reply = ask(server, connection, path, &bytes)
        .or_else(|| ask(server, connection, path, &bytes))
        .unwrap_or_else(|| panic!("case {case}: no answer from {path} to {text}"));
    let time = begin.elapsed();
    let Reply { status, body, head } = &reply;
    assert!(time < LONGEST, "case {case}: {time:?} for {path} {text}");
    assert!(EXPECTED.contains(status), "case {case}: {status} {body} from {path} to {text}");
    let stream = head.contains("text/event-stream");
    let json = serde_json::from_str::<serde_json::Value>(body);
    assert!(stream || json.is_ok(), "case {case}: {body} from {path} to {text}");
    (path.into(), *status)
}

/// Sends a body over a connection that is kept open. Returns `None` if the connection has ended.
fn ask(
    server: &Server,
    connection: &mut Option<BufReader<TcpStream>>,
    path: &str,
    body: &[u8],
) -> Option<Reply> {
    let stream = connection.get_or_insert_with(|| BufReader::new(server.connect()));
    let reply = exchange(stream, path, body);
    let closes = reply.as_ref().is_none_or(|reply| reply.head.contains("connection: close"));
    if closes {
        *connection = None;
    }
    reply
}

fn exchange(stream: &mut BufReader<TcpStream>, path: &str, body: &[u8]) -> Option<Reply> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // The answer to a body that is too large comes before all of it is read.
    let _ = stream.get_mut().write_all(&[head.as_bytes(), body].concat());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let mut body = Vec::new();
    if let Some(length) = head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        body.resize(length.parse().ok()?, 0);
        stream.read_exact(&mut body).ok()?;
    } else {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Reply { status, head, body: String::from_utf8_lossy(&body).into() })
}
