//! Measures the arithmetic throughput that limits products.

use std::arch::wasm32::*;
use std::hint::black_box;

/// Computes `rounds` times eight vectors of 8 int16 products, as int8 products are computed here.
pub fn multiply(rounds: usize) -> u64 {
    let (weights, x) = (i16x8_splat(1), [i16x8_splat(3); 8]);
    let mut sums = [i32x4_splat(0); 8];
    for _ in 0..rounds {
        // Keeps the compiler from computing the products only once.
        let x = black_box(&x);
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = i32x4_add(*sum, i32x4_dot_i16x8(*x, weights));
        }
    }
    black_box(sums);
    8 * 8 * rounds as u64
}
