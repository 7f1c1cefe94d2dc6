//! Products of the tight layout for up to eight rows, which memory bandwidth limits, or decoding.

use super::{AHEAD, Decoder, LINE};
use crate::kernel::avx2::prefetch;
use crate::kernel::avx512::Vbmi;
use crate::kernel::panels::interleaved_panels;
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::Layout;
use crate::ternary::tight::{BYTES, COLS, FIELDS};
use std::arch::x86_64::*;
use std::ops::Range;

/// Most rows of a tile, whose sums fit the registers.
const TILE: usize = 8;

/// Activations in blocks of the tight layout, `[row][group][block]`.
struct BlockRows<'a> {
    blocks: &'a [[i8; COLS]],
    /// First row.
    first: usize,
    /// Number of blocks of a row.
    stride: usize,
}

impl<'a> BlockRows<'a> {
    /// Copies the rows and pads each group of columns to whole blocks with zeros.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
    fn new(
        args: &TernaryArgs<'_, Vbmi>,
        rows: &Range<usize>,
        buffer: &'a mut AlignedVec<i8>,
    ) -> Self {
        let group_blocks = args.w.group_blocks(Layout::Tight);
        let (first, stride) = (rows.start, args.groups * group_blocks);
        buffer.grow(rows.len() * stride * COLS);
        let blocks: &mut [[i8; COLS]] = &mut buffer.as_chunks_mut().0[..rows.len() * stride];
        let groups = blocks.as_flattened_mut().chunks_exact_mut(group_blocks * COLS);
        for (i, padded) in groups.enumerate() {
            let columns = args.group_columns(i % args.groups);
            let (own, padding) = padded.split_at_mut(columns.len().min(group_blocks * COLS));
            own.copy_from_slice(&args.x.row(rows.start + i / args.groups)[columns][..own.len()]);
            padding.fill(0);
        }
        Self { blocks, first, stride }
    }

    /// Returns some blocks of a row.
    #[inline(always)]
    fn blocks(&self, row: usize, blocks: &Range<usize>) -> &'a [[i8; COLS]] {
        let from = (row - self.first) * self.stride;
        &self.blocks[from + blocks.start..from + blocks.end]
    }
}

/// Multiplies panels × some activation rows. A single row takes four interleaved panels, because two decode
/// hardly faster than memory delivers them (four are 1.05 to 1.1 times as fast on a Xeon with AVX-512).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
pub fn streams(
    args: &TernaryArgs<'_, Vbmi>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    padded: &mut AlignedVec<i8>,
) {
    let x = &BlockRows::new(args, &rows, padded);
    let (mut left, bytes) = (panels, args.w.panel_bytes());
    if rows.len() == 1 {
        let (fours, rest) = interleaved_panels::<4>(left, bytes);
        for four in fours {
            tile::<4, 1>(args, four, x, rows.start, y);
        }
        left = rest;
    }
    let (pairs, left) = interleaved_panels::<2>(left, bytes);
    for pair in pairs {
        stream(args, pair, x, rows.clone(), y);
    }
    for panel in left {
        stream(args, [panel], x, rows.clone(), y);
    }
}

/// Multiplies panels × activation rows, in tiles that are as even as possible.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn stream<const P: usize>(
    args: &TernaryArgs<'_, Vbmi>,
    panels: [usize; P],
    x: &BlockRows<'_>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
) {
    let mut row = rows.start;
    while row < rows.end {
        let left = rows.end - row;
        let rows = left.div_ceil(left.div_ceil(TILE));
        match rows {
            1 => tile::<P, 1>(args, panels, x, row, y),
            2 => tile::<P, 2>(args, panels, x, row, y),
            3 => tile::<P, 3>(args, panels, x, row, y),
            4 => each::<4>(args, &panels, x, row, y),
            5 => each::<5>(args, &panels, x, row, y),
            6 => each::<6>(args, &panels, x, row, y),
            7 => each::<7>(args, &panels, x, row, y),
            _ => each::<TILE>(args, &panels, x, row, y),
        }
        row += rows;
    }
}

/// Multiplies one panel after the other × `N` activation rows from `row` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn each<const N: usize>(
    args: &TernaryArgs<'_, Vbmi>,
    panels: &[usize],
    x: &BlockRows<'_>,
    row: usize,
    y: &mut Columns<'_>,
) {
    for &panel in panels {
        tile::<1, N>(args, [panel], x, row, y);
    }
}

