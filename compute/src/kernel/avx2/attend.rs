//! Softmax attention over pages.

use super::KV;
use super::lanes::{load, sum};
use crate::kernel::page_steps::page_steps;
use crate::kernel::walk::{Steps, walk};
use crate::par::{Columns, Scratch};
use std::arch::x86_64::*;

page_steps!("avx2,fma,f16c", 8, 3, super::lanes);

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn attend(a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
    let steps = Steps {
        score: |row, page: Page<'_>, scores: &mut [f32]| score(a, row, page, scores),
        exponents: |scores: &mut [f32], end| exponents(scores, end),
        mix: |row, page: Page<'_>, scores: &[f32], out: &mut [f32]| mix(a, row, page, scores, out),
        total: |scores: &[f32]| total(scores),
    };
    walk(a, &KV, out, scratch, steps);
}

/// Σ of the scores.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn total(scores: &[f32]) -> f32 {
    let mut total = _mm256_setzero_ps();
    for s in scores.as_chunks::<8>().0 {
        total = _mm256_add_ps(total, load(s));
    }
    sum(total)
}
