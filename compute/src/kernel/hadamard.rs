//! The Walsh–Hadamard transform of rows.

use super::simd::Simd;

/// Transforms each block of `x` in place: y[r] = Σ (−1)^popcount(r AND c) · x[c] / √block.
///
/// # Panics
/// If `block` is no power of two, or `x` is not whole blocks.
#[inline(always)]
pub fn hadamard<S: Simd>(s: S, x: &mut [f32], block: usize) {
    assert!(block.is_power_of_two() && x.len().is_multiple_of(block));
    let scale = 1.0 / (block as f32).sqrt();
    for block in x.chunks_exact_mut(block) {
        if block.len() < S::LANES {
            short(block, scale);
            continue;
        }
        let vectors = S::arrays_mut(block);
        for v in vectors.iter_mut() {
            let transformed = s.hadamard(s.load(v));
            s.store(v, s.mul(transformed, s.splat(scale)));
        }
        let mut half = 1;
        while half < vectors.len() {
            if 2 * half < vectors.len() {
                four(s, vectors, half);
                half *= 4;
            } else {
                two(s, vectors, half);
                half *= 2;
            }
        }
    }
}

/// One stage: sums and differences of vectors `half` apart.
#[inline(always)]
fn two<S: Simd>(s: S, vectors: &mut [S::Array], half: usize) {
    for pair in vectors.chunks_exact_mut(2 * half) {
        let (left, right) = pair.split_at_mut(half);
        for (a, b) in left.iter_mut().zip(right) {
            let (x, y) = (s.load(a), s.load(b));
            s.store(a, s.add(x, y));
            s.store(b, s.sub(x, y));
        }
    }
}

/// Two stages at once, so that half as many loads and stores suffice.
#[inline(always)]
fn four<S: Simd>(s: S, vectors: &mut [S::Array], half: usize) {
    for group in vectors.chunks_exact_mut(4 * half) {
        let (front, back) = group.split_at_mut(2 * half);
        let (a, b) = front.split_at_mut(half);
        let (c, d) = back.split_at_mut(half);
        for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
            let [w, x, y, z] = [s.load(a), s.load(b), s.load(c), s.load(d)];
            let (sum, difference) = (s.add(w, x), s.sub(w, x));
            let (back_sum, back_difference) = (s.add(y, z), s.sub(y, z));
            s.store(a, s.add(sum, back_sum));
            s.store(b, s.add(difference, back_difference));
            s.store(c, s.sub(sum, back_sum));
            s.store(d, s.sub(difference, back_difference));
        }
    }
}

/// A block that fills no vector.
#[inline(always)]
fn short(block: &mut [f32], scale: f32) {
    let mut half = 1;
    while half < block.len() {
        for pair in block.chunks_exact_mut(2 * half) {
            let (left, right) = pair.split_at_mut(half);
            for (a, b) in left.iter_mut().zip(right) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    block.iter_mut().for_each(|x| *x *= scale);
}
