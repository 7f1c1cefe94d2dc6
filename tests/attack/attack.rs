//! One hostile client next to honest streams: what the honest ones notice, and what is left afterwards.
//!
//! `WF_ATTACK_SECONDS` sets the duration of the attack (30), `WF_ATTACK_SEED` the seed (1),
//! `WF_ATTACK_GAP_MS` how much longer than without it a gap between two tokens may be (250), and
//! `WF_ATTACK_WAIT_MS` how much longer than next to plain streams a short request may take (3000; a quiet
//! machine keeps 1000).
#![cfg(target_os = "linux")]

#[path = "../../native/tests/common/mod.rs"]
mod common;
mod honest;
mod hostile;
mod watch;

use common::server::{Server, ask};
use honest::Honest;
use hostile::Tally;
use hostile::shapes::MODELS;
use serde_json::json;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use watch::connections;

/// Streams of honest clients.
const STREAMS: usize = 8;
/// Concurrent activities of the hostile client.
const ACTIVITIES: usize = 24;
/// Positions of the server's KV cache.
const KV_TOKENS: usize = 16384;
/// Growth of the server's memory that is accepted during the attack and 10 s after it, in MiB.
const GROWTH: [f64; 2] = [500.0, 100.0];
/// Most MiB of the heap that may be in use afterwards more than before: what a client may keep.
const HEAP_GROWTH: f64 = 20.0;
/// Time after which nothing of the attack may be left.
const AFTERMATH: Duration = Duration::from_secs(10);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().expect("a number"))
}

/// Uses the whole KV cache once. Its memory is the operator's to give and stays in use, whoever fills it.
fn fill_cache(server: &Server) {
    for number in 0..2 * KV_TOKENS / 1024 {
        let prompt: Vec<usize> = (0..1024).map(|i| 5 + (i * 7 + number * 31) % 3000).collect();
        let body = json!({"prompt": prompt, "max_tokens": 1});
        server.post("/v1/completions", &body).is(200);
    }
}

/// Runs the honest streams for `time` and samples the server's memory; `attacks` run meanwhile.
fn run(
    server: &Server,
    streams: &[Honest],
    time: Duration,
    attacks: impl FnOnce(&AtomicBool) -> Tally + Send,
) -> (honest::Seen, Tally, f64) {
    let ended = &AtomicBool::new(false);
    thread::scope(|scope| {
        let honest: Vec<_> =
            streams.iter().map(|stream| scope.spawn(|| stream.repeat(server, ended))).collect();
        let attacks = scope.spawn(move || attacks(ended));
        let (begin, mut peak) = (Instant::now(), 0f64);
        while begin.elapsed() < time {
            peak = peak.max(server.resident_mib());
            thread::sleep(Duration::from_millis(50));
        }
        ended.store(true, Ordering::Relaxed);
        let tally = attacks.join().expect("the hostile client ends");
        let seen = honest.into_iter().map(|stream| stream.join().expect("a stream ends"));
        (seen.fold(honest::Seen::default(), honest::Seen::and), tally, peak)
    })
}

/// Waits until nothing of the attack is left, for at most [`AFTERMATH`], and says what is.
fn settle(server: &Server, idle: f64) -> (Duration, String, f64) {
    let begin = Instant::now();
    loop {
        let load = server.get("/v1/loads").json();
        let (running, waiting) = (&load["num_running_reqs"], &load["num_waiting_reqs"]);
        let open = connections(server, "127.0.0.2");
        let used = server.cpu_seconds();
        thread::sleep(Duration::from_millis(500));
        // A compilation would use a core.
        let busy = (server.cpu_seconds() - used) / 0.5;
        let memory = server.resident_mib() - idle;
        let left = format!(
            "{open} connections, {running} running, {waiting} waiting, {:.0} % of a core, {memory:+.0} MiB",
            busy * 100.0
        );
        let done = running == 0 && waiting == 0 && open == 0 && busy < 0.3 && memory <= GROWTH[1];
        if done || begin.elapsed() > AFTERMATH {
            return (begin.elapsed(), if done { String::new() } else { left }, memory);
        }
    }
}

