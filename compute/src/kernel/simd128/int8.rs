//! int8 × int8 or 15 bits. Both operands are widened to 16 bits. Sums are exact in 32 bits for [`CHUNK`]
//! strips and in f64 beyond that.

use super::lanes::even_odd;
use crate::kernel::Quantized;
use crate::kernel::packing::{BLOCK, BLOCKS, SIX, SPLIT, UPPER, WHOLE};
use crate::matrix::{INT8_PAD_COLS, Int8Panel, Int8Scales, Int8View, PARTS, Packing};
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::wasm32::*;
use std::ops::Range;

/// Number of vectors of 4 rows in a panel.
const VECTORS: usize = PANEL_ROWS / 4;
/// Most strips whose products fit 32-bit sums: 128 · 32,512 · 16 · 32 < 2³¹.
const CHUNK: usize = 32;

/// Activations of a strip: pairs of even columns for each block, then pairs of odd ones.
type Pairs = [[[i16; 2]; BLOCKS]; 2];

/// See the scalar definition.
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let (tokens, strips) = (x.rows() / x.planes, w.strips());
    scratch.shorts.grow(tokens * strips * INT8_PAD_COLS);
    let pairs = scratch.shorts.as_chunks_mut::<INT8_PAD_COLS>().0;
    for token in 0..tokens {
        join(x, token, &mut pairs[token * strips..][..strips]);
    }
    let pairs: &[Pairs] = bytemuck::must_cast_slice(&*pairs);
    match w.packing() {
        Packing::Whole => product::<WHOLE>(w, panels, x, pairs, y),
        Packing::Upper => product::<UPPER>(w, panels, x, pairs, y),
        Packing::Six => product::<SIX>(w, panels, x, pairs, y),
        Packing::Split => product::<SPLIT>(w, panels, x, pairs, y),
    }
}

/// Computes the product with packing `W`.
#[inline]
fn product<const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    pairs: &[Pairs],
    y: &mut Columns<'_>,
) {
    let (first, tokens) = (panels.start, x.tokens());
    for panel in panels {
        let (mut token, from) = (0, (panel - first) * PANEL_ROWS);
        while token < tokens {
            token += match tokens - token {
                1 => tile::<1, W>(w, panel, x, pairs, token, from, y),
                _ => tile::<2, W>(w, panel, x, pairs, token, from, y),
            };
        }
    }
}

/// Writes a token's values, joined from its planes, as [`Pairs`].
fn join(x: &Quantized<'_>, token: usize, out: &mut [[i16; INT8_PAD_COLS]]) {
    for (b, out) in out.iter_mut().enumerate() {
        let mut joined = [i16x8_splat(0); 2];
        for plane in token * x.planes..(token + 1) * x.planes {
            let values = even_odd(bytemuck::must_cast(x.row_chunks::<INT8_PAD_COLS>(plane)[b]));
            for half in 0..2 {
                joined[half] = i16x8_add(i16x8_shl(joined[half], 8), values[half]);
            }
        }
        *out = bytemuck::must_cast(joined);
    }
}

/// Multiplies one panel × `N` tokens from `token` on; returns `N`.
#[inline]
fn tile<const N: usize, const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    x: &Quantized<'_>,
    pairs: &[Pairs],
    token: usize,
    from: usize,
    y: &mut Columns<'_>,
) -> usize {
    let strips = w.strips();
    let xs: [&[Pairs]; N] = std::array::from_fn(|n| &pairs[(token + n) * strips..][..strips]);
    // GGUF files have groups of 16 and 32 columns: so many groups that each must cost little.
    let even = w.cols().is_multiple_of(w.group());
    let totals = match w.group().div_ceil(INT8_PAD_COLS) {
        1 if even => short_groups::<N, W, 1>(w, panel, &xs),
        2 if even => short_groups::<N, W, 2>(w, panel, &xs),
        strips => groups::<N, W>(w, panel, strips, &xs),
    };
    for (n, total) in totals.iter().enumerate() {
        let step = f32x4_splat(x.steps[(token + n + 1) * x.planes - 1]);
        let lanes: [f32; PANEL_ROWS] = bytemuck::must_cast(total.map(|t| f32x4_mul(t, step)));
        for (o, l) in y.row(token + n)[from..].iter_mut().zip(lanes) {
            *o = l;
        }
    }
    N
}

/// Returns Σ w·q of 16 rows × `N` tokens, rounded once per group of `strips` strips.
#[inline]
fn groups<const N: usize, const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    strips: usize,
    xs: &[&[Pairs]; N],
) -> [[v128; VECTORS]; N] {
    let (values, scales) = (w.panel(panel, 0..w.strips()), w.scales(panel));
    let mut totals = [[f32x4_splat(0.0); VECTORS]; N];
    for g in 0..w.groups() {
        let range = g * strips..((g + 1) * strips).min(w.strips());
        let sums = rounded::<N, W>(&values, range, xs);
        add(&mut totals, &sums, &group_scales(&scales, g));
    }
    totals
}

/// As [`groups`], if all groups have `G` strips, at most [`CHUNK`].
#[inline]
fn short_groups<const N: usize, const W: u8, const G: usize>(
    w: Int8View<'_>,
    panel: usize,
    xs: &[&[Pairs]; N],
) -> [[v128; VECTORS]; N] {
    let (values, scales) = (w.panel(panel, 0..w.strips()), w.scales(panel));
    let mut totals = [[f32x4_splat(0.0); VECTORS]; N];
    for g in 0..w.groups() {
        let sums = in_floats(&dot::<N, W>(&values, g * G..g * G + G, xs));
        add(&mut totals, &sums, &group_scales(&scales, g));
    }
    totals
}

