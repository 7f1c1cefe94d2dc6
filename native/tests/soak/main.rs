//! Soak test: random requests, disconnects and invalid bodies. `WF_SOAK_SECONDS` sets the duration
//! (120), `WF_SOAK_SEED` the seed (1).
#![cfg(target_os = "linux")]

mod asks;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod memory;
mod tally;

use clients::Seen;
use common::server::{Reply, Server};
use fastrand::Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tally::Tally;

/// Number of concurrent clients: more than may run and wait.
const CLIENTS: usize = 16;
/// Few sequences and pages, so that there is a queue.
const SIZES: [&str; 8] =
    ["--max-sequences", "4", "--max-waiting", "24", "--kv-tokens", "2048", "--max-body", "100000"];
/// One response in this many is compared with an idle server's.
const SAMPLE: u64 = 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().expect("a number"))
}

#[test]
#[ignore = "takes minutes"]
fn soak() {
    let (seconds, seed) = (number("WF_SOAK_SECONDS", 120), number("WF_SOAK_SEED", 1));
    let server = Server::start(&SIZES);
    let (begin, time) = (Instant::now(), Duration::from_secs(seconds));
    let requests = AtomicU64::new(0);
    let (tally, memory) = thread::scope(|scope| {
        let memory = scope.spawn(|| memory::watch(&server, time));
        let client = || {
            let mut tally = Tally::default();
            while begin.elapsed() < time {
                let request = requests.fetch_add(1, Ordering::Relaxed);
                one(&server, seed, request, &mut tally);
            }
            tally
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let tallies = clients.into_iter().map(|c| c.join().expect("a client"));
        let tally = tallies.fold(Tally::default(), Tally::and);
        (tally, memory.join().expect("memory is read"))
    });
    server.idle();
    println!("{tally}{memory}");
    tally.check(&server.get("/metrics").is(200).body);
    memory.check();
    server.terminate();
    let log = server.ended().ends(0, &[]).stderr;
    for word in ["panic", "ERROR"] {
        assert!(!log.contains(word), "{log}");
    }
    same_alone(seed, tally);
}

/// Returns request number `number` and the random generator of its client.
fn request(seed: u64, number: u64) -> (asks::Ask, Rng) {
    let mut rng = Rng::with_seed(seed ^ (number << 20));
    let ask = asks::ask(&mut rng);
    (ask, rng)
}

fn one(server: &Server, seed: u64, number: u64, tally: &mut Tally) {
    let (ask, mut rng) = request(seed, number);
    if rng.u32(..4) == 0 {
        match clients::misbehave(server, &ask, &mut rng) {
            Seen::Nothing => tally.unread(&ask),
            Seen::Replies(replies) => tally.strange(&ask, &replies),
        }
        return;
    }
    let replies = clients::behave(server, &ask);
    tally.read(&ask, &replies);
    if replies.iter().any(|reply| reply.status == 429) {
        thread::sleep(Duration::from_millis(rng.u64(..50)));
    }
    if ask.kind == asks::Kind::Generation && number.is_multiple_of(SAMPLE) {
        let answered = replies.iter().find(|reply| reply.status == 200);
        tally.samples.extend(answered.map(|reply| (number, texts(reply))));
    }
}

/// Checks that an idle server gives the same responses to the samples.
fn same_alone(seed: u64, tally: Tally) {
    let server = Server::start(&SIZES);
    assert!(!tally.samples.is_empty(), "there are samples");
    for (number, texts_then) in tally.samples {
        let (ask, _) = request(seed, number);
        let replies = clients::behave(&server, &ask);
        assert_eq!(replies.len(), 1, "request {number}");
        assert_eq!(texts(&replies[0]), texts_then, "request {number}");
    }
    server.idle();
}

/// Returns the texts of a response, streamed or not.
fn texts(reply: &Reply) -> Vec<String> {
    let streamed = reply.head.contains("text/event-stream");
    let chunks = if streamed { reply.chunks() } else { vec![reply.json()] };
    let mut texts = Vec::new();
    for choice in chunks.iter().flat_map(|c| c["choices"].as_array().expect("an array")) {
        let index = choice["index"].as_u64().expect("a number") as usize;
        texts.resize(texts.len().max(index + 1), String::new());
        let chat = ["delta", "message"].map(|part| &choice[part]["content"]);
        for text in [&choice["text"], chat[0], chat[1]] {
            texts[index] += text.as_str().unwrap_or_default();
        }
    }
    texts
}
