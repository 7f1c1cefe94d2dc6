//! The server's connections and files as the system sees them.

use crate::common::server::Server;
use std::fs;

/// Number of the server's connections from this address that are open.
pub fn connections(server: &Server, from: &str) -> usize {
    let (_, port) = server.address.rsplit_once(':').expect("a port");
    let port = format!(":{:04X}", port.parse::<u16>().expect("a number"));
    let bytes: Vec<u8> = from.split('.').map(|part| part.parse().expect("a number")).collect();
    let from = u32::from_le_bytes(bytes.try_into().expect("four numbers"));
    let from = format!("{from:08X}:");
    let table = fs::read_to_string("/proc/net/tcp").expect("the system tells");
    let open = table.lines().skip(1).filter(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        // ESTABLISHED and CLOSE_WAIT: the others are the system's, no longer the server's.
        let state = fields.next().unwrap_or("");
        local.ends_with(&port) && remote.starts_with(&from) && ["01", "08"].contains(&state)
    });
    open.count()
}

/// Lets this process open as many connections as the attack has.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(4096, |maximum| maximum.min(4096));
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).expect("allowed");
    }
}