/// Multiplies `P` panels × `N` activation rows from `row` on. Not inlined: each number of rows has registers of
/// its own.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn tile<const P: usize, const N: usize>(
    args: &TernaryArgs<'_, Vbmi>,
    panels: [usize; P],
    x: &BlockRows<'_>,
    row: usize,
    y: &mut Columns<'_>,
) {
    let decoder = Decoder::new();
    let mut totals = [[[_mm512_setzero_ps()]; N]; P];
    for g in 0..args.groups {
        let blocks = args.tight_group(g);
        // Loops: closures with these CPU features are not inlined into `array::map`.
        let (mut codes, mut xs) = ([&[][..]; P], [&[][..]; N]);
        for (codes, panel) in codes.iter_mut().zip(panels) {
            *codes = &args.tight(panel)[blocks.clone()];
        }
        for (n, xs) in xs.iter_mut().enumerate() {
            *xs = x.blocks(row + n, &blocks);
        }
        // Σ c·q − Σ q begins with − Σ q.
        let mut sums = [[[_mm512_setzero_si512(); FIELDS]; N]; P];
        for n in 0..N {
            let excess = _mm512_set1_epi32(-args.sum(row + n, g));
            for sums in &mut sums {
                sums[n][0] = excess;
            }
        }
        dot(decoder, codes, xs, &mut sums);
        for p in 0..P {
            let scales = args.scales(panels[p], g);
            for n in 0..N {
                let value = _mm512_cvtepi32_ps(joined::<N>(sums[p][n]));
                args.add_value(&mut totals[p][n], [value], (row + n, g), scales);
            }
        }
    }
    for (panel, totals) in panels.into_iter().zip(totals) {
        args.store(panel, row, &totals, y);
    }
}

/// Number of chains of sums of a row. They hide the latency of `vpdpbusd`, which many rows do as well.
const fn chains(rows: usize) -> usize {
    if rows > 5 { 1 } else { FIELDS }
}

/// True if codes are shifted rather than sums. For one row that is more work.
const fn shifted(rows: usize) -> bool {
    rows > 1
}

/// Adds a row's sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn joined<const N: usize>([first, mut second, mut third]: [__m512i; FIELDS]) -> __m512i {
    if !shifted(N) {
        // They are 4 and 16 times too large.
        (second, third) = (_mm512_srai_epi32::<2>(second), _mm512_srai_epi32::<4>(third));
    }
    match chains(N) {
        1 => first,
        _ => _mm512_add_epi32(_mm512_add_epi32(first, second), third),
    }
}

/// Adds Σ c·q of 16 rows of each panel × `N` activation rows to the sums, which [`joined`] adds.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
#[allow(clippy::needless_range_loop)] // All of `codes` and `xs` share an index.
fn dot<const P: usize, const N: usize>(
    decoder: Decoder,
    codes: [&[[u8; BYTES]]; P],
    xs: [&[[i8; COLS]]; N],
    sums: &mut [[[__m512i; FIELDS]; N]; P],
) {
    let Some(last) = codes[0].len().checked_sub(1) else { return };
    let (mut followed, mut rows) = ([&[][..]; P], [&[][..]; N]);
    for (followed, codes) in followed.iter_mut().zip(codes) {
        *followed = &codes[..last];
    }
    for (rows, x) in rows.iter_mut().zip(xs) {
        *rows = &x[..last];
    }
    // Each line is prefetched once, with the block in which it begins. Repeated prefetches, or all lines at
    // once, take up to twice as long.
    let mut line = codes[0].as_ptr().cast::<u8>().align_offset(LINE);
    for b in 0..last {
        let begins = line < BYTES;
        for p in 0..P {
            let block = followed[p][b].as_ptr();
            if begins {
                prefetch(block, AHEAD + line);
            }
            // SAFETY: another block follows, so there are 64 bytes.
            let bytes = unsafe { _mm512_loadu_si512(block.cast()) };
            let mut x = [&[0; COLS]; N];
            for n in 0..N {
                x[n] = &rows[n][b];
            }
            add(&mut sums[p], decoder, bytes, &x);
        }
        line = if begins { line + LINE - BYTES } else { line - BYTES };
    }
    for p in 0..P {
        if line < BYTES {
            prefetch(codes[p][last].as_ptr(), AHEAD + line);
        }
        let mut x = [&[0; COLS]; N];
        for n in 0..N {
            x[n] = &xs[n][last];
        }
        add(&mut sums[p], decoder, decoder.block(&codes[p][last]), &x);
    }
}

/// Adds c·q of the block at the beginning of `bytes` and of each activation row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn add<const N: usize>(
    sums: &mut [[__m512i; FIELDS]; N],
    decoder: Decoder,
    bytes: __m512i,
    xs: &[&[i8; COLS]; N],
) {
    let fields = if shifted(N) { decoder.looked_up(bytes) } else { decoder.fields(bytes) };
    for (sums, x) in sums.iter_mut().zip(xs) {
        let quads: &[[i8; 4]; FIELDS] = bytemuck::must_cast_ref(*x);
        for (f, (field, x)) in fields.iter().zip(quads).enumerate() {
            let sum = &mut sums[f % chains(N)];
            *sum = _mm512_dpbusd_epi32(*sum, *field, _mm512_set1_epi32(bytemuck::must_cast(*x)));
        }
    }
}
