//! Softmax attention over pages.

use crate::kernel::avx2::{KV, total};
use crate::kernel::page_steps::page_steps;
use crate::kernel::walk::{Steps, walk};
use crate::par::{Columns, Scratch};

page_steps!("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni", 16, 4, super::lanes);

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")]
pub fn attend(a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
    let steps = Steps {
        score: |row, page: Page<'_>, scores: &mut [f32]| score(a, row, page, scores),
        exponents: |scores: &mut [f32], end| exponents(scores, end),
        mix: |row, page: Page<'_>, scores: &[f32], out: &mut [f32]| mix(a, row, page, scores, out),
        total: |scores: &[f32]| total(scores),
    };
    walk(a, &KV, out, scratch, steps);
}
