//! Measures the arithmetic throughput that limits products.

use super::instructions::{DotProd, I8mm};
use std::arch::aarch64::*;
use std::hint::black_box;

/// Number of sums, enough to hide the latency of an instruction.
const SUMS: usize = 16;

/// Computes `rounds` times vectors of 8 int8 products.
#[target_feature(enable = "neon")]
pub fn base(rounds: usize) -> u64 {
    let mut sums = [vdupq_n_s16(0); SUMS];
    for _ in 0..rounds {
        // Keeps the compiler from computing the products only once.
        let (w, x) = black_box((vdup_n_s8(1), vdup_n_s8(3)));
        sums.iter_mut().for_each(|sum| *sum = vmlal_s8(*sum, w, x));
    }
    black_box(sums);
    (8 * SUMS * rounds) as u64
}

/// Computes `rounds` times dot products of 16 int8 products.
#[target_feature(enable = "neon")]
pub fn dotprod(set: DotProd, rounds: usize) -> u64 {
    let mut sums = [vdupq_n_s32(0); SUMS];
    for _ in 0..rounds {
        let (w, x) = black_box((vdupq_n_s8(1), vdupq_n_s8(3)));
        sums.iter_mut().for_each(|sum| *sum = set.add::<0>(*sum, w, x));
    }
    black_box(sums);
    (16 * SUMS * rounds) as u64
}

/// Computes `rounds` times matrix products of 32 int8 products.
#[target_feature(enable = "neon")]
pub fn i8mm(set: I8mm, rounds: usize) -> u64 {
    let mut sums = [vdupq_n_s32(0); SUMS];
    for _ in 0..rounds {
        let (w, x) = black_box((vdupq_n_s8(1), vdupq_n_s8(3)));
        sums.iter_mut().for_each(|sum| *sum = set.add(*sum, w, x));
    }
    black_box(sums);
    (32 * SUMS * rounds) as u64
}
