//! Measures the arithmetic throughput that limits products.

use std::arch::x86_64::*;
use std::hint::black_box;

/// Computes `rounds` times sixteen vectors of 64 int8 products.
#[target_feature(enable = "avx512f,avx512vnni")]
pub fn multiply(rounds: usize) -> u64 {
    let (weights, x) = black_box((_mm512_set1_epi8(1), _mm512_set1_epi8(3)));
    let mut sums = [_mm512_setzero_si512(); 16];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, weights, x);
        }
    }
    black_box(sums);
    16 * 64 * rounds as u64
}
