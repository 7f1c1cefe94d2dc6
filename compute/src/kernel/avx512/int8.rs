//! int8 × int8 with `vpdpbusd`, whose first operand is unsigned: activations are shifted by 128,
//! and 128 · Σ w is taken off again. Two planes are multiplied apart, as narrow values need half
//! the instructions, and joined in 64 bits. Weights in planes of four bits are put together in registers.

use super::ternary::store;
use crate::kernel::Quantised;
use crate::kernel::avx2::prefetch;
use crate::matrix::{INT8_BLOCK_COLS, Int8Panel, Int8View, Packing};
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// How far ahead of the panel's walk memory is asked for, in bytes.
const AHEAD: usize = 2048;
/// Bytes in a block of 16 rows × 4 columns.
const BLOCK: usize = PANEL_ROWS * INT8_BLOCK_COLS;
/// Pairs of blocks whose products fit 32-bit sums: 8 columns · 128 · 255 · 8,192 pairs < 2³¹.
const CHUNK: usize = 8192;
/// Pairs whose sums with joined planes fit 32 bits: 8 columns · 128 · 32,768 · 32 pairs < 2³¹.
const SHORT: usize = 32;

/// [`Packing`], as a parameter of functions.
pub const WHOLE: u8 = Packing::Whole as u8;
pub const UPPER: u8 = Packing::Upper as u8;
pub const SPLIT: u8 = Packing::Split as u8;

/// Activations of a pair of blocks.
type Pair = [[i8; INT8_BLOCK_COLS]; 2];

/// See the scalar definition.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    _: &mut Scratch,
) {
    match w.packing() {
        Packing::Whole => planes::<WHOLE>(w, panels, x, y),
        Packing::Upper => planes::<UPPER>(w, panels, x, y),
        Packing::Split => planes::<SPLIT>(w, panels, x, y),
    }
}

/// The product with weights packed like this.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn planes<const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
) {
    match x.planes {
        1 => product::<1, W>(w, panels, x, y),
        _ => product::<2, W>(w, panels, x, y),
    }
}

/// The product with `P` planes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn product<const P: usize, const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
) {
    let first = panels.start;
    for panel in panels {
        let mut token = 0;
        while token < x.tokens() {
            let from = (panel - first) * PANEL_ROWS;
            token += match x.tokens() - token {
                4.. => tile::<4, P, W>(w, panel, x, token, from, y),
                3 => tile::<3, P, W>(w, panel, x, token, from, y),
                2 => tile::<2, P, W>(w, panel, x, token, from, y),
                _ => tile::<1, P, W>(w, panel, x, token, from, y),
            };
        }
    }
}

/// One panel × `N` tokens from `token` on; returns `N`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn tile<const N: usize, const P: usize, const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    x: &Quantised<'_>,
    token: usize,
    from: usize,
    y: &mut Columns<'_>,
) -> usize {
    let mut xs: [[&[Pair]; P]; N] = [[&[]; P]; N];
    for (r, x_row) in xs.as_flattened_mut().iter_mut().enumerate() {
        *x_row = &bytemuck::must_cast_slice(x.row_chunks::<8>(token * P + r))[..w.pairs()];
    }
    let group_pairs = w.group().div_ceil(2 * INT8_BLOCK_COLS);
    let scales = w.scales().as_chunks::<64>().0;
    let mut totals = [_mm512_setzero_ps(); N];
    for g in 0..w.groups() {
        let range = g * group_pairs..((g + 1) * group_pairs).min(w.pairs());
        let xs = xs.map(|x| x.map(|x| &x[range.clone()]));
        let exact = group::<N, P, W>(w, panel, range, xs);
        let scales: __m512 = bytemuck::must_cast(scales[panel * w.groups() + g]);
        for n in 0..N {
            totals[n] = _mm512_add_ps(totals[n], _mm512_mul_ps(exact[n], scales));
        }
    }
    for (n, total) in totals.iter().enumerate() {
        store(*total, x.joined_step(token + n), &mut y.row(token + n)[from..], false);
    }
    N
}

/// Σ w·q of 16 rows × `N` tokens over a group, rounded once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn group<const N: usize, const P: usize, const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    range: Range<usize>,
    xs: [[&[Pair]; P]; N],
) -> [__m512; N] {
    if range.len() <= SHORT {
        let sums = dot::<N, P, W>(w.panel(panel, range), xs);
        return sums.map(|sums| _mm512_cvtepi32_ps(join_short(&sums)));
    }
    let mut exact = [[_mm512_setzero_si512(); 2]; N];
    for from in (0..range.len()).step_by(CHUNK) {
        let part = from..range.len().min(from + CHUNK);
        let values = w.panel(panel, range.start + part.start..range.start + part.end);
        let sums = dot::<N, P, W>(values, xs.map(|x| x.map(|x| &x[part.clone()])));
        for (exact, sums) in exact.iter_mut().zip(&sums) {
            let joined = join(sums);
            *exact = [0, 1].map(|h| _mm512_add_epi64(exact[h], joined[h]));
        }
    }
    exact.map(|e| rounded(e))
}

