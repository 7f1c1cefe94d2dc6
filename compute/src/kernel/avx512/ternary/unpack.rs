//! Decodes two-bit codes to bytes, once for all rows of a batch.

use crate::ternary::BLOCK_BYTES;
use std::arch::x86_64::*;

/// Number of fields in a block: vectors of 16 rows × 4 columns, one byte per code.
pub const FIELDS: usize = 4;

/// A decoded field: one byte per code.
pub type Field = [u8; BLOCK_BYTES];

/// Decodes packed blocks to their fields in order of columns. Prefetches as many bytes from `next` on,
/// which may be any address.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn unpack(codes: &[[u8; BLOCK_BYTES]], next: *const u8, out: &mut [Field]) {
    let mask = _mm512_set1_epi8(3);
    let (out, _) = out.as_chunks_mut::<FIELDS>();
    for (b, (block, out)) in codes.iter().zip(out).enumerate() {
        _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(b * BLOCK_BYTES).cast());
        let q: __m512i = bytemuck::must_cast(*block);
        *out = bytemuck::must_cast([
            _mm512_and_si512(q, mask),
            _mm512_and_si512(_mm512_srli_epi16::<2>(q), mask),
            _mm512_and_si512(_mm512_srli_epi16::<4>(q), mask),
            _mm512_and_si512(_mm512_srli_epi16::<6>(q), mask),
        ]);
    }
}
