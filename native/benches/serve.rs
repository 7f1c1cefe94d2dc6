//! Load on `wf-run serve` over loopback: how throughput grows with the number of streams, how long
//! clients wait, and what HTTP and scheduling cost compared with the forward pass.
//!
//! `cargo bench -p wf-run --bench serve` uses the model inside the program; arguments after `--`
//! go to `wf-run serve`.

#[path = "common/server.rs"]
mod server;

use server::{address, open};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tokens of an answer, and of a long one: what a request costs compared with its tokens counts less there.
const TOKENS: usize = 96;
const LONG: usize = 384;
/// Streams at the same time.
const STREAMS: [usize; 5] = [1, 2, 4, 8, 16];
/// Time for each number of streams.
const TIME: Duration = Duration::from_secs(5);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let mut server = Command::new(env!("CARGO_BIN_EXE_wf-run"))
        .args(["serve", "--port", "0"])
        .args(&args)
        .env("WF_LOG", "warn")
        .stdout(Stdio::piped())
        .spawn()
        .expect("wf-run starts");
    let address = address(&mut server);
    while request(&address, "GET", "/health", "").0 != 200 {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!(
        "| streams | tokens | t/s | × one | TTFT p50 ms | p99 | token p50 ms | p99 | pass share |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut one = None;
    for (streams, length) in STREAMS.map(|streams| (streams, TOKENS)).into_iter().chain([(1, LONG)])
    {
        let before = passes(&address);
        let begin = Instant::now();
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let client = |i| {
                let address = &address;
                scope.spawn(move || {
                    let mut answers = Vec::new();
                    while begin.elapsed() < TIME {
                        answers.push(answer(address, i, length));
                    }
                    answers
                })
            };
            let clients: Vec<_> = (0..streams).map(client).collect();
            clients.into_iter().flat_map(|c| c.join().expect("answers")).collect()
        });
        let seconds = begin.elapsed().as_secs_f64();
        let tokens: usize = answers.iter().map(|a| a.gaps.len() + 1).sum();
        let first: Vec<f64> = answers.iter().map(|a| a.first).collect();
        let gaps: Vec<f64> = answers.iter().flat_map(|a| a.gaps.clone()).collect();
        let rate = tokens as f64 / seconds;
        let share = (passes(&address) - before) / seconds;
        println!(
            "| {streams} | {length} | {rate:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} % |",
            rate / *one.get_or_insert(rate),
            percentile(&first, 0.5),
            percentile(&first, 0.99),
            percentile(&gaps, 0.5),
            percentile(&gaps, 0.99),
            100.0 * share,
        );
    }
    server.kill().expect("was running");
}

/// Latencies that a client measured, in milliseconds.
struct Answer {
    first: f64,
    gaps: Vec<f64>,
}

fn request(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut text = String::new();
    open(address, method, path, body).read_to_string(&mut text).expect("a response");
    (text.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status"), text)
}

/// Seconds that forward passes took so far.
fn passes(address: &str) -> f64 {
    let (_, metrics) = request(address, "GET", "/metrics", "");
    let line = metrics.lines().find_map(|l| l.strip_prefix("wf_pass_seconds_sum "));
    line.expect("the metric").trim().parse().expect("a number")
}

/// One streamed answer of exactly so many tokens.
fn answer(address: &str, client: usize, length: usize) -> Answer {
    let body = format!(
        "{{\"prompt\": \"Once there was a fox named Pip. Day {client} was\", \"temperature\": 0, \
         \"ignore_eos\": true, \"max_tokens\": {length}, \"stream\": true, \"logprobs\": 0, \
         \"decode_mode\": \"ar\"}}"
    );
    let begin = Instant::now();
    let stream = open(address, "POST", "/v1/completions", &body);
    let (mut first, mut last, mut gaps) = (None, begin, Vec::new());
    for line in BufReader::new(stream).lines() {
        let line = line.expect("text");
        if !line.starts_with("data: {") || !line.contains("\"finish_reason\":null") {
            continue;
        }
        let now = Instant::now();
        let gap = 1e3 * (now - last).as_secs_f64();
        match first {
            None => first = Some(gap),
            Some(_) => gaps.push(gap),
        }
        last = now;
    }
    assert_eq!(gaps.len() + 1, length, "every token is a chunk");
    Answer { first: first.expect("a token"), gaps }
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1]
}
