//! How fast this machine reads memory.

use std::hint::black_box;
use std::thread;
use std::time::Instant;
use wrinklefree::mem::WeightVec;

/// Far more than any cache holds.
const BYTES: usize = 1 << 30;
/// The best of so many passes counts.
const PASSES: usize = 5;
/// Independent sums, enough to keep several vector loads in flight.
const LANES: usize = 32;

/// Bytes per second that each number of threads reads, every thread its own part of one buffer.
pub fn measure(threads: &[usize]) -> Vec<f64> {
    // Written, because pages that were never written all share one page of zeroes.
    let mut words = WeightVec::<u64>::zeroed(BYTES / size_of::<u64>());
    words.iter_mut().zip(0..).for_each(|(word, i)| *word = i);
    threads.iter().map(|&n| best(&words, n)).collect()
}

fn best(words: &[u64], threads: usize) -> f64 {
    let pass = |_| {
        let start = Instant::now();
        thread::scope(|scope| {
            for part in words.chunks(words.len().div_ceil(threads)) {
                scope.spawn(move || black_box(sum(part)));
            }
        });
        start.elapsed().as_secs_f64()
    };
    size_of_val(words) as f64 / (0..PASSES).map(pass).fold(f64::INFINITY, f64::min)
}

fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0u64; LANES];
    let chunks = words.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().chain(rest).fold(0, |a, b| a.wrapping_add(*b))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_word_is_read() {
        for n in [0, 1, 31, 32, 33, 1000] {
            let words: Vec<u64> = (1..=n).collect();
            assert_eq!(super::sum(&words), n * (n + 1) / 2);
        }
    }
}
