//! A running server and requests to it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Child;

/// Returns the address that a started server prints.
pub fn address(server: &mut Child) -> String {
    let mut line = String::new();
    let stdout = server.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    line.trim().strip_prefix("listening on http://").expect("an address").into()
}

/// Sends a request.
pub fn open(address: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connects");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\
         \r\n{body}"
    )
    .expect("sent");
    stream
}
