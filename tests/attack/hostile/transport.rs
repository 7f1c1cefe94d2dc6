//! Connections that a server must not wait for.

use super::{Attacker, request, status};
use fastrand::Rng;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::sleep;
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

fn story(stream: bool) -> String {
    let message = json!([{"role": "user", "content": "Tell me a story."}]);
    json!({"messages": message, "stream": stream, "ignore_eos": true}).to_string()
}

/// Opens many connections, says nothing or the beginning of a request, and waits.
pub fn idle(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let begin =
        [&b""[..], b"GET /v1/mo", b"P", b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n"];
    let crowd: Vec<TcpStream> =
        (0..120).filter_map(|n| attacker.send(begin[n % begin.len()])).collect();
    sleep(Duration::from_millis(rng.u64(..3000)));
    drop(crowd);
    0
}

pub fn slow_body(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000\r\n\r\n");
    let Some(mut stream) = attacker.send(head.as_bytes()) else { return 0 };
    for _ in 0..rng.u32(1..30) {
        if stream.write_all(&[b' '; 50_000]).is_err() {
            return status(stream);
        }
        sleep(Duration::from_millis(rng.u64(..100)));
    }
    0
}

pub fn unread(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let held = attacker.send(request(CHAT, "", &story(true)).as_bytes());
    sleep(Duration::from_millis(rng.u64(..3000)));
    drop(held);
    0
}

pub fn leave(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let whole = request(CHAT, "", &story(rng.bool()));
    let sent = if rng.bool() { whole.len() } else { rng.usize(..whole.len()) };
    if let Some(mut stream) = attacker.send(&whole.as_bytes()[..sent])
        && rng.bool()
    {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
        let _ = stream.read(&mut [0; 300]);
    }
    0
}

pub fn half_closed(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let message = json!([{"role": "user", "content": "Hi!"}]);
    let body = json!({"messages": message, "max_tokens": rng.u32(1..50)}).to_string();
    let Some(stream) = attacker.send(request(CHAT, "", &body).as_bytes()) else { return 0 };
    let _ = stream.shutdown(Shutdown::Write);
    status(stream)
}

pub fn noise(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let mut bytes = request(CHAT, "", &story(false)).into_bytes();
    match rng.u32(..4) {
        0 => bytes = (0..rng.usize(1..9000)).map(|_| rng.u8(..)).collect(),
        1 => (0..5).for_each(|_| bytes[rng.usize(..60)] = rng.u8(..)),
        2 => bytes = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(3000)).into(),
        _ => bytes = b"GET /version HTTP/1.1\r\n\r\n".repeat(50),
    }
    let Some(stream) = attacker.send(&bytes) else { return 0 };
    let _ = stream.shutdown(Shutdown::Write);
    status(stream)
}

pub fn web_page(attacker: &Attacker, _: &mut Rng) -> u16 {
    let headers = "origin: https://evil.example\r\ncontent-type: text/plain\r\n";
    let sent = attacker.send(request(CHAT, headers, &story(false)).as_bytes());
    sent.map_or(0, status)
}
