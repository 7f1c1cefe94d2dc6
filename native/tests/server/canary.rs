//! Checks that text of one request never appears in the response to another. Many requests share a
//! long prefix and have a secret each; KV pages are few, and some clients disconnect.

use crate::common::server::{Reply, Server};
use fastrand::Rng;
use serde_json::{Value, json};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Number of requests with different secrets.
const SECRETS: usize = 12;
/// Number of times that each request is sent concurrently.
const ROUNDS: usize = 6;
/// Number of concurrent clients.
const CLIENTS: usize = 12;

/// Returns the common prefix of all prompts: more than 20 pages.
fn prefix() -> String {
    "Once upon a time there was a fox named Pip who lived by the river with Mia. ".repeat(30)
}

/// Returns letters that no story contains.
fn secret(number: usize) -> String {
    let mut rng = Rng::with_seed(number as u64);
    (0..7).map(|_| char::from(b"bcdfghjklmnpqrstvwxz"[rng.usize(..20)])).collect()
}

fn body(number: usize) -> Value {
    let secret = secret(number);
    let modes = ["ar", "verify", "iterative", "greedy"];
    let mut body = json!({
        "prompt": format!("{}The word of the day is {secret}. Pip said: {secret}", prefix()),
        "temperature": 0, "max_tokens": 40 + 10 * number, "ignore_eos": true,
        "decode_mode": modes[number / 2 % modes.len()],
        "stream": number.is_multiple_of(3),
    });
    // The secret comes back in the response, as text or through the log-probabilities.
    match number % 2 {
        0 => body["echo"] = true.into(),
        _ => body["logprobs"] = 5.into(),
    }
    body
}

/// Returns the choices of all chunks of a response.
fn choices(reply: &Reply) -> Vec<Value> {
    let streamed = reply.head.contains("text/event-stream");
    let chunks = if streamed { reply.chunks() } else { vec![reply.json()] };
    chunks.iter().map(|chunk| chunk["choices"].clone()).collect()
}

/// Returns the text of a response, and the text of the tokens in its log-probabilities.
fn texts(choices: &[Value]) -> (String, String) {
    let (mut text, mut tokens) = (String::new(), String::new());
    for choice in choices.iter().flat_map(|c| c.as_array().expect("an array")) {
        text += choice["text"].as_str().expect("text");
        for token in choice["logprobs"]["tokens"].as_array().into_iter().flatten() {
            tokens += token.as_str().expect("text");
        }
    }
    (text, tokens)
}

/// Asserts that a text contains no secret of another request.
fn assert_clean(text: &str, own: usize) {
    for number in (0..SECRETS).filter(|&number| number != own) {
        assert!(!text.contains(&secret(number)), "{number}'s secret in {own}'s answer: {text}");
    }
}

/// Returns the choices of a new server that has no other requests.
fn choices_alone(number: usize) -> Vec<Value> {
    let server = Server::start(&["-c", "2048"]);
    choices(&server.post("/v1/completions", &body(number)).is(200))
}

#[test]
fn secrets_stay_with_their_request() {
    let want: Vec<Vec<Value>> = (0..SECRETS).map(choices_alone).collect();
    for (number, choices) in want.iter().enumerate() {
        let (text, tokens) = texts(choices);
        assert_eq!(text.contains(&secret(number)), number.is_multiple_of(2), "echoed: {text}");
        assert!(tokens.is_empty() || tokens.starts_with(&text[..1]), "{tokens}, but {text}");
        let same = want.iter().filter(|other| *other == choices).count();
        assert_eq!(same, 1, "each secret changes the answer: {choices:?}");
    }

    // Pages for one sequence, or for a few that share their prefix.
    let server = Server::start(&["-c", "1024", "--kv-tokens", "1024", "--max-sequences", "8"]);
    let next = AtomicUsize::new(0);
    let client = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= ROUNDS * SECRETS {
                return;
            }
            // A different order in each round.
            let number = (turn * 7 + turn / SECRETS) % SECRETS;
            let mut rng = Rng::with_seed(turn as u64);
            if rng.bool() {
                disconnect((number + 1) % SECRETS, &server, &mut rng);
            }
            let reply = server.post("/v1/completions", &body(number)).is(200);
            let got = choices(&reply);
            let (text, tokens) = texts(&got);
            assert_clean(&text, number);
            assert_clean(&tokens, number);
            assert_eq!(got, want[number], "request {number} among others");
        }
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().for_each(|c| c.join().expect("answers of its own"));
    });
    server.idle();
    let metrics = server.get("/metrics").body;
    let count = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.expect("the metric").parse().expect("a number")
    };
    let (cached, preempted) = (count("wf_cached_tokens_total"), count("wf_preemptions_total"));
    assert!(cached > 10_000 && preempted > 0, "{cached} cached tokens, {preempted} preemptions");
    println!("{cached} cached tokens, {preempted} preemptions");
}

/// Sends a request and disconnects before or during the response.
fn disconnect(number: usize, server: &Server, rng: &mut Rng) {
    let body = body(number).to_string();
    let stream = server.open("POST", "/v1/completions", "", &body);
    let mut seen = Vec::new();
    let most = if rng.bool() { rng.u64(..3000) } else { 0 };
    stream.take(most).read_to_end(&mut seen).expect("some of the answer");
    assert_clean(&String::from_utf8_lossy(&seen), number);
}
