//! How fast this machine reads memory.

use std::hint::black_box;
use std::thread;
use std::time::Instant;
use wrinklefree::kernel::Kernels;
use wrinklefree::mem::WeightVec;

/// A cache line.
type Line = [u64; 8];
/// Far more than any cache holds.
const BYTES: usize = 1 << 30;
/// The best of so many passes counts.
const PASSES: usize = 5;

/// Bytes per second that each number of threads reads, every thread its own part of one buffer, in
/// memory as weights have it.
pub fn measure(kernels: &Kernels, threads: &[usize]) -> Vec<f64> {
    // Written, because pages that were never written all share one page of zeroes.
    let mut lines = WeightVec::<Line>::zeroed(BYTES / size_of::<Line>());
    lines.iter_mut().zip(0..).for_each(|(line, i)| line.fill(i));
    threads.iter().map(|&n| best(kernels, &lines, n)).collect()
}

fn best(kernels: &Kernels, lines: &[Line], threads: usize) -> f64 {
    let pass = |_| {
        let start = Instant::now();
        thread::scope(|scope| {
            for part in lines.chunks(lines.len().div_ceil(threads)) {
                scope.spawn(move || black_box((kernels.read)(part)));
            }
        });
        start.elapsed().as_secs_f64()
    };
    size_of_val(lines) as f64 / (0..PASSES).map(pass).fold(f64::INFINITY, f64::min)
}
