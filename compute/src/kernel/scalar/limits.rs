//! Measures the memory bandwidth and arithmetic throughput that limit products.

use std::hint::black_box;

/// Returns the XOR of all lines.
pub fn read(lines: &[[u64; 8]]) -> [u64; 8] {
    lines.iter().fold([0; 8], |all, line| std::array::from_fn(|i| all[i] ^ line[i]))
}

/// Computes `rounds` times 64 int8 products.
pub fn multiply(rounds: usize) -> u64 {
    let (a, b) = ([3i8; 64], [5i8; 64]);
    let mut sums = [0i32; 64];
    for _ in 0..rounds {
        // Keeps the compiler from computing the products only once.
        let (a, b) = black_box((&a, &b));
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = sum.wrapping_add(i32::from(*a) * i32::from(*b));
        }
    }
    black_box(sums);
    64 * rounds as u64
}