/// Honest streams of one model next to a client that loads and unloads it and others, of which memory holds
/// two: every answer comes, whole and with its text.
#[test]
#[ignore = "takes a minute"]
fn a_hostile_client_loads_and_unloads() {
    let (seconds, seed) = (number("WF_ATTACK_SECONDS", 30) / 2, number("WF_ATTACK_SEED", 1));
    let folder = tempfile::tempdir().expect("a folder");
    // Its calls are XML, whose values are read by the schemas of their parameters.
    let template = "{#- <tool_call><function=f><parameter=p> -#}\
        {% for m in messages %}<|bos|><|user|>{{ m.content }}<|bot|>{% endfor %}";
    for name in MODELS {
        let file = folder.path().join(format!("{name}.safetensors"));
        common::model::write_with(&file, template, &[]);
    }
    let models = folder.path().to_str().expect("UTF-8");
    let server = Server::start(&["--models", models, "--memory-limit", "64M", "-c", "1024"]);
    let streams: Vec<Honest> =
        (0..4).map(|number| Honest::alone(&server, number, MODELS[0])).collect();
    let attack = |ended: &AtomicBool| hostile::load(&server, seed, 12, ended);
    let (seen, tally, _) = run(&server, &streams, Duration::from_secs(seconds), attack);
    println!("{tally}\n| honest streams | {seen} |");
    assert!(seen.answers > 0 && seen.wrong.is_empty(), "{:?}", seen.wrong);
    tally.check();
    server.terminate();
    let log = server.ended().ends(0, &[]).stderr;
    assert!(!log.contains("panicked") && !log.contains("internal error"), "{log}");
}

/// The longest times of a short request and of `/health` while others use the server.
#[derive(Default)]
struct Waits {
    answer: Duration,
    health: Duration,
    /// Statuses other than 200.
    refused: Vec<u16>,
}

impl Waits {
    /// Asks until `time` is over, then ends the others.
    fn measure(server: &Server, time: Duration, ended: &AtomicBool) -> Self {
        let (begin, mut waits) = (Instant::now(), Self::default());
        let body = ask("Hi!", json!({"max_tokens": 20}));
        while begin.elapsed() < time {
            let asked = Instant::now();
            let answer = server.post("/v1/chat/completions", &body);
            waits.answer = waits.answer.max(asked.elapsed());
            let asked = Instant::now();
            let health = server.get("/health");
            waits.health = waits.health.max(asked.elapsed());
            waits.refused.extend([answer.status, health.status].iter().filter(|s| **s != 200));
            thread::sleep(Duration::from_millis(20));
        }
        ended.store(true, Ordering::Relaxed);
        waits
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0?} | {:.0?}", self.answer, self.health)
    }
}

