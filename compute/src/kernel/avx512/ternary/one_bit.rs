//! The one-bit layout: a mask leaves the bits that have the same place in all bytes.

use super::{AHEAD, Codes, Field};
use crate::kernel::avx2::prefetch;
use crate::kernel::avx512::arrange::{ColumnQuad, add};
use crate::kernel::avx512::{Avx512, SingleBits, lanes};
use crate::kernel::byte_ops::byte_ops;
use crate::kernel::one_bit::{self, OneBitDot};
use crate::kernel::simd::by_token;
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::PANEL_ROWS;
use crate::ternary::one_bit::{Block, COLS, GROUP, SPAN, place, spans};
use std::arch::x86_64::*;
use std::ops::Range;

byte_ops!(SingleBits, lanes, unsafe);

impl OneBitDot for SingleBits {
    // Of 4 columns · 128 · 128 · 32 blocks, 32-bit sums hold all.
    const STEPS: usize = 32;
    const BITS: [usize; 5] = [8, 8, 8, 8, 4];
    const PANELS: usize = 2;
    const AHEAD: usize = AHEAD;
}

impl Codes for SingleBits {
    type Lookup = Avx512;

    #[inline(always)]
    fn streams(
        args: &TernaryArgs<'_, Self>,
        panels: Range<usize>,
        rows: Range<usize>,
        y: &mut Columns<'_>,
        _: &mut AlignedVec<i8>,
    ) {
        one_bit::streams(args, panels, rows, y);
    }

    #[inline(always)]
    fn dot_rows<const N: usize>(
        args: &TernaryArgs<'_, Self>,
        panel: usize,
        g: usize,
        x: &[[ColumnQuad; N]],
    ) -> [__m512i; N] {
        let (codes, cols) = (args.codes(panel), args.w.cols());
        by_token!(args.s, dot_rows(codes, cols, g, x))
    }

    #[inline(always)]
    fn unpack(
        args: &TernaryArgs<'_, Self>,
        (panel, fields): (usize, Range<usize>),
        next: Option<(usize, usize)>,
        out: &mut [Field],
    ) {
        let next = next.filter(|(panel, _)| panel * PANEL_ROWS < args.w.rows());
        let next = next.map_or(std::ptr::null(), |(panel, field)| {
            args.codes(panel).as_ptr().wrapping_add(4 * field / COLS).cast()
        });
        by_token!(args.s, unpack(args.codes(panel), args.w.cols(), fields, next, out));
    }

    fn lookup(args: &TernaryArgs<'_, Self>) -> Avx512 {
        args.s.0
    }
}

/// Number of fields of a group, each of 4 columns.
const GROUP_FIELDS: usize = GROUP / 4;

/// Returns the span that has a column.
#[inline]
fn span_of(cols: usize, column: usize) -> Range<usize> {
    let whole = column / SPAN * SPAN;
    spans(cols, whole).find(|span| column < span.end).expect("a column of the matrix")
}

/// Returns the exact Σ c·q of a group of a panel × `N` rows, by steps. Not inlined, so that the compiler
/// keeps the sums in registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dot_rows<const N: usize>(
    codes: &[Block],
    cols: usize,
    g: usize,
    x: &[[ColumnQuad; N]],
) -> [__m512i; N] {
    let span = span_of(cols, g * GROUP);
    let run = span.len() / 32;
    let mut exact = [_mm512_setzero_si512(); N];
    for (i, x) in x.chunks_exact(run).enumerate() {
        let (first, bit) = place(&span, g * GROUP + 4 * i * run);
        let mask = _mm512_set1_epi8((1u8 << bit).cast_signed());
        let mut sums = [_mm512_setzero_si512(); N];
        for (block, x) in codes[first..].iter().zip(x) {
            if g.is_multiple_of(8) {
                prefetch(block.as_ptr(), AHEAD);
            }
            add(&mut sums, _mm512_and_si512(bytemuck::must_cast(*block), mask), x);
        }
        // Twice the number of the bits, which are 2ⁱ times too large.
        let excess = _mm_cvtsi32_si128(bit as i32);
        for (exact, sum) in exact.iter_mut().zip(sums) {
            let twice = _mm512_sra_epi32(_mm512_add_epi32(sum, sum), excess);
            *exact = _mm512_add_epi32(*exact, twice);
        }
    }
    exact
}

/// Decodes some fields of a panel to codes 0 and 2. Prefetches as many bytes from `next` on, which may be
/// any address.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn unpack(
    codes: &[Block],
    cols: usize,
    fields: Range<usize>,
    next: *const Block,
    out: &mut [Field],
) {
    let mut field = fields.start;
    let mut out = out;
    while field < fields.end {
        let span = span_of(cols, 4 * field);
        let (first, bit) = place(&span, 4 * field);
        // Up to the end of the run, whose columns have the same bit.
        let run = span.len() / 32;
        let count = (run - field % run).min(fields.end - field).min(GROUP_FIELDS);
        let mask = _mm512_set1_epi8((1u8 << bit).cast_signed());
        let (own, rest) = out.split_at_mut(count);
        for (block, out) in codes[first..].iter().zip(own) {
            let signs = _mm512_test_epi8_mask(bytemuck::must_cast(*block), mask);
            *out = bytemuck::must_cast(_mm512_maskz_set1_epi8(signs, 2));
        }
        for line in (field - fields.start) / 8..(field + count - fields.start) / 8 {
            _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line).cast());
        }
        (out, field) = (rest, field + count);
    }
}
