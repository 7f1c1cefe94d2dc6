//! What products are bounded by.

use super::lanes::prefetch;
use std::arch::x86_64::*;
use std::hint::black_box;

/// XOR of all lines, read at two places at a time, which gives more; each line is asked for twice: to come
/// near, then to come into the first cache.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn read(lines: &[[u64; 8]]) -> [u64; 8] {
    /// Bytes.
    const NEAR: usize = 4096;
    const FIRST: usize = 2048;
    let mut all = [[_mm256_setzero_si256(); 2]; 2];
    let mut take = |place: usize, line: &[u64; 8]| {
        let ahead: *const u8 = line.as_ptr().cast();
        _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(NEAR).cast());
        prefetch(ahead, FIRST);
        let halves: [__m256i; 2] = bytemuck::must_cast(*line);
        for (all, half) in all[place].iter_mut().zip(halves) {
            *all = _mm256_xor_si256(*all, half);
        }
    };
    let (first, second) = lines.split_at(lines.len() / 2);
    for (i, line) in second.iter().enumerate() {
        if let Some(line) = first.get(i) {
            take(0, line);
        }
        take(1, line);
    }
    let [even, odd] = all;
    let [low, high] = [0, 1].map(|h| _mm256_xor_si256(even[h], odd[h]));
    bytemuck::must_cast([low, high])
}

/// `rounds` times twelve vectors of 32 products of int8, whose pairs are added in 16 bits: codes of
/// ternary weights are so small that sums are widened rarely.
#[target_feature(enable = "avx2")]
pub fn multiply(rounds: usize) -> u64 {
    let weights = [_mm256_set1_epi8(1); 2];
    let x = [_mm256_set1_epi8(3); 6];
    let mut sums = [[_mm256_setzero_si256(); 2]; 6];
    for _ in 0..rounds {
        // Or the products would be computed once, and added.
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
