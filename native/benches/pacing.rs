//! Streams next to a long prompt: how long they wait between tokens, and what chunking by time costs.
//!
//! `cargo bench -p wf-run --bench pacing` measures streams of a model with the shape of BitNet b1.58 2B
//! next to a prompt of 8,000 tokens, without a target and with one of 250 ms. Arguments after `--`:
//! milliseconds, number of streams, tokens of the prompt, then arguments of `wf-run serve`.

#[path = "common/server.rs"]
mod server;

use server::{address, open};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time of the streams before the prompt arrives.
const BEFORE: Duration = Duration::from_secs(5);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number =
        |at: usize, default| args.get(at).map_or(default, |n| n.parse().expect("a number"));
    let (target, streams, prompt) = (number(0, 250), number(1, 4), number(2, 8000));
    println!(
        "| target ms | gap p50 ms | p99 | largest | prompt s | tokens/s, prompt and answers |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for target in [0, target] {
        measure(target, streams, prompt, args.get(3..).unwrap_or(&[]));
    }
}

/// Prints the row of a target.
fn measure(target: usize, streams: usize, prompt: usize, args: &[String]) {
    let target = target.to_string();
    let context = (prompt + 4096).to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_wf-run"));
    command.args(["serve", "--port", "0", "--target-token-ms", &target, "--context", &context]);
    if args.is_empty() {
        command.args(["--synthetic", "bitnet-2b"]);
    }
    let mut server =
        command.args(args).env("WF_LOG", "error").stdout(Stdio::piped()).spawn().expect("starts");
    let address = address(&mut server);
    while !request(&address, "GET", "/health", "").starts_with("HTTP/1.1 200") {
        thread::sleep(Duration::from_millis(50));
    }
    let done = AtomicBool::new(false);
    let (seconds, gaps) = thread::scope(|scope| {
        let (address, done) = (&address, &done);
        let clients: Vec<_> =
            (0..streams).map(|i| scope.spawn(move || stream(address, i, done))).collect();
        thread::sleep(BEFORE);
        let begin = Instant::now();
        let ids: Vec<String> = (0..prompt).map(|i| (300 + i * 7 % 2000).to_string()).collect();
        let body = format!("{{\"prompt\": [{}], \"max_tokens\": 1}}", ids.join(","));
        let answer = request(address, "POST", "/v1/completions", &body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let end = Instant::now();
        done.store(true, Ordering::Relaxed);
        let all = clients.into_iter().flat_map(|client| client.join().expect("a stream"));
        let waits = all.filter(|(at, _)| *at > begin && *at <= end);
        let gaps: Vec<f64> = waits.map(|(_, gap)| 1e3 * gap.as_secs_f64()).collect();
        ((end - begin).as_secs_f64(), gaps)
    });
    let rate = (prompt + gaps.len()) as f64 / seconds;
    println!(
        "| {target} | {:.0} | {:.0} | {:.0} | {seconds:.1} | {rate:.1} |",
        percentile(&gaps, 0.5),
        percentile(&gaps, 0.99),
        percentile(&gaps, 1.0),
    );
    server.kill().expect("was running");
    let _ = server.wait();
}

fn request(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut text = String::new();
    open(address, method, path, body).read_to_string(&mut text).expect("a response");
    text
}

/// Streams one answer until the prompt is done. Returns the time of each token, and the time since the
/// token before.
fn stream(address: &str, client: usize, done: &AtomicBool) -> Vec<(Instant, Duration)> {
    let body = format!(
        "{{\"prompt\": \"Once there was a fox named Pip. Day {client} was\", \"temperature\": 0, \
         \"ignore_eos\": true, \"max_tokens\": 4000, \"stream\": true, \"logprobs\": 0, \
         \"decode_mode\": \"ar\"}}"
    );
    let lines = BufReader::new(open(address, "POST", "/v1/completions", &body)).lines();
    let (mut last, mut gaps) = (None, Vec::new());
    for line in lines {
        if done.load(Ordering::Relaxed) {
            break;
        }
        if !line.expect("text").starts_with("data: {") {
            continue;
        }
        let now = Instant::now();
        gaps.extend(last.map(|last| (now, now - last)));
        last = Some(now);
    }
    gaps
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1]
}
