//! The limits of this machine: memory bandwidth and rate of multiplications.

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
/// Seconds of a pass of products: long enough for threads to start.
const PASS_SECONDS: f64 = 0.05;

/// Bytes per second that each number of threads reads, every thread its own part of one buffer, in
/// memory as weights have it.
pub fn bandwidths(kernels: &Kernels, threads: &[usize]) -> Vec<f64> {
    // Written, because pages that were never written all share one page of zeroes.
    let mut lines = WeightVec::<Line>::zeroed(BYTES / size_of::<Line>());
    lines.iter_mut().zip(0..).for_each(|(line, i)| line.fill(i));
    let pass = |&n: &usize| {
        let seconds = best(|| {
            thread::scope(|scope| {
                for part in lines.chunks(lines.len().div_ceil(n)) {
                    scope.spawn(move || black_box((kernels.read)(part)));
                }
            });
        });
        size_of_val(&*lines) as f64 / seconds
    };
    threads.iter().map(pass).collect()
}

/// Products of int8 per second that each number of threads computes in registers.
pub fn products(kernels: &Kernels, threads: &[usize]) -> Vec<f64> {
    let mut rounds = 1;
    let alone = loop {
        let begin = Instant::now();
        (kernels.multiply)(rounds);
        match begin.elapsed().as_secs_f64() {
            seconds if seconds > PASS_SECONDS / 2.0 => break seconds,
            _ => rounds *= 2,
        }
    };
    let rounds = (rounds as f64 * PASS_SECONDS / alone) as usize;
    let pass = |&n: &usize| {
        let seconds = best(|| {
            thread::scope(|scope| {
                (0..n).for_each(|_| drop(scope.spawn(|| (kernels.multiply)(rounds))))
            });
        });
        (n as u64 * (kernels.multiply)(1) * rounds as u64) as f64 / seconds
    };
    threads.iter().map(pass).collect()
}

/// Seconds of the fastest of some passes.
fn best(pass: impl Fn()) -> f64 {
    let timed = |_| {
        let begin = Instant::now();
        pass();
        begin.elapsed().as_secs_f64()
    };
    (0..PASSES).map(timed).fold(f64::INFINITY, f64::min)
}
