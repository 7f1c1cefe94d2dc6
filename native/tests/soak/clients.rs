//! Clients that behave well or badly.

use crate::asks::Ask;
use crate::common::server::{Reply, Server};
use fastrand::Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::sleep;
use std::time::Duration;

/// Replies that a client received.
pub enum Seen {
    /// All replies.
    Replies(Vec<Reply>),
    /// None: it disconnected.
    Nothing,
}

/// Sends a well-formed request.
pub fn behave(server: &Server, ask: &Ask) -> Vec<Reply> {
    let mut stream = server.connect();
    write(&mut stream, &head(ask, ask.body.len(), "close"));
    write(&mut stream, &ask.body);
    read(stream)
}

/// Sends a request in a random unusual way.
pub fn misbehave(server: &Server, ask: &Ask, rng: &mut Rng) -> Seen {
    let mut stream = server.connect();
    let whole = [head(ask, ask.body.len(), "close"), ask.body.clone()].concat();
    match rng.u32(..8) {
        // Disconnects during the response.
        0 | 1 => {
            write(&mut stream, &whole);
            let _ = stream.read_exact(&mut vec![0; rng.usize(1..3000)]);
            return Seen::Nothing;
        }
        // Disconnects before the response or during the request.
        2 => write(&mut stream, &whole),
        3 => write(&mut stream, &whole[..rng.usize(..whole.len())]),
        // Announces a wrong length.
        4 => {
            let wrong = rng.usize(..ask.body.len() + 100);
            write(&mut stream, &head(ask, wrong, "close"));
            write(&mut stream, &ask.body);
            let _ = stream.shutdown(Shutdown::Write);
            return Seen::Replies(read(stream));
        }
        // Sends and reads slowly.
        5 => {
            for piece in whole.chunks(whole.len().div_ceil(8)) {
                write(&mut stream, piece);
                sleep(Duration::from_millis(rng.u64(..40)));
            }
            let mut text = Vec::new();
            let mut buffer = [0; 200];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                text.extend(&buffer[..n]);
                sleep(Duration::from_millis(1));
            }
            return Seen::Replies(replies(&text));
        }
        // Pipelines two requests.
        6 => {
            write(&mut stream, &head(ask, ask.body.len(), "keep-alive"));
            write(&mut stream, &ask.body);
            write(&mut stream, &whole);
            return Seen::Replies(read(stream));
        }
        // Sends random bytes instead of HTTP.
        _ => {
            let noise: Vec<u8> = (0..rng.usize(1..4000)).map(|_| rng.u8(..)).collect();
            write(&mut stream, &noise);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    Seen::Nothing
}

fn head(ask: &Ask, length: usize, connection: &str) -> Vec<u8> {
    let Ask { method, path, .. } = ask;
    let more = format!("connection: {connection}\r\ncontent-length: {length}\r\n\r\n");
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{more}").into()
}

/// Sends bytes and ignores errors: the server may answer and close before it has read everything.
fn write(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

fn read(mut stream: TcpStream) -> Vec<Reply> {
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        // The server closed the connection while the request was being sent.
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        Err(e) => panic!("no answer in a minute: {e}"),
    }
    replies(&text)
}

fn replies(text: &[u8]) -> Vec<Reply> {
    Reply::all(&String::from_utf8_lossy(text))
}
