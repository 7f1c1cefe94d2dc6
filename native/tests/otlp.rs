//! Checks that a collector receives a span for each request.

#![cfg(unix)]

mod common;

use common::{server, wf_run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// Starts a collector and returns its address and the paths and bodies posted to it.
fn collector() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let (posts, posted) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
            let (mut path, mut length) = (String::new(), 0);
            for line in reader.by_ref().lines().map(|line| line.expect("text")) {
                if line.is_empty() {
                    break;
                }
                let lower = line.to_lowercase();
                if let Some(post) = line.strip_prefix("POST ") {
                    path = post.split(' ').next().expect("a path").into();
                } else if let Some(value) = lower.strip_prefix("content-length: ") {
                    length = value.parse().expect("a number");
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).expect("sent");
            if posts.send((path, body)).is_err() {
                return;
            }
        }
    });
    (format!("http://{address}"), posted)
}

#[test]
fn requests_are_exported_as_spans() {
    let (endpoint, posted) = collector();
    let mut command = wf_run(&["serve", "--port", "0", "-t", "1"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    let (mut child, address) = server::start(command);
    let trace = [0x0a_u8; 16];
    let parent = format!("00-{}-{}-01", "0a".repeat(16), "0b".repeat(8));
    let answer = ureq::get(format!("{address}/version")).header("traceparent", parent).call();
    assert_eq!(answer.expect("an answer").status(), 200);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("runs").success());
    assert!(child.wait().expect("ends").success());
    let sent = posted.recv_timeout(Duration::from_secs(20));
    let (path, body) = sent.expect("spans are sent before the server ends");
    assert_eq!(path, "/v1/traces");
    let has = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
    assert!(has(b"GET /version") && has(b"http.response.status_code") && has(b"wf-run"));
    assert!(has(&trace), "the span belongs to the client's trace");
}
