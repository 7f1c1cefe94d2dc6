//! Memory of the server while it runs.

use crate::common::server::Server;
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Accepted growth from the first quarter to the end, in MiB. A leak of 1 kB per request would exceed
/// it. The allocator's heaps grow from 53 to 63 MiB within 20,000 requests and then stay.
const TOLERANCE: f64 = 14.0;

/// Length from which a run has left the time in which heaps grow: the soak of a release.
const LONG: Duration = Duration::from_secs(2400);
/// Accepted growth of a long run from its first quarter to its end.
const GROWTH: f64 = 1.02;

/// Samples of memory in MiB, in order.
pub struct Memory {
    time: Duration,
    resident: Vec<f64>,
    /// Bytes of the heap in use; zero where the allocator does not count them.
    live: Vec<f64>,
}

/// Samples the memory for `time` and checks that the server stays healthy.
pub fn watch(server: &Server, time: Duration) -> Memory {
    let (begin, mut resident, mut live) = (Instant::now(), Vec::new(), Vec::new());
    while begin.elapsed() < time {
        let asked = Instant::now();
        server.get("/health").is(200);
        assert!(asked.elapsed() < Duration::from_secs(10), "the server is well");
        resident.push(server.resident_mib());
        live.push(server.heap_mib());
        sleep(Duration::from_millis(200));
    }
    Memory { time, resident, live }
}

impl Memory {
    /// Asserts that memory has not grown since the first quarter.
    pub fn check(&self) {
        for samples in [&self.resident, &self.live] {
            let (early, late) = (eighth(samples, 2), eighth(samples, 7));
            let most = if self.time < LONG { early + TOLERANCE } else { early * GROWTH };
            assert!(late <= most, "memory grows: {self}");
        }
    }
}

/// Returns the median of one eighth of the samples.
fn eighth(samples: &[f64], index: usize) -> f64 {
    let n = samples.len();
    let mut part = samples[n * index / 8..n * (index + 1) / 8].to_vec();
    part.sort_by(f64::total_cmp);
    part[part.len() / 2]
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, samples) in [("resident", &self.resident), ("live heap", &self.live)] {
            let eighths: Vec<_> = (0..8).map(|i| format!("{:.1}", eighth(samples, i))).collect();
            writeln!(f, "{name} by eighths of the time, MiB: {}", eighths.join(", "))?;
        }
        Ok(())
    }
}
