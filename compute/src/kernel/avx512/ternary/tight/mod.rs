//! The tight layout with VBMI. A permutation moves bytes so that a multishift can extract each number, and
//! a table gives the three codes of each number.

mod indices;
mod streams;

use super::{Codes, FIELDS as TWO_BIT_FIELDS, Field};
use crate::kernel::avx2::prefetch;
use crate::kernel::avx512::Vbmi;
use crate::kernel::avx512::arrange::{self, ColumnQuad};
use crate::kernel::simd::by_token;
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::tight::COLS;
use crate::ternary::tight::{BYTES, CODES, FIELDS};
use crate::ternary::{BLOCK_COLS, Layout, PANEL_ROWS, TernaryMatrix};
use indices::{LAST, TightLookup};
use std::arch::x86_64::*;
use std::ops::Range;

/// Prefetch distance in bytes.
const AHEAD: usize = 3072;
const LINE: usize = 64;

/// Constants for decoding a block.
#[derive(Clone, Copy)]
struct Decoder {
    /// Moves the five bytes of eight numbers to the start of eight bytes.
    spread: __m512i,
    /// First bit of each number in those eight bytes.
    shifts: __m512i,
    /// Codes of each number. Both halves are equal, because the index has a bit above the number.
    codes: __m512i,
    /// Codes of each number, for each field separately.
    each: [__m512i; FIELDS],
}

/// Source of each byte: five bytes of eight numbers are spread over eight bytes.
const SPREAD: [u8; 64] = {
    let mut spread = [0; 64];
    let mut n = 0;
    while n < 64 {
        let within = if n % 8 < 4 { n % 8 } else { 4 };
        spread[n] = (n / 8 * 5 + within) as u8;
        n += 1;
    }
    spread
};

/// Codes of each number, field by field.
const EACH: [[u8; 32]; FIELDS] = {
    let mut each = [[0; 32]; FIELDS];
    let mut at = 0;
    while at < FIELDS * 32 {
        each[at / 32][at % 32] = CODES[at % 32] >> (2 * (at / 32)) & 3;
        at += 1;
    }
    each
};

impl Decoder {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn new() -> Self {
        let shifts = u64::from_le_bytes([0, 5, 10, 15, 20, 25, 30, 35]);
        Self {
            spread: bytemuck::must_cast(SPREAD),
            shifts: _mm512_set1_epi64(shifts.cast_signed()),
            codes: _mm512_broadcast_i64x4(bytemuck::must_cast(CODES)),
            each: EACH.map(|codes| _mm512_broadcast_i64x4(bytemuck::must_cast(codes))),
        }
    }

    /// Loads a block, followed by zeros.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn block(self, block: &[u8; BYTES]) -> __m512i {
        // SAFETY: the mask has as many bytes as the block.
        unsafe { _mm512_maskz_loadu_epi8((1 << BYTES) - 1, block.as_ptr().cast()) }
    }

    /// Decodes the block at the beginning of `bytes`: for each row and column of a field, the codes of three
    /// fields in two bits each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn codes(self, bytes: __m512i) -> __m512i {
        let spread = _mm512_permutexvar_epi8(self.spread, bytes);
        let numbers = _mm512_multishift_epi64_epi8(self.shifts, spread);
        _mm512_permutexvar_epi8(numbers, self.codes)
    }

    /// Extracts the numbers of the block at the beginning of `bytes`: four per row, one byte each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn numbers(self, bytes: __m512i) -> __m512i {
        let spread = _mm512_permutexvar_epi8(self.spread, bytes);
        let numbers = _mm512_multishift_epi64_epi8(self.shifts, spread);
        _mm512_and_si512(numbers, _mm512_set1_epi8(31))
    }

    /// Makes table indices of each row's first three numbers, with a code of the fourth number as the fourth
    /// digit of each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn indices(self, numbers: __m512i) -> __m512i {
        let fourth = _mm512_set4_epi32(0x0f0f_0f0f, 0x0b0b_0b0b, 0x0707_0707, 0x0303_0303);
        let table_of_each = _mm512_set1_epi32(i32::from_le_bytes([0, 32, 64, 0]));
        let at = _mm512_or_si512(_mm512_shuffle_epi8(numbers, fourth), table_of_each);
        let [low, high]: [__m512i; 2] = bytemuck::must_cast(LAST);
        let digits = _mm512_permutex2var_epi8(low, at, high);
        _mm512_maskz_add_epi8(0x7777_7777_7777_7777, numbers, digits)
    }

    /// Decodes a block to each field's codes, masked but not shifted.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn fields(self, bytes: __m512i) -> [__m512i; FIELDS] {
        let q = self.codes(bytes);
        [
            _mm512_and_si512(q, _mm512_set1_epi8(3)),
            _mm512_and_si512(q, _mm512_set1_epi8(3 << 2)),
            _mm512_and_si512(q, _mm512_set1_epi8(3 << 4)),
        ]
    }

    /// Decodes a block to each field's codes, one byte each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn decoded(self, bytes: __m512i) -> [__m512i; FIELDS] {
        let (q, mask) = (self.codes(bytes), _mm512_set1_epi8(3));
        [
            _mm512_and_si512(q, mask),
            _mm512_and_si512(_mm512_srli_epi16::<2>(q), mask),
            _mm512_and_si512(_mm512_srli_epi16::<4>(q), mask),
        ]
    }

    /// As [`decoded`](Self::decoded), in fewer instructions, all of them permutations.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn looked_up(self, bytes: __m512i) -> [__m512i; FIELDS] {
        let spread = _mm512_permutexvar_epi8(self.spread, bytes);
        let numbers = _mm512_multishift_epi64_epi8(self.shifts, spread);
        let [first, second, third] = self.each;
        [
            _mm512_permutexvar_epi8(numbers, first),
            _mm512_permutexvar_epi8(numbers, second),
            _mm512_permutexvar_epi8(numbers, third),
        ]
    }
}

