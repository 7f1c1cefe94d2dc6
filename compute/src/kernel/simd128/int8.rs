//! int8 × int8 or 15 bits: both sides as 16 bits, exact in 32 for [`CHUNK`] columns and in f64
//! beyond.

use super::lanes::even_odd;
use crate::kernel::Quantised;
use crate::matrix::{INT8_BLOCK_COLS, INT8_PAD_COLS, Int8Panel, Int8View, Packing};
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::wasm32::*;
use std::ops::Range;

/// Vectors of 4 rows in a panel.
const VECTORS: usize = PANEL_ROWS / 4;
/// Bytes in a block of 16 rows × 4 columns.
const BLOCK: usize = PANEL_ROWS * INT8_BLOCK_COLS;
/// Pairs of blocks in 16 columns.
const PAIRS: usize = 2;
/// Times 16 columns whose products fit 32-bit sums: 128 · 32,512 · 16 · 32 < 2³¹.
const CHUNK: usize = 32;

const WHOLE: u8 = Packing::Whole as u8;
const UPPER: u8 = Packing::Upper as u8;

/// 16 columns' activations: pairs of even columns for each block of four, then of odd ones.
type Pairs = [[[i16; 2]; INT8_PAD_COLS / INT8_BLOCK_COLS]; 2];

/// See the scalar definition.
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let (tokens, blocks) = (x.rows() / x.planes, w.cols().div_ceil(INT8_PAD_COLS));
    scratch.shorts.grow(tokens * blocks * INT8_PAD_COLS);
    let pairs = scratch.shorts.as_chunks_mut::<INT8_PAD_COLS>().0;
    for token in 0..tokens {
        join(x, token, &mut pairs[token * blocks..][..blocks]);
    }
    let pairs: &[Pairs] = bytemuck::must_cast_slice(&*pairs);
    match w.packing() {
        Packing::Whole => product::<WHOLE>(w, panels, x, pairs, y),
        Packing::Upper => product::<UPPER>(w, panels, x, pairs, y),
        Packing::Split => product::<{ Packing::Split as u8 }>(w, panels, x, pairs, y),
    }
}

/// The product with weights packed like this.
#[inline]
fn product<const W: u8>(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantised<'_>,
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

/// A token's values, of all its planes, as [`Pairs`].
fn join(x: &Quantised<'_>, token: usize, out: &mut [[i16; INT8_PAD_COLS]]) {
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

/// One panel × `N` tokens from `token` on; returns `N`.
#[inline]
fn tile<const N: usize, const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    x: &Quantised<'_>,
    pairs: &[Pairs],
    token: usize,
    from: usize,
    y: &mut Columns<'_>,
) -> usize {
    let blocks = w.cols().div_ceil(INT8_PAD_COLS);
    let xs: [&[Pairs]; N] = std::array::from_fn(|n| &pairs[(token + n) * blocks..][..blocks]);
    let group_blocks = w.group().div_ceil(INT8_PAD_COLS);
    let scales = w.scales().as_chunks::<{ 4 * PANEL_ROWS }>().0;
    let mut totals = [[f32x4_splat(0.0); VECTORS]; N];
    for g in 0..w.groups() {
        let end = ((g + 1) * group_blocks).min(blocks);
        let mut exact = [[[f64x2_splat(0.0); 2]; VECTORS]; N];
        for at in (g * group_blocks..end).step_by(CHUNK) {
            let chunk = at..end.min(at + CHUNK);
            let values = w.panel(panel, PAIRS * chunk.start..PAIRS * chunk.end);
            let sums = dot::<N, W>(values, xs.map(|x| &x[chunk.clone()]));
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
        let scales: [v128; VECTORS] = bytemuck::must_cast(scales[panel * w.groups() + g]);
        for n in 0..N {
            for v in 0..VECTORS {
                let [low, high] = exact[n][v].map(|v| f32x4_demote_f64x2_zero(v));
                let value = i32x4_shuffle::<0, 1, 4, 5>(low, high);
                totals[n][v] = f32x4_add(totals[n][v], f32x4_mul(value, scales[v]));
            }
        }
    }
    for (n, total) in totals.iter().enumerate() {
        let step = f32x4_splat(x.steps[(token + n + 1) * x.planes - 1]);
        let lanes: [f32; PANEL_ROWS] = bytemuck::must_cast(total.map(|t| f32x4_mul(t, step)));
        for (o, l) in y.row(token + n)[from..].iter_mut().zip(lanes) {
            *o = l;
        }
    }
    N
}

/// Exact Σ w·q of 16 rows × `N` tokens.
#[inline]
fn dot<const N: usize, const W: u8>(
    values: Int8Panel<'_>,
    xs: [&[Pairs]; N],
) -> [[v128; VECTORS]; N] {
    let mut sums = [[i32x4_splat(0); VECTORS]; N];
    let blocks = xs[0].len();
    let xs = xs.map(|x| &x[..blocks]);
    for b in 0..blocks {
        for quad in 0..2 * PAIRS {
            for v in 0..VECTORS {
                let values = even_odd(vector::<W>(&values, 2 * PAIRS * b + quad, v));
                for half in 0..2 {
                    for n in 0..N {
                        let x = i32x4_splat(bytemuck::must_cast(xs[n][b][half][quad]));
                        sums[n][v] = i32x4_add(sums[n][v], i32x4_dot_i16x8(values[half], x));
                    }
                }
            }
        }
    }
    sums
}

/// The `v`-th four rows of a block.
#[inline]
fn vector<const W: u8>(w: &Int8Panel<'_>, block: usize, v: usize) -> v128 {
    let at = |plane: &[u8], line: usize| -> v128 {
        bytemuck::must_cast(plane.as_chunks::<BLOCK>().0[line].as_chunks::<16>().0[v])
    };
    if W == WHOLE {
        return at(w.values, block);
    }
    let (high, second) = (at(w.values, block / 2), block % 2 == 1);
    let high = if second { v128_and(high, u8x16_splat(0xf0)) } else { u8x16_shl(high, 4) };
    let low = match W {
        UPPER => u8x16_splat(w.fill),
        _ if second => u8x16_shr(at(w.low, block / 2), 4),
        _ => v128_and(at(w.low, block / 2), u8x16_splat(15)),
    };
    v128_or(high, low)
}