/// Exact sums as floats, rounded once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn rounded(exact: [__m512i; 2]) -> __m512 {
    bytemuck::must_cast(exact.map(|e| _mm512_cvtepi64_ps(e)))
}

/// As [`join`], of sums over at most [`SHORT`] pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn join_short<const P: usize>(planes: &[__m512i; P]) -> __m512i {
    planes[1..]
        .iter()
        .fold(planes[0], |high, low| _mm512_add_epi32(_mm512_slli_epi32::<8>(high), *low))
}

/// The sums of 16 rows with a token's planes as those with its joined values, in 64 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn join<const P: usize>(planes: &[__m512i; P]) -> [__m512i; 2] {
    let mut out = [_mm512_setzero_si512(); 2];
    for plane in planes {
        let halves: [__m256i; 2] = bytemuck::must_cast(*plane);
        for h in 0..2 {
            let high = _mm512_slli_epi64::<8>(out[h]);
            out[h] = _mm512_add_epi64(high, _mm512_cvtepi32_epi64(halves[h]));
        }
    }
    out
}

/// Exact Σ w·q of 16 rows × `P` planes of `N` tokens over a chunk.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
#[allow(clippy::needless_range_loop)] // All of `xs` is walked side by side.
fn dot<const N: usize, const P: usize, const W: u8>(
    values: Int8Panel<'_>,
    xs: [[&[Pair]; P]; N],
) -> [[__m512i; P]; N] {
    let shift = _mm512_set1_epi8(-128);
    // Two chains per row hide the latency; the shift's part is shared by all rows.
    let mut sums = [[[_mm512_setzero_si512(); 2]; P]; N];
    let mut shifted = [_mm512_setzero_si512(); 2];
    let pairs = xs[0][0].len();
    let xs = xs.map(|x| x.map(|x| &x[..pairs]));
    for i in 0..pairs {
        let w = pair::<W>(&values, i);
        for h in 0..2 {
            shifted[h] = _mm512_dpbusd_epi32(shifted[h], shift, w[h]);
            for n in 0..N {
                for p in 0..P {
                    let x = _mm512_set1_epi32(bytemuck::must_cast(xs[n][p][i][h]));
                    let sum = &mut sums[n][p][h];
                    *sum = _mm512_dpbusd_epi32(*sum, _mm512_xor_si512(x, shift), w[h]);
                }
            }
        }
    }
    let shifted = _mm512_add_epi32(shifted[0], shifted[1]);
    sums.map(|s| s.map(|s| _mm512_sub_epi32(_mm512_add_epi32(s[0], s[1]), shifted)))
}

/// The `i`-th two blocks. No `map` or `from_fn` here: these know of no CPU features, and what they are
/// given is not always put in their place.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn pair<const W: u8>(w: &Int8Panel<'_>, i: usize) -> [__m512i; 2] {
    if W == WHOLE {
        let [first, second] = &w.values.as_chunks::<BLOCK>().0.as_chunks::<2>().0[i];
        prefetch(first.as_ptr(), AHEAD);
        prefetch(second.as_ptr(), AHEAD);
        return [bytemuck::must_cast(*first), bytemuck::must_cast(*second)];
    }
    let line = &w.values.as_chunks::<BLOCK>().0[i];
    prefetch(line.as_ptr(), AHEAD);
    let line = bytemuck::must_cast(*line);
    // The upper halves of bytes stay where they are, in 16-bit lanes too.
    let upper = _mm512_set1_epi8(0xf0_u8 as i8);
    let first = _mm512_and_si512(_mm512_slli_epi16::<4>(line), upper);
    let second = _mm512_and_si512(line, upper);
    if W == UPPER {
        let fill = _mm512_set1_epi8(w.fill as i8);
        return [_mm512_or_si512(first, fill), _mm512_or_si512(second, fill)];
    }
    let line = &w.low.as_chunks::<BLOCK>().0[i];
    prefetch(line.as_ptr(), AHEAD);
    let line = bytemuck::must_cast(*line);
    let low = _mm512_andnot_si512(upper, line);
    let next = _mm512_andnot_si512(upper, _mm512_srli_epi16::<4>(line));
    [_mm512_or_si512(first, low), _mm512_or_si512(second, next)]
}
