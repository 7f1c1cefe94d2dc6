//! int8 × int8 with `vpdpbusd`, whose first operand is unsigned. Weights are shifted by 128 in registers,
//! and 128 · Σ q is subtracted once per group of columns. Two planes of activations are multiplied
//! separately, because 8-bit products take half the instructions, and then joined.

mod registers;

use super::Avx512;
use super::lanes::{Wide, wide_add, wide_join, wide_round, wide_zero};
use crate::kernel::Quantized;
use crate::kernel::avx2::{prefetch, prefetch_stream};
use crate::kernel::operands::MatrixGroupSteps;
use crate::kernel::packing::{BLOCK, BLOCKS, SIX, SPLIT, UPPER, WHOLE, lines};
use crate::kernel::panel_rows::{self, add_scaled_group};
use crate::kernel::panels::interleaved_panels;
use crate::matrix::{INT8_BLOCK_COLS, INT8_PAD_COLS, Int8Panel, Int8Scales, Int8View, Packing};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Prefetch distance to the second-level cache in bytes.
const SECOND_LEVEL: usize = 3072;
/// Prefetch distance to the first-level cache in bytes.
const FIRST_LEVEL: usize = 1024;
/// Prefetch distance of the scales of short groups, in groups.
const GROUPS_AHEAD: usize = 12;
/// Most strips whose products fit 32-bit sums: 16 columns · 128 · 255 · 4,096 strips < 2³¹.
const CHUNK: usize = 4096;
/// Most strips whose sums with joined planes fit 32 bits: 16 columns · 128 · 32,768 · 16 strips < 2³¹.
const SHORT: usize = 16;

/// The shift of weights by 128, as a mask of the bits that it flips.
const SHIFT: i8 = -128;

/// Activations, and the offsets that the shift of weights adds to their products.
#[derive(Clone, Copy)]
struct ShiftedInputs<'a> {
    x: &'a Quantized<'a>,
    /// 128 · Σ of a token's joined values in each group, `[token][group]`.
    offsets: &'a [i64],
}

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, rearranged, .. } = scratch;
    let offsets = offsets(w, x, ints);
    if registers::applies(w, x) {
        return registers::batch(w, panels, (x, offsets), y, rearranged);
    }
    let x = ShiftedInputs { x, offsets };
    match w.packing() {
        Packing::Whole => planes::<WHOLE>(w, panels, x, y),
        Packing::Upper => planes::<UPPER>(w, panels, x, y),
        Packing::Six => planes::<SIX>(w, panels, x, y),
        Packing::Split => planes::<SPLIT>(w, panels, x, y),
    }
}

/// Computes the offsets of [`ShiftedInputs`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn offsets<'s>(w: Int8View<'_>, x: &Quantized<'_>, out: &'s mut AlignedVec<i32>) -> &'s [i64] {
    let (groups, tokens) = (w.groups(), x.tokens());
    out.grow(2 * tokens * groups);
    let out: &mut [i64] = bytemuck::cast_slice_mut(&mut out[..2 * tokens * groups]);
    out.fill(0);
    for row in 0..x.rows() {
        let out = &mut out[row / x.planes * groups..][..groups];
        let mut add =
            |g: usize, sum: i32| out[g] = 256 * out[g] - i64::from(SHIFT) * i64::from(sum);
        if groups == 1 {
            add(0, x.sums[row]);
            continue;
        }
        for (g, values) in x.row(row)[..w.cols()].chunks(w.group()).enumerate() {
            add(g, values.iter().map(|&v| i32::from(v)).sum());
        }
    }
    out
}

/// Computes the product with packing `W`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn planes<const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: ShiftedInputs<'_>,
    y: &mut Columns<'_>,
) {
    match x.x.planes {
        1 => product::<1, W>(w, panels, x, y),
        _ => product::<2, W>(w, panels, x, y),
    }
}

/// Computes the product with `P` planes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn product<const P: usize, const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: ShiftedInputs<'_>,
    y: &mut Columns<'_>,
) {
    let (first, bytes) = (panels.start, w.panel_bytes());
    let mut left = panels;
    // Whole values take so little work that the end of a panel costs more than four streams do.
    if W == WHOLE && x.x.tokens() == 1 {
        let (fours, rest) = interleaved_panels::<4>(left, bytes);
        for four in fours {
            tile::<4, 1, P, W>(w, (four, first), x, 0, y);
        }
        left = rest;
    }
    let (pairs, left) = interleaved_panels::<2>(left, bytes);
    for pair in pairs {
        stream::<2, P, W>(w, (pair, first), x, y);
    }
    for panel in left {
        stream::<1, P, W>(w, ([panel], first), x, y);
    }
}