impl<'a> TernaryArgs<'a, Vbmi> {
    /// Returns the blocks of group `g` in the tight layout.
    fn tight_group(&self, g: usize) -> Range<usize> {
        let all = self.w.group_blocks(Layout::Tight);
        let own = (self.group(g).len() * BLOCK_COLS).div_ceil(COLS);
        g * all..g * all + own.min(all)
    }

    /// Returns the columns of group `g`. A single group's go on after the matrix's, with zeros.
    fn group_columns(&self, g: usize) -> Range<usize> {
        match self.groups {
            1 => 0..self.x.stride,
            _ => self.group(g).start * BLOCK_COLS..self.group(g).end * BLOCK_COLS,
        }
    }

    /// Returns the codes of a panel.
    fn tight(&self, panel: usize) -> &'a [[u8; BYTES]] {
        self.panel(panel).as_chunks().0
    }
}

impl Codes for Vbmi {
    type Lookup = TightLookup;

    #[inline(always)]
    fn streams(
        args: &TernaryArgs<'_, Self>,
        panels: Range<usize>,
        rows: Range<usize>,
        y: &mut Columns<'_>,
        padded: &mut AlignedVec<i8>,
    ) {
        by_token!(args.s, streams::streams(args, panels, rows, y, padded))
    }

    #[inline(always)]
    fn dot_rows<const N: usize>(
        args: &TernaryArgs<'_, Self>,
        panel: usize,
        g: usize,
        x: &[[ColumnQuad; N]],
    ) -> [__m512i; N] {
        by_token!(args.s, dot_rows(&args.tight(panel)[args.tight_group(g)], x))
    }

    #[inline(always)]
    fn unpack(
        args: &TernaryArgs<'_, Self>,
        (panel, fields): (usize, Range<usize>),
        next: Option<(usize, usize)>,
        out: &mut [Field],
    ) {
        let next = next.filter(|(panel, _)| panel * PANEL_ROWS < args.w.rows());
        let next = next
            .map_or((std::ptr::null(), 0), |(panel, field)| (args.panel(panel).as_ptr(), field));
        by_token!(args.s, unpack_groups(args.w, args.tight(panel), fields, next, out))
    }

    fn lookup(args: &TernaryArgs<'_, Self>) -> TightLookup {
        TightLookup { s: args.s, one_group: args.groups == 1 }
    }
}

/// Returns the exact Σ c·q of a panel × `N` rows. Not inlined, so that the compiler keeps the sums in
/// registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn dot_rows<const N: usize>(codes: &[[u8; BYTES]], x: &[[ColumnQuad; N]]) -> [__m512i; N] {
    let decoder = Decoder::new();
    let mut sums = [_mm512_setzero_si512(); N];
    let (whole, rest) = x.as_chunks::<FIELDS>();
    for (block, x) in codes.iter().zip(whole) {
        prefetch(block.as_ptr(), AHEAD);
        for (field, x) in decoder.looked_up(decoder.block(block)).into_iter().zip(x) {
            arrange::add(&mut sums, field, x);
        }
    }
    if let Some(block) = codes.get(whole.len()) {
        for (field, x) in decoder.looked_up(decoder.block(block)).into_iter().zip(rest) {
            arrange::add(&mut sums, field, x);
        }
    }
    sums
}

/// Decodes some fields of a panel, group by group. Prefetches as many bytes of another panel, from a field
/// on; it may be at any address.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn unpack_groups(
    w: &TernaryMatrix,
    codes: &[[u8; BYTES]],
    fields: Range<usize>,
    (next, mut next_field): (*const u8, usize),
    mut out: &mut [Field],
) {
    let group_fields = w.group_blocks(Layout::TwoBit) * TWO_BIT_FIELDS;
    let blocks = w.group_blocks(Layout::Tight);
    let mut field = fields.start;
    while field < fields.end {
        let (g, within) = (field / group_fields, field % group_fields);
        let count = (group_fields - within).min(fields.end - field);
        let next_block = next_field / group_fields * blocks + next_field % group_fields / FIELDS;
        let ahead = next.wrapping_add(next_block * BYTES);
        let (own, rest) = out.split_at_mut(count);
        let group = codes.get(g * blocks..(g + 1) * blocks).unwrap_or_default();
        unpack(group, within..within + count, ahead, own);
        (out, field, next_field) = (rest, field + count, next_field + count);
    }
}

/// Decodes some fields of a panel's group, in order of columns. Prefetches as many bytes from `next` on,
/// which may be any address. Fields past the end are zero.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn unpack(codes: &[[u8; BYTES]], fields: Range<usize>, next: *const u8, out: &mut [Field]) {
    let decoder = Decoder::new();
    let mut codes = codes[(fields.start / FIELDS).min(codes.len())..].iter();
    let mut ahead = next;
    let mut decode = || -> [Field; FIELDS] {
        let Some(block) = codes.next() else { return [[0; 64]; FIELDS] };
        _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
        ahead = ahead.wrapping_add(BYTES);
        bytemuck::must_cast(decoder.decoded(decoder.block(block)))
    };
    let within = fields.start % FIELDS;
    let lead = if within == 0 { 0 } else { (FIELDS - within).min(out.len()) };
    let (begun, out) = out.split_at_mut(lead);
    if lead > 0 {
        begun.copy_from_slice(&decode()[within..][..lead]);
    }
    let (whole, rest) = out.as_chunks_mut();
    for out in whole {
        *out = decode();
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&decode()[..rest.len()]);
    }
}