/// One client with ten connections: another one's short requests take about as long as next to ten streams.
#[test]
#[ignore = "takes half a minute"]
fn ten_hostile_connections_delay_others_little() {
    let time = Duration::from_secs(number("WF_ATTACK_SECONDS", 30) / 3);
    let (seed, allowed) = (number("WF_ATTACK_SEED", 1), number("WF_ATTACK_WAIT_MS", 3000));
    watch::raise_file_limit();
    let server = Server::start(&["-c", "2048", "--kv-tokens", &KV_TOKENS.to_string()]);
    let streams: Vec<Honest> =
        (0..10).map(|number| Honest::alone(&server, number, "default")).collect();
    fill_cache(&server);
    let idle = server.resident_mib();
    let ended = &AtomicBool::new(false);
    let next_to_streams = thread::scope(|scope| {
        streams.iter().for_each(|stream| drop(scope.spawn(|| stream.repeat(&server, ended))));
        Waits::measure(&server, time, ended)
    });
    let ended = &AtomicBool::new(false);
    let (next_to_attack, peak) = thread::scope(|scope| {
        scope.spawn(|| hostile::attack(&server, seed, 10, ended));
        let memory = scope.spawn(|| {
            let mut peak = idle;
            while !ended.load(Ordering::Relaxed) {
                peak = peak.max(server.resident_mib());
                thread::sleep(Duration::from_millis(50));
            }
            peak
        });
        let waits = Waits::measure(&server, time, ended);
        (waits, memory.join().expect("the sampler ends"))
    });
    println!("| longest wait | 20 tokens | /health |\n| --- | --- | --- |");
    println!("| next to ten streams | {next_to_streams} |");
    println!("| next to ten hostile connections | {next_to_attack} |");
    println!("| memory | idle {idle:.0} MiB | peak {:+.0} MiB |", peak - idle);
    assert!(next_to_attack.refused.is_empty(), "{:?}", next_to_attack.refused);
    let more = next_to_attack.answer.saturating_sub(next_to_streams.answer);
    assert!(more <= Duration::from_millis(allowed), "20 tokens took {more:?} longer");
    let health = next_to_attack.health;
    assert!(health <= Duration::from_millis(allowed / 3), "/health took {health:?}");
    assert!(peak - idle <= 400.0, "memory grew by {:.0} MiB", peak - idle);
}

#[test]
#[ignore = "takes a minute"]
fn a_hostile_client_next_to_honest_streams() {
    let seconds = number("WF_ATTACK_SECONDS", 30);
    let (seed, allowed) = (number("WF_ATTACK_SEED", 1), number("WF_ATTACK_GAP_MS", 250));
    watch::raise_file_limit();
    let server = Server::start(&["-c", "2048", "--kv-tokens", &KV_TOKENS.to_string()]);
    let streams: Vec<Honest> =
        (0..STREAMS).map(|number| Honest::alone(&server, number, "default")).collect();
    fill_cache(&server);
    // The grammar compiler's tables stay.
    let digits = json!({"guided_regex": "[0-9]+", "max_tokens": 2});
    server.chat(&ask("Hi!", digits)).is(200);
    let alone = Duration::from_secs((seconds / 4).max(6));
    let (before, _, _) = run(&server, &streams, alone, |_| Tally::default());
    server.idle();
    let (idle, heap) = (server.resident_mib(), server.heap_mib());
    let attack = |ended: &AtomicBool| hostile::attack(&server, seed, ACTIVITIES, ended);
    let (during, tally, peak) = run(&server, &streams, Duration::from_secs(seconds), attack);
    let (settled, left, growth) = settle(&server, idle);
    println!("{tally}");
    println!("| honest streams | answers | tokens | 99 % of gaps | largest gap |");
    println!("| --- | --- | --- | --- | --- |");
    println!("| alone | {before} |");
    println!("| next to the attack | {during} |");
    println!(
        "| memory | idle {idle:.0} MiB | peak {:+.0} MiB | afterwards {growth:+.0} MiB, heap {:+.0} MiB |",
        peak - idle,
        server.heap_mib() - heap
    );
    println!("| nothing left after | {settled:.1?} | {left} |");
    assert!(during.answers > 0 && during.wrong.is_empty(), "{:?}", during.wrong);
    let more = during.largest_gap().saturating_sub(before.largest_gap());
    assert!(more <= Duration::from_millis(allowed), "a gap is {more:?} longer");
    assert!(peak - idle <= GROWTH[0], "memory grew by {:.0} MiB", peak - idle);
    assert!(left.is_empty(), "after {settled:?}: {left}");
    let kept = server.heap_mib() - heap;
    assert!(kept <= HEAP_GROWTH, "the heap keeps {kept:.0} MiB");
    tally.check();
    server.terminate();
    let log = server.ended().ends(0, &[]).stderr;
    for word in ["panicked", "internal error"] {
        assert!(!log.contains(word), "{log}");
    }
}
