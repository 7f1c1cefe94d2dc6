//! The tight layout with VBMI. A permutation moves bytes so that a multishift can extract each number, and
//! a table gives the three codes of each number.

mod indices;

use super::{Codes, FIELDS as TWO_BIT_FIELDS, Field};
use crate::kernel::avx2::prefetch;
use crate::kernel::avx512::Vbmi;
use crate::kernel::avx512::arrange::{self, ColumnQuad};
use crate::kernel::panels::interleaved_panels;
use crate::kernel::simd::by_token;
use crate::kernel::ternary::TernaryArgs;
use crate::par::Columns;
use crate::ternary::tight::COLS;
use crate::ternary::tight::{BYTES, CODES, FIELDS};
use crate::ternary::{BLOCK_COLS, Layout, PANEL_ROWS, TernaryMatrix};
use indices::{LAST, TightLookup};
use std::arch::x86_64::*;
use std::ops::Range;

/// Prefetch distance in bytes.
const AHEAD: usize = 3072;
/// Number of blocks that fill whole cache lines.
const LINED: usize = 8;
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

    /// Returns the activations of a row that a group multiplies. A single group's go on after the matrix's
    /// columns, with zeros.
    fn tight_activations(&self, row: usize, g: usize) -> &'a [i8] {
        let row = self.x.row(row);
        match self.groups {
            1 => row,
            _ => &row[self.group(g).start * BLOCK_COLS..self.group(g).end * BLOCK_COLS],
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
    ) {
        by_token!(args.s, streams(args, panels, rows, y))
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

/// Multiplies panels × some activation rows. A single row takes four interleaved panels, because two decode
/// hardly faster than memory delivers them (four are 1.05 to 1.1 times as fast on a Xeon with AVX-512).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn streams(
    args: &TernaryArgs<'_, Vbmi>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
) {
    let (mut left, bytes) = (panels, args.w.panel_bytes());
    if rows.len() == 1 {
        let (fours, rest) = interleaved_panels::<4>(left, bytes);
        for four in fours {
            tile::<4, 1>(args, four, rows.start, y);
        }
        left = rest;
    }
    let (pairs, left) = interleaved_panels::<2>(left, bytes);
    for pair in pairs {
        stream(args, pair, rows.clone(), y);
    }
    for panel in left {
        stream(args, [panel], rows.clone(), y);
    }
}

/// Multiplies panels × activation rows, in tiles that are as even as possible. The time of a tile hardly
/// grows up to four rows, whose sums fit the registers.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn stream<const P: usize>(
    args: &TernaryArgs<'_, Vbmi>,
    panels: [usize; P],
    rows: Range<usize>,
    y: &mut Columns<'_>,
) {
    let mut row = rows.start;
    while row < rows.end {
        let left = rows.end - row;
        let rows = left.div_ceil(left.div_ceil(4));
        match rows {
            1 => tile::<P, 1>(args, panels, row, y),
            2 => tile::<P, 2>(args, panels, row, y),
            3 => panels.iter().for_each(|&panel| tile::<1, 3>(args, [panel], row, y)),
            _ => panels.iter().for_each(|&panel| tile::<1, 4>(args, [panel], row, y)),
        }
        row += rows;
    }
}

/// Multiplies `P` panels × `N` activation rows from `row` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn tile<const P: usize, const N: usize>(
    args: &TernaryArgs<'_, Vbmi>,
    panels: [usize; P],
    row: usize,
    y: &mut Columns<'_>,
) {
    let mut totals = [[[_mm512_setzero_ps()]; N]; P];
    for g in 0..args.groups {
        let blocks = args.tight_group(g);
        // Loops: closures with these CPU features are not inlined into `array::map`.
        let (mut codes, mut xs) = ([&[][..]; P], [&[][..]; N]);
        for (codes, panel) in codes.iter_mut().zip(panels) {
            *codes = &args.tight(panel)[blocks.clone()];
        }
        for (n, x) in xs.iter_mut().enumerate() {
            *x = args.tight_activations(row + n, g);
        }
        let sums = match args.groups {
            1 => dot(codes, xs),
            _ => group_dot(codes, xs, blocks.start),
        };
        for p in 0..P {
            let scales = args.scales(panels[p], g);
            for n in 0..N {
                let [first, second, third] = sums[p][n];
                // Codes were not shifted, so sums are 1, 4 and 16 times too large.
                let (second, third) =
                    (_mm512_srai_epi32::<2>(second), _mm512_srai_epi32::<4>(third));
                let exact = _mm512_add_epi32(_mm512_add_epi32(first, second), third);
                args.add_scaled(&mut totals[p][n], [exact], (row + n, g), scales);
            }
        }
    }
    for (panel, totals) in panels.into_iter().zip(totals) {
        args.store(panel, row, &totals, y);
    }
}

