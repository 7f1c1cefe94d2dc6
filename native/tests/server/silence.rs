//! Streams that wait: each API's clients hear something every five seconds.

use crate::common::model::write_with;
use crate::common::server::{Server, ask};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// A sign comes after five seconds; one that was sent before this does not count.
const EARLIEST: Duration = Duration::from_secs(4);
/// Longest silence, with time for a busy machine.
const LATEST: Duration = Duration::from_millis(6500);
/// Requests for a stream to each API, and the beginning of its signs of life.
fn requests(model: &str) -> Vec<(&'static str, Value, &'static str)> {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let chat = json!({"messages": messages, "max_tokens": 2});
    let responses = json!({"input": "Hi", "max_output_tokens": 16});
    let requests = [
        ("/v1/chat/completions", chat.clone(), ":"),
        ("/chat/completions", chat.clone(), ":"),
        ("/v1/completions", json!({"prompt": "Hi", "max_tokens": 2}), ":"),
        ("/v1/responses", responses.clone(), ":"),
        ("/responses", responses, ":"),
        ("/v1/messages", chat.clone(), "event: ping"),
        ("/messages", chat, "event: ping"),
        ("/completion", json!({"prompt": "Hi", "n_predict": 2}), ":"),
        ("/infill", json!({"input_prefix": "Hi", "input_suffix": "!", "n_predict": 2}), ":"),
        ("/api/chat", json!({"messages": messages, "options": {"num_predict": 2}}), "{"),
        ("/api/generate", json!({"prompt": "Hi", "options": {"num_predict": 2}}), "{"),
    ];
    let streamed = |(path, mut body, sign): (&'static str, Value, &'static str)| {
        (body["model"], body["stream"]) = (model.into(), true.into());
        (path, body, sign)
    };
    requests.into_iter().map(streamed).collect()
}

fn open(server: &Server, path: &str, body: &Value) -> TcpStream {
    server.open("POST", path, "content-type: application/json\r\n", &body.to_string())
}

/// Starts an answer that goes on until its connection is closed. Returns when it has begun.
fn block(server: &Server) -> TcpStream {
    let long = json!({"model": "fox", "max_tokens": 20_000, "ignore_eos": true, "stream": true,
        "temperature": 0});
    let stream = open(server, "/v1/chat/completions", &ask("Hi", long));
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    let mut line = String::new();
    while !line.contains("\"content\":") {
        line.clear();
        assert!(reader.read_line(&mut line).expect("a line") > 0, "the answer has begun");
    }
    thread::spawn(move || drop(reader.read_to_end(&mut Vec::new())));
    stream
}

/// Reads a stream to its end. Returns what is wrong with it.
fn listen(stream: TcpStream, sign: &str, sent: Instant) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (mut text, mut heard) = (String::new(), None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).expect("a line") == 0 {
            break;
        }
        let since = sent.elapsed();
        if line.starts_with(sign) && since >= EARLIEST {
            heard = heard.or(Some(since));
        }
        text += &line;
    }
    match heard {
        Some(since) if since > LATEST => Some(format!("the first sign comes after {since:?}")),
        // The last chunk of a complete body has no bytes.
        Some(_) if text.ends_with("\r\n0\r\n\r\n") && !text.contains("\"error\":{") => None,
        Some(_) => Some(format!("it fails: {text}")),
        None => Some(format!("no sign of life: {text}")),
    }
}

/// Sends a stream to each API while another answer blocks them.
fn all_hear_signs(server: &Server, model: &str, starts: Option<&'static str>) {
    let blocker = block(server);
    let sent = Instant::now();
    let listeners: Vec<_> = requests(model)
        .into_iter()
        .map(|(path, body, sign)| {
            let sign = starts.filter(|_| sign != "{").unwrap_or(sign);
            let stream = open(server, path, &body);
            thread::spawn(move || {
                listen(stream, sign, sent).map(|wrong| format!("{path}: {wrong}"))
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(6600).saturating_sub(sent.elapsed()));
    blocker.shutdown(Shutdown::Both).expect("closed");
    let wrong: Vec<String> =
        listeners.into_iter().filter_map(|l| l.join().expect("a result")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn whoever_waits_for_a_place_hears_signs() {
    let server = Server::slow(&["--any-model", "--max-sequences", "1", "--context-shift"]);
    all_hear_signs(&server, "fox", None);
}

#[test]
fn whoever_waits_for_a_model_hears_signs() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["fox", "owl"] {
        let template = "{% for m in messages %}{{ m.content }} Once upon a time{% endfor %}";
        write_with(&folder.path().join(format!("{name}.safetensors")), template, &[]);
    }
    let path = folder.path().to_str().expect("UTF-8");
    // The limit holds one model.
    let server = Server::slow(&["--models", path, "--memory-limit", "32M", "--context-shift"]);
    all_hear_signs(&server, "owl", Some(":"));
}
