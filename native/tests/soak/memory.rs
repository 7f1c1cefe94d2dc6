//! Memory of the server while it runs.

use crate::common::server::Server;
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Accepted growth from the first quarter to the end, in MiB. A leak of 1 kB per request would exceed
/// it. The allocator's heaps grow from 53 to 63 MiB within 20,000 requests and then stay.
const TOLERANCE: f64 = 14.0;

/// Samples of resident memory in MiB, in order.
pub struct Memory(Vec<f64>);

/// Samples the memory for `time` and checks that the server stays healthy.
pub fn watch(server: &Server, time: Duration) -> Memory {
    let (begin, mut memory) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let asked = Instant::now();
        server.get("/health").is(200);
        assert!(asked.elapsed() < Duration::from_secs(10), "the server is well");
        memory.push(resident(server));
        sleep(Duration::from_millis(200));
    }
    Memory(memory)
}

fn resident(server: &Server) -> f64 {
    let path = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(path).expect("it runs");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number") / 1024.0
}

impl Memory {
    /// Returns the median of one eighth of the samples.
    fn eighth(&self, index: usize) -> f64 {
        let n = self.0.len();
        let mut part = self.0[n * index / 8..n * (index + 1) / 8].to_vec();
        part.sort_by(f64::total_cmp);
        part[part.len() / 2]
    }

    /// Asserts that memory has not grown.
    pub fn check(&self) {
        let (early, late) = (self.eighth(2), self.eighth(7));
        assert!(late <= early + TOLERANCE, "memory grows: {self}");
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let eighths: Vec<_> = (0..8).map(|i| format!("{:.1}", self.eighth(i))).collect();
        writeln!(f, "memory by eighths of the time, MiB: {}", eighths.join(", "))
    }
}