/// Multiplies `S` interleaved panels × all tokens; outputs start with the panel `first`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn stream<const S: usize, const P: usize, const W: u8>(
    w: Int8View<'_>,
    (panels, first): ([usize; S], usize),
    x: ShiftedInputs<'_>,
    y: &mut Columns<'_>,
) {
    // With short groups, the sums, scales and addresses of four tokens exceed the registers.
    let most = if w.group() <= 2 * INT8_PAD_COLS { 2 } else { 4 };
    let mut token = 0;
    while token < x.x.tokens() {
        let tokens = (x.x.tokens() - token).min(most);
        let one = |panel| ([panel], first);
        match tokens {
            4 => panels.iter().for_each(|&p| tile::<1, 4, P, W>(w, one(p), x, token, y)),
            3 => panels.iter().for_each(|&p| tile::<1, 3, P, W>(w, one(p), x, token, y)),
            2 => tile::<S, 2, P, W>(w, (panels, first), x, token, y),
            _ => tile::<S, 1, P, W>(w, (panels, first), x, token, y),
        }
        token += tokens;
    }
}

/// Multiplies `S` panels × `N` tokens from `token` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile<const S: usize, const N: usize, const P: usize, const W: u8>(
    w: Int8View<'_>,
    (panels, first): ([usize; S], usize),
    ShiftedInputs { x, offsets }: ShiftedInputs<'_>,
    token: usize,
    y: &mut Columns<'_>,
) {
    let mut xs: [Token<'_, P>; N] = [Token { blocks: [&[]; P], offsets: &[] }; N];
    for (n, x_token) in xs.iter_mut().enumerate() {
        for (p, blocks) in x_token.blocks.iter_mut().enumerate() {
            let row = x.row_chunks::<INT8_PAD_COLS>((token + n) * P + p);
            *blocks = &row.as_flattened().as_chunks().0[..w.strips() * BLOCKS];
        }
        x_token.offsets = &offsets[(token + n) * w.groups()..][..w.groups()];
    }
    let steps = (x.matrix_group_steps(w.cols(), w.group()), token);
    // GGUF files have groups of 16 and 32 columns: so many groups that each must cost little.
    let even = w.cols().is_multiple_of(w.group());
    let totals = match w.group().div_ceil(INT8_PAD_COLS) {
        1 if even => short_groups::<S, N, P, W, 1>(w, panels, &xs, steps),
        2 if even => short_groups::<S, N, P, W, 2>(w, panels, &xs, steps),
        strips => groups::<S, N, P, W>(w, panels, strips, &xs, steps),
    };
    for s in 0..S {
        let from = (panels[s] - first) * PANEL_ROWS;
        for (n, total) in totals[s].iter().enumerate() {
            let out = &mut y.row(token + n)[from..];
            panel_rows::store(Avx512::new(), [*total], x.joined_step(token + n), out, false);
        }
    }
}

/// Activations of a token.
#[derive(Clone, Copy)]
struct Token<'a, const P: usize> {
    /// Activations of each plane, `[block]`.
    blocks: [&'a [[i8; INT8_BLOCK_COLS]]; P],
    /// See [`ShiftedInputs`], `[group]`.
    offsets: &'a [i64],
}

/// Returns Σ w·q of 16 rows of each panel × `N` tokens, rounded once per group of `strips` strips.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn groups<const S: usize, const N: usize, const P: usize, const W: u8>(
    w: Int8View<'_>,
    panels: [usize; S],
    strips: usize,
    xs: &[Token<'_, P>; N],
    (steps, token): (Option<MatrixGroupSteps<'_>>, usize),
) -> [[__m512; N]; S] {
    let scales = panels.map(|panel| w.scales(panel));
    let mut totals = [[_mm512_setzero_ps(); N]; S];
    for g in 0..w.groups() {
        let range = g * strips..((g + 1) * strips).min(w.strips());
        scales.iter().for_each(|scales| fetch_scales(scales, g, 0));
        let exact = group::<S, N, P, W>(w, panels, range, xs, g);
        for s in 0..S {
            let scales = panel_rows::int8_scales(Avx512::new(), &scales[s], g);
            for n in 0..N {
                let (total, at) = (std::array::from_mut(&mut totals[s][n]), (token + n, g));
                add_scaled_group(Avx512::new(), total, [exact[s][n]], scales, steps, at);
            }
        }
    }
    totals
}

/// Prefetches the scales of the group that is `ahead` groups after this one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn fetch_scales(scales: &Int8Scales<'_>, group: usize, ahead: usize) {
    match scales {
        Int8Scales::Float(scales) => {
            prefetch(scales[group].as_ptr(), ahead * size_of_val(&scales[0]))
        }
        Int8Scales::Parts(parts, _) => {
            prefetch(parts[group].as_ptr(), ahead * size_of_val(&parts[0]))
        }
    }
}

/// As [`groups`], if all groups have `G` strips, at most [`SHORT`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
#[allow(clippy::needless_range_loop)] // All panels and tokens share an index.
fn short_groups<const S: usize, const N: usize, const P: usize, const W: u8, const G: usize>(
    w: Int8View<'_>,
    panels: [usize; S],
    xs: &[Token<'_, P>; N],
    (steps, token): (Option<MatrixGroupSteps<'_>>, usize),
) -> [[__m512; N]; S] {
    let values = panels.map(|panel| w.panel(panel, 0..w.strips()));
    let scales = panels.map(|panel| w.scales(panel));
    let mut totals = [[_mm512_setzero_ps(); N]; S];
    for g in 0..w.groups() {
        let sums = dot::<S, N, P, W, 1>(&values, 0, xs, g * G..g * G + G);
        for s in 0..S {
            fetch_scales(&scales[s], g, GROUPS_AHEAD);
            let scales = panel_rows::int8_scales(Avx512::new(), &scales[s], g);
            for n in 0..N {
                let exact = _mm512_cvtepi32_ps(join_short(&sums[s][n], xs[n].offsets[g]));
                let (total, at) = (std::array::from_mut(&mut totals[s][n]), (token + n, g));
                add_scaled_group(Avx512::new(), total, [exact], scales, steps, at);
            }
        }
    }
    totals
}

/// Returns Σ w·q of 16 rows of each panel × `N` tokens over the strips of a group, rounded once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
#[allow(clippy::needless_range_loop)] // All panels and tokens share an index.
fn group<const S: usize, const N: usize, const P: usize, const W: u8>(
    w: Int8View<'_>,
    panels: [usize; S],
    range: Range<usize>,
    xs: &[Token<'_, P>; N],
    group: usize,
) -> [[__m512; N]; S] {
    let values = panels.map(|panel| w.panel(panel, range.clone()));
    let mut out = [[_mm512_setzero_ps(); N]; S];
    if range.len() <= SHORT {
        let sums = dot::<S, N, P, W, 2>(&values, range.start, xs, range);
        for s in 0..S {
            for n in 0..N {
                out[s][n] = _mm512_cvtepi32_ps(join_short(&sums[s][n], xs[n].offsets[group]));
            }
        }
        return out;
    }
    let mut exact = [[[_mm512_setzero_si512(); 2]; N]; S];
    for from in range.clone().step_by(CHUNK) {
        let part = from..range.end.min(from + CHUNK);
        let sums = dot::<S, N, P, W, 2>(&values, range.start, xs, part);
        for (exact, sums) in exact.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            let joined = join(sums);
            *exact = [0, 1].map(|h| _mm512_add_epi64(exact[h], joined[h]));
        }
    }
    for s in 0..S {
        for n in 0..N {
            let offset = _mm512_set1_epi64(xs[n].offsets[group]);
            [out[s][n]] = wide_round(exact[s][n].map(|e| _mm512_sub_epi64(e, offset)));
        }
    }
    out
}

/// As [`join`], for sums over at most [`SHORT`] strips, minus the offset of the shift.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn join_short<const P: usize>(planes: &[__m512i; P], offset: i64) -> __m512i {
    let mut joined = planes[0];
    for low in &planes[1..] {
        joined = _mm512_add_epi32(_mm512_slli_epi32::<8>(joined), *low);
    }
    _mm512_sub_epi32(joined, _mm512_set1_epi32(offset as i32))
}

/// Returns the exact Σ (w + 128)·q of 16 rows of each panel × `P` planes of `N` tokens over some strips,
/// in `C` chains that hide the latency. `values` begin with the strip `first`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
#[allow(clippy::needless_range_loop)] // All of `values` and `xs` share an index.
fn dot<const S: usize, const N: usize, const P: usize, const W: u8, const C: usize>(
    values: &[Int8Panel<'_>; S],
    first: usize,
    xs: &[Token<'_, P>; N],
    range: Range<usize>,
) -> [[[__m512i; P]; N]; S] {
    let mut chains = [[[[_mm512_setzero_si512(); C]; P]; N]; S];
    // The same instruction reads a line of each panel in turn. The hardware prefetcher follows addresses
    // that one instruction reads from front to back.
    let lines = const { lines(W).0 };
    for line in range.start * lines..range.end * lines {
        for s in 0..S {
            fetch::<W>(&values[s], line - first * lines);
            for part in 0..BLOCKS / lines {
                let w = block::<W>(&values[s], line - first * lines, part, SHIFT);
                for n in 0..N {
                    for p in 0..P {
                        let x = xs[n].blocks[p][line * (BLOCKS / lines) + part];
                        let x = _mm512_set1_epi32(bytemuck::must_cast(x));
                        let sum = &mut chains[s][n][p][part % C];
                        *sum = _mm512_dpbusd_epi32(*sum, w, x);
                    }
                }
            }
        }
    }
    let mut sums = [[[_mm512_setzero_si512(); P]; N]; S];
    for s in 0..S {
        for n in 0..N {
            for p in 0..P {
                let chains = &chains[s][n][p];
                sums[s][n][p] = match C {
                    1 => chains[0],
                    _ => _mm512_add_epi32(chains[0], chains[1]),
                };
            }
        }
    }
    sums
}

/// Joins the sums of 16 rows with a token's planes to those with its joined values, in 64 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn join(planes: &[__m512i]) -> Wide {
    let mut joined = wide_zero();
    for plane in planes {
        joined = wide_join(joined, wide_add(wide_zero(), [*plane]));
    }
    joined
}

/// Prefetches ahead of the `line`-th line of the values and of the lower plane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn fetch<const W: u8>(w: &Int8Panel<'_>, line: usize) {
    let (values, low) = const { lines(W) };
    prefetch_stream(w.values.as_chunks::<BLOCK>().0[line].as_ptr(), SECOND_LEVEL, FIRST_LEVEL);
    if low == values {
        prefetch_stream(w.low.as_chunks::<BLOCK>().0[line].as_ptr(), SECOND_LEVEL, FIRST_LEVEL);
    } else if low > 0 && line.is_multiple_of(values / low) {
        prefetch_stream(
            w.low.as_chunks::<BLOCK>().0[line * low / values].as_ptr(),
            SECOND_LEVEL,
            FIRST_LEVEL,
        );
    }
}

/// Returns the line of the values that has the `block`-th block of a strip, and the block's index in it.
#[inline]
pub const fn block_position<const W: u8>(strip: usize, block: usize) -> (usize, usize) {
    let lines = const { lines(W).0 };
    (strip * lines + block * lines / BLOCKS, block % (BLOCKS / lines))
}

/// Returns the `part`-th block of the `line`-th line of the values, XOR `flip`. It avoids `map` and
/// `from_fn`, which are compiled without the CPU features and not always inlined.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn block<const W: u8>(w: &Int8Panel<'_>, line: usize, part: usize, flip: i8) -> __m512i {
    let values = bytemuck::must_cast(w.values.as_chunks::<BLOCK>().0[line]);
    let flip = _mm512_set1_epi8(flip);
    if W == WHOLE {
        return _mm512_xor_si512(values, flip);
    }
    // Shifts of wider lanes bring in bits of neighboring bytes, which are masked.
    let value = if part == 1 { values } else { _mm512_slli_epi16::<4>(values) };
    let upper = _mm512_set1_epi8(0xf0_u8 as i8);
    if W == UPPER {
        let fill = _mm512_xor_si512(_mm512_set1_epi8(w.fill as i8), flip);
        return masked(value, upper, fill);
    }
    let (low, mask) = if W == SIX {
        let low = bytemuck::must_cast(w.low.as_chunks::<BLOCK>().0[line / 2]);
        // Bits 2k and 2k + 1 of a strip's k-th block are rotated to bits 2 and 3.
        let rotation = 2 * (2 * (line % 2) + part) as i32 - 2;
        (_mm512_rorv_epi32(low, _mm512_set1_epi32(rotation)), _mm512_set1_epi8(0b1100))
    } else {
        let low = bytemuck::must_cast(w.low.as_chunks::<BLOCK>().0[line]);
        let low = if part == 1 { _mm512_srli_epi16::<4>(low) } else { low };
        (low, _mm512_set1_epi8(15))
    };
    masked(value, upper, masked(low, mask, flip))
}

/// Returns (a & mask) ^ rest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn masked(a: __m512i, mask: __m512i, rest: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0b0110_1010>(a, mask, rest)
}