/// Adds sums times their scales to totals.
#[inline]
fn add<const N: usize>(
    totals: &mut [[v128; VECTORS]; N],
    sums: &[[v128; VECTORS]; N],
    scales: &[v128; VECTORS],
) {
    for n in 0..N {
        for v in 0..VECTORS {
            totals[n][v] = f32x4_add(totals[n][v], f32x4_mul(sums[n][v], scales[v]));
        }
    }
}

/// Converts sums to floats.
#[inline]
fn in_floats<const N: usize>(sums: &[[v128; VECTORS]; N]) -> [[v128; VECTORS]; N] {
    sums.map(|sums| sums.map(|v| f32x4_convert_i32x4(v)))
}

/// Returns Σ w·q of 16 rows × `N` tokens over the strips of a group, rounded once.
#[inline]
fn rounded<const N: usize, const W: u8>(
    values: &Int8Panel<'_>,
    range: Range<usize>,
    xs: &[&[Pairs]; N],
) -> [[v128; VECTORS]; N] {
    if range.len() <= CHUNK {
        return in_floats(&dot::<N, W>(values, range, xs));
    }
    let mut exact = [[[f64x2_splat(0.0); 2]; VECTORS]; N];
    for at in range.clone().step_by(CHUNK) {
        let sums = dot::<N, W>(values, at..range.end.min(at + CHUNK), xs);
        for n in 0..N {
            for v in 0..VECTORS {
                let upper = i32x4_shuffle::<2, 3, 2, 3>(sums[n][v], sums[n][v]);
                let halves = [sums[n][v], upper].map(|v| f64x2_convert_low_i32x4(v));
                for h in 0..2 {
                    exact[n][v][h] = f64x2_add(exact[n][v][h], halves[h]);
                }
            }
        }
    }
    exact.map(|e| {
        e.map(|halves| {
            let [low, high] = halves.map(|v| f32x4_demote_f64x2_zero(v));
            i32x4_shuffle::<0, 1, 4, 5>(low, high)
        })
    })
}

/// Returns the exact Σ w·q of 16 rows × `N` tokens over some strips.
#[inline]
fn dot<const N: usize, const W: u8>(
    values: &Int8Panel<'_>,
    range: Range<usize>,
    xs: &[&[Pairs]; N],
) -> [[v128; VECTORS]; N] {
    let mut sums = [[i32x4_splat(0); VECTORS]; N];
    for i in range {
        for v in 0..VECTORS {
            for block in 0..BLOCKS {
                let values = even_odd(vector::<W>(values, i, block, v));
                for half in 0..2 {
                    for n in 0..N {
                        let x = i32x4_splat(bytemuck::must_cast(xs[n][i][half][block]));
                        sums[n][v] = i32x4_add(sums[n][v], i32x4_dot_i16x8(values[half], x));
                    }
                }
            }
        }
    }
    sums
}

/// Returns the scales of a group's 16 rows.
#[inline]
fn group_scales(scales: &Int8Scales<'_>, group: usize) -> [v128; VECTORS] {
    match scales {
        Int8Scales::Float(scales) => bytemuck::must_cast(scales[group]),
        Int8Scales::Parts(parts, factors) => {
            let parts = bytemuck::must_cast(parts[group]);
            let factors: [v128; VECTORS] = bytemuck::must_cast(factors[group / PARTS]);
            let (low, high) = (i16x8_extend_low_i8x16(parts), i16x8_extend_high_i8x16(parts));
            let parts = [
                i32x4_extend_low_i16x8(low),
                i32x4_extend_high_i16x8(low),
                i32x4_extend_low_i16x8(high),
                i32x4_extend_high_i16x8(high),
            ];
            std::array::from_fn(|v| f32x4_mul(f32x4_convert_i32x4(parts[v]), factors[v]))
        }
    }
}

/// Returns the `v`-th four rows of a block of the `i`-th strip.
#[inline]
fn vector<const W: u8>(w: &Int8Panel<'_>, i: usize, block: usize, v: usize) -> v128 {
    // Loads from a plane whose lines have this number of blocks.
    let at = |plane: &[u8], blocks: usize| -> v128 {
        let line = (i * BLOCKS + block) / blocks;
        bytemuck::must_cast(plane.as_chunks::<BLOCK>().0[line].as_chunks::<16>().0[v])
    };
    if W == WHOLE {
        return at(w.values, 1);
    }
    // Shifts of 16-bit lanes, since x86 has none of 8 bits. Bits of the neighboring byte are masked.
    let (high, second) = (at(w.values, 2), block % 2 == 1);
    let high = if second { high } else { u16x8_shl(high, 4) };
    let high = v128_and(high, u8x16_splat(0xf0));
    let low = match W {
        UPPER => u8x16_splat(w.fill),
        SIX => {
            let line = at(w.low, 4);
            let line = match block {
                0 => u16x8_shl(line, 2),
                1 => line,
                2 => u16x8_shr(line, 2),
                _ => u16x8_shr(line, 4),
            };
            v128_and(line, u8x16_splat(0b1100))
        }
        _ => {
            let line = at(w.low, 2);
            let line = if second { u16x8_shr(line, 4) } else { line };
            v128_and(line, u8x16_splat(15))
        }
    };
    v128_or(high, low)
}
