//! The hostile client: random mixtures of everything that once hurt a server, from 127.0.0.2.

mod bodies;
pub mod shapes;
mod transport;

use crate::common::server::{Reply, Server};
use fastrand::Rng;
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time that one activity waits for the server.
const PATIENCE: Duration = Duration::from_secs(5);

/// An activity: its name, and a function that returns the status of an answer, or 0 for none.
type Activity = (&'static str, fn(&Attacker, &mut Rng) -> u16);

/// All activities.
const ACTIVITIES: [Activity; 29] = [
    ("large bodies", bodies::large),
    ("grammars that grow", bodies::growing_grammar),
    ("eight outputs with a regular expression", bodies::many_constrained),
    ("a forced tool with a heavy schema", bodies::forced_tool),
    ("schemas that refer to themselves", bodies::recursive_schema),
    ("endless answers, eight at a time", bodies::endless),
    ("long prompts", bodies::long_prompt),
    ("all log-probabilities", bodies::scored),
    ("2,048 embeddings", bodies::embeddings),
    ("cache salts", bodies::salts),
    ("logit_bias of all tokens", bodies::biases),
    ("control tokens in messages", bodies::control_tokens),
    ("odd conversations", bodies::odd_messages),
    ("wrong types", bodies::wrong_types),
    ("idle connections", transport::idle),
    ("slow bodies", transport::slow_body),
    ("answers that nobody reads", transport::unread),
    ("clients that leave", transport::leave),
    ("half-closed clients", transport::half_closed),
    ("noise instead of HTTP", transport::noise),
    ("foreign web pages", transport::web_page),
    ("schemas of hostile shape", shapes::schemas),
    ("grammars of hostile shape", shapes::grammars),
    ("regular expressions of hostile shape", shapes::regexes),
    ("ambiguous grammars", shapes::ambiguous),
    ("answers that are dear to format", shapes::formatters),
    ("continuations of large responses", shapes::continuations),
    ("loads and unloads", shapes::loads),
    ("slow readers", shapes::slow_reader),
];

/// The hostile client.
pub struct Attacker {
    address: String,
    /// Large bodies, made once: this process must leave the processor to the server.
    large: Vec<(&'static str, String)>,
}

/// Answers by activity and status.
#[derive(Default)]
pub struct Tally(BTreeMap<&'static str, BTreeMap<u16, usize>>);

/// Activities against a server of several models.
const LOADS: [Activity; 4] = [
    ("loads and unloads", shapes::loads),
    ("tools whose parameters share their values", shapes::shared_values),
    ("slow readers of models that go", shapes::slow_reader_of_any),
    ("idle connections", transport::idle),
];

/// Attacks a server of one model until `ended`.
pub fn attack(server: &Server, seed: u64, count: usize, ended: &AtomicBool) -> Tally {
    attack_with(&ACTIVITIES, server, (seed, count), ended)
}

/// Attacks a server of several models until `ended`.
pub fn load(server: &Server, seed: u64, count: usize, ended: &AtomicBool) -> Tally {
    attack_with(&LOADS, server, (seed, count), ended)
}

/// So many threads take one activity after the other.
fn attack_with(
    activities: &[Activity],
    server: &Server,
    (seed, count): (u64, usize),
    ended: &AtomicBool,
) -> Tally {
    let attacker =
        Attacker { address: server.address.clone(), large: crate::common::bodies::large() };
    let number = AtomicU64::new(0);
    let act = || {
        let mut tally = Tally::default();
        while !ended.load(Ordering::Relaxed) {
            let number = number.fetch_add(1, Ordering::Relaxed);
            // Each activity comes up as often as the others.
            let (name, act) = activities[number as usize % activities.len()];
            let mut rng = Rng::with_seed(seed ^ (number << 20));
            let status = act(&attacker, &mut rng);
            *tally.0.entry(name).or_default().entry(status).or_default() += 1;
            thread::sleep(Duration::from_millis(rng.u64(..40)));
        }
        tally
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(act)).collect();
        let tallies = threads.into_iter().map(|thread| thread.join().expect("it ends"));
        tallies.fold(Tally::default(), Tally::and)
    })
}

impl Attacker {
    /// Opens a connection from 127.0.0.2.
    fn connect(&self) -> Option<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
        let from: SocketAddr = "127.0.0.2:0".parse().expect("an address");
        socket.bind(&from.into()).ok()?;
        let to: SocketAddr = self.address.parse().expect("an address");
        socket.connect(&to.into()).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        socket.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(socket.into())
    }

    /// Opens a connection and sends bytes; the server may close it at any time.
    fn send(&self, bytes: &[u8]) -> Option<TcpStream> {
        let mut stream = self.connect()?;
        let _ = stream.write_all(bytes);
        Some(stream)
    }

    /// Sends a body and waits for the answer.
    fn post(&self, path: &str, body: &str) -> u16 {
        self.send(request(path, "", body).as_bytes()).map_or(0, status)
    }
}

/// Returns the text of a request that closes its connection.
fn request(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// Reads an answer and returns its status, or 0 if there is none in time.
fn status(mut stream: TcpStream) -> u16 {
    let (begin, mut text, mut buffer) = (Instant::now(), Vec::new(), [0; 65536]);
    // A stream that always has something to say would never end.
    while begin.elapsed() < PATIENCE
        && let Ok(count @ 1..) = stream.read(&mut buffer)
    {
        // The beginning is enough; the rest is read and forgotten.
        text.extend_from_slice(&buffer[..count.min(4096usize.saturating_sub(text.len()))]);
    }
    Reply::all(&String::from_utf8_lossy(&text)).first().map_or(0, |reply| reply.status)
}

impl Tally {
    fn and(mut self, other: Self) -> Self {
        for (name, statuses) in other.0 {
            for (status, count) in statuses {
                *self.0.entry(name).or_default().entry(status).or_default() += count;
            }
        }
        self
    }

    /// Checks that no request made the server fail.
    pub fn check(&self) {
        for (name, statuses) in &self.0 {
            let failed = statuses.keys().find(|status| matches!(status, 500 | 502));
            assert!(failed.is_none(), "{name}: {statuses:?}");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| the hostile client | times | statuses (0: no answer in {PATIENCE:?}) |")?;
        writeln!(f, "| --- | --- | --- |")?;
        for (name, statuses) in &self.0 {
            let all: usize = statuses.values().sum();
            let each: Vec<String> = statuses.iter().map(|(s, n)| format!("{s}: {n}")).collect();
            writeln!(f, "| {name} | {all} | {} |", each.join(", "))?;
        }
        Ok(())
    }
}