/// As [`dot`], for the blocks of a group, the first of which is the panel's `first`-th. Activations end
/// with the group; the codes after them are padding.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn group_dot<const P: usize, const N: usize>(
    codes: [&[[u8; BYTES]]; P],
    xs: [&[i8]; N],
    first: usize,
) -> [[[__m512i; FIELDS]; N]; P] {
    let decoder = Decoder::new();
    let mut sums = [[[_mm512_setzero_si512(); FIELDS]; N]; P];
    let last = codes[0].len() - 1;
    let (mut whole, mut rest) = ([&[][..]; N], [[0; COLS]; N]);
    for n in 0..N {
        let (chunks, tail) = xs[n].split_at(last * COLS);
        whole[n] = &chunks.as_chunks::<COLS>().0[..last];
        rest[n][..tail.len()].copy_from_slice(tail);
    }
    for b in 0..last {
        // Each line is prefetched once, as in `dot`.
        let lines_before = ((first + b) * BYTES).div_ceil(LINE);
        let begins = lines_before * LINE < (first + b + 1) * BYTES;
        for p in 0..P {
            let block = codes[p][b].as_ptr();
            if begins {
                prefetch(block, AHEAD + lines_before * LINE - (first + b) * BYTES);
            }
            // SAFETY: another block follows, so there are 64 bytes.
            let fields = decoder.fields(unsafe { _mm512_loadu_si512(block.cast()) });
            for n in 0..N {
                add(&mut sums[p][n], fields, &whole[n][b]);
            }
        }
    }
    for p in 0..P {
        let fields = decoder.fields(decoder.block(&codes[p][last]));
        for n in 0..N {
            add(&mut sums[p][n], fields, &rest[n]);
        }
    }
    sums
}

/// Returns Σ c·q of 16 rows of each panel × `N` activation rows, per field, times 1, 4 or 16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
#[allow(clippy::needless_range_loop)] // All of `codes` and `xs` share an index.
fn dot<const P: usize, const N: usize>(
    codes: [&[[u8; BYTES]]; P],
    xs: [&[i8]; N],
) -> [[[__m512i; FIELDS]; N]; P] {
    let decoder = Decoder::new();
    let mut chunks: [&[[i8; COLS]]; N] = [&[]; N];
    for (chunks, x) in chunks.iter_mut().zip(xs) {
        *chunks = &x.as_chunks().0[..codes[0].len()];
    }
    let xs = chunks;
    let mut sums = [[[_mm512_setzero_si512(); FIELDS]; N]; P];
    // Only groups of blocks that another block follows.
    let lines = codes[0].len().saturating_sub(1) / LINED;
    let (mut lined, mut xs_lined) = ([&[][..]; P], [&[][..]; N]);
    for (lined, codes) in lined.iter_mut().zip(codes) {
        *lined = &codes.as_chunks::<LINED>().0[..lines];
    }
    for (lined, x) in xs_lined.iter_mut().zip(xs) {
        *lined = &x.as_chunks::<LINED>().0[..lines];
    }
    for i in 0..lines {
        for b in 0..LINED {
            for p in 0..P {
                let blocks = &lined[p][i];
                // Each line is prefetched once, with the block in which it begins. Repeated prefetches, or
                // all lines at once, take up to twice as long.
                let line = (b * BYTES).div_ceil(LINE);
                if line * LINE < (b + 1) * BYTES {
                    prefetch(blocks.as_ptr().cast(), AHEAD + line * LINE);
                }
                // SAFETY: another block follows, so there are 64 bytes.
                let bytes = unsafe { _mm512_loadu_si512(blocks[b].as_ptr().cast()) };
                let fields = decoder.fields(bytes);
                for n in 0..N {
                    add(&mut sums[p][n], fields, &xs_lined[n][i][b]);
                }
            }
        }
    }
    for p in 0..P {
        for i in lines * LINED..codes[p].len() {
            let fields = decoder.fields(decoder.block(&codes[p][i]));
            for n in 0..N {
                add(&mut sums[p][n], fields, &xs[n][i]);
            }
        }
    }
    sums
}

/// Adds c·q of a block's 16 rows and an activation row, times 1, 4 or 16 per field.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn add(sums: &mut [__m512i; FIELDS], fields: [__m512i; FIELDS], x: &[i8; COLS]) {
    let quads: &[[i8; 4]; FIELDS] = bytemuck::must_cast_ref(x);
    for ((sum, w), x) in sums.iter_mut().zip(fields).zip(quads) {
        *sum = _mm512_dpbusd_epi32(*sum, w, _mm512_set1_epi32(bytemuck::must_cast(*x)));
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
