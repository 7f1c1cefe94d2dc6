//! Measures the memory bandwidth and arithmetic throughput that limit products.

use super::lanes::prefetch;
use std::arch::x86_64::*;
use std::hint::black_box;

/// Returns the XOR of all lines. It reads two streams, which gives more bandwidth, and prefetches each
/// line twice: first to the second-level cache, then to the first.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn read(lines: &[[u64; 8]]) -> [u64; 8] {
    /// Prefetch distances in bytes, to the second-level and to the first-level cache.
    const SECOND_LEVEL: usize = 4096;
    const FIRST_LEVEL: usize = 2048;
    let mut all = [[_mm256_setzero_si256(); 2]; 2];
    let mut add = |stream: usize, line: &[u64; 8]| {
        let ahead: *const u8 = line.as_ptr().cast();
        _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(SECOND_LEVEL).cast());
        prefetch(ahead, FIRST_LEVEL);
        let halves: [__m256i; 2] = bytemuck::must_cast(*line);
        for (all, half) in all[stream].iter_mut().zip(halves) {
            *all = _mm256_xor_si256(*all, half);
        }
    };
    let (first, second) = lines.split_at(lines.len() / 2);
    for (i, line) in second.iter().enumerate() {
        if let Some(line) = first.get(i) {
            add(0, line);
        }
        add(1, line);
    }
    let [first, second] = all;
    let [low, high] = [0, 1].map(|h| _mm256_xor_si256(first[h], second[h]));
    bytemuck::must_cast([low, high])
}

/// Computes `rounds` times twelve vectors of 32 int8 products, whose pairs are added in 16 bits. Ternary
/// codes are so small that sums are rarely widened.
#[target_feature(enable = "avx2")]
pub fn multiply(rounds: usize) -> u64 {
    let weights = [_mm256_set1_epi8(1); 2];
    let x = [_mm256_set1_epi8(3); 6];
    let mut sums = [[_mm256_setzero_si256(); 2]; 6];
    for _ in 0..rounds {
        // Keeps the compiler from computing the products only once.
        let (weights, x) = black_box((&weights, &x));
        for (sums, x) in sums.iter_mut().zip(x) {
            for (sum, w) in sums.iter_mut().zip(weights) {
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(*w, *x));
            }
        }
    }
    black_box(sums);
    12 * 32 * rounds as u64
}
