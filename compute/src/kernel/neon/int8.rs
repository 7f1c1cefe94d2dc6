//! int8 × int8 or 15 bits. Both planes of activations are multiplied by themselves; their sums are exact
//! in 32 bits for some strips and in f64 beyond that.

use super::lanes::store;
use super::multiply::{CHUNK, Multiply, Sums};
use super::strips::{Row, VECTORS};
use crate::kernel::Quantized;
use crate::kernel::packing::{SIX, SPLIT, UPPER, WHOLE};
use crate::matrix::{INT8_PAD_COLS, Int8Panel, Int8Scales, Int8View, PARTS, Packing};
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::aarch64::*;
use std::ops::Range;

/// Most strips whose products with joined activations fit 32 bits: 128 · 32,512 · 16 · 32 < 2³¹.
const JOINED: usize = 32;

/// Scaled or rounded sums of one activation row with the 16 rows of a panel.
type Total = [float32x4_t; VECTORS];

/// See the scalar definition.
#[inline]
#[target_feature(enable = "neon")]
pub fn int8<S: Multiply>(
    set: S,
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    _: &mut Scratch,
) {
    match w.packing() {
        Packing::Whole => product::<S, WHOLE>(set, w, panels, x, y),
        Packing::Upper => product::<S, UPPER>(set, w, panels, x, y),
        Packing::Six => product::<S, SIX>(set, w, panels, x, y),
        Packing::Split => product::<S, SPLIT>(set, w, panels, x, y),
    }
}

/// Computes the product with packing `W`.
#[inline]
#[target_feature(enable = "neon")]
fn product<S: Multiply, const W: u8>(
    set: S,
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
) {
    let first = panels.start;
    for panel in panels {
        let (mut row, at) = (0, (panel, (panel - first) * PANEL_ROWS));
        while row < x.rows() {
            // Tiles of several rows have an even number, so both planes of a token.
            row += match x.rows() - row {
                6.. if S::ROWS >= 6 => tile::<S, W, 6>(set, w, at, x, row, y),
                4.. if S::ROWS >= 4 => tile::<S, W, 4>(set, w, at, x, row, y),
                2.. => tile::<S, W, 2>(set, w, at, x, row, y),
                _ => tile::<S, W, 1>(set, w, at, x, row, y),
            };
        }
    }
}

/// Multiplies a panel, whose outputs begin at `from`, × `N` activation rows from `row` on; returns `N`.
#[inline]
#[target_feature(enable = "neon")]
fn tile<S: Multiply, const W: u8, const N: usize>(
    set: S,
    w: Int8View<'_>,
    (panel, from): (usize, usize),
    x: &Quantized<'_>,
    row: usize,
    y: &mut Columns<'_>,
) -> usize {
    let xs: [Row<'_>; N] = std::array::from_fn(|n| &x.row_chunks(row + n)[..w.strips()]);
    let (values, scales) = (w.panel(panel, 0..w.strips()), w.scales(panel));
    let (strips, tokens) = (w.group().div_ceil(INT8_PAD_COLS), N / x.planes);
    let mut totals = [[vdupq_n_f32(0.0); VECTORS]; N];
    for g in 0..w.groups() {
        let range = g * strips..((g + 1) * strips).min(w.strips());
        let sums = rounded::<S, W, N>(set, &values, range, &xs, x.planes);
        let scales = group_scales(&scales, g);
        for n in 0..tokens {
            for v in 0..VECTORS {
                totals[n][v] = vaddq_f32(totals[n][v], vmulq_f32(sums[n][v], scales[v]));
            }
        }
    }
    for (n, total) in totals[..tokens].iter().enumerate() {
        let token = row / x.planes + n;
        let mut lanes = [0.0; PANEL_ROWS];
        for (lanes, total) in lanes.as_chunks_mut().0.iter_mut().zip(total) {
            store(lanes, vmulq_n_f32(*total, x.joined_step(token)));
        }
        y.row(token)[from..].iter_mut().zip(lanes).for_each(|(out, lane)| *out = lane);
    }
    N
}

/// Returns Σ w·q of each token over the strips of a group, rounded once.
#[inline]
#[target_feature(enable = "neon")]
fn rounded<S: Multiply, const W: u8, const N: usize>(
    set: S,
    w: &Int8Panel<'_>,
    range: Range<usize>,
    xs: &[Row<'_>; N],
    planes: usize,
) -> [Total; N] {
    let mut out = [[vdupq_n_f32(0.0); VECTORS]; N];
    if range.len() <= if planes == 1 { CHUNK } else { JOINED } {
        // SAFETY: this module is only compiled for targets with NEON.
        let sums = unsafe { set.int8::<W, N>(w, range, xs) };
        for n in 0..N / planes {
            for v in 0..VECTORS {
                out[n][v] = vcvtq_f32_s32(joined(&sums, n, v, planes));
            }
        }
        return out;
    }
    let mut exact = [[[vdupq_n_f64(0.0); 2]; VECTORS]; N];
    for at in range.clone().step_by(CHUNK) {
        let strips = at..range.end.min(at + CHUNK);
        // SAFETY: as above.
        let sums = unsafe { set.int8::<W, N>(w, strips, xs) };
        for n in 0..N {
            for v in 0..VECTORS {
                let [low, high] = &mut exact[n / planes][v];
                let factor = if n % planes + 1 < planes { 256.0 } else { 1.0 };
                *low =
                    vfmaq_n_f64(*low, vcvtq_f64_s64(vmovl_s32(vget_low_s32(sums[n][v]))), factor);
                *high = vfmaq_n_f64(*high, vcvtq_f64_s64(vmovl_high_s32(sums[n][v])), factor);
            }
        }
    }
    for n in 0..N / planes {
        for v in 0..VECTORS {
            let [low, high] = exact[n][v];
            out[n][v] = vcvt_high_f32_f64(vcvt_f32_f64(low), high);
        }
    }
    out
}

/// Returns the sums of token `n`, joined from its planes.
#[inline]
#[target_feature(enable = "neon")]
fn joined<const N: usize>(sums: &[Sums; N], n: usize, v: usize, planes: usize) -> int32x4_t {
    match planes {
        1 => sums[n][v],
        _ => vaddq_s32(vshlq_n_s32::<8>(sums[2 * n][v]), sums[2 * n + 1][v]),
    }
}

/// Returns the scales of a group's 16 rows.
#[inline]
#[target_feature(enable = "neon")]
fn group_scales(scales: &Int8Scales<'_>, group: usize) -> Total {
    let floats =
        |bytes: [u8; 4 * PANEL_ROWS]| -> [[f32; 4]; VECTORS] { bytemuck::must_cast(bytes) };
    match scales {
        Int8Scales::Float(scales) => floats(scales[group]).map(|s| super::lanes::load(&s)),
        Int8Scales::Parts(parts, factors) => {
            let mut out = floats(factors[group / PARTS]).map(|s| super::lanes::load(&s));
            let parts = vreinterpretq_s8_u8(super::lanes::load_u8(&parts[group]));
            let halves = [vmovl_s8(vget_low_s8(parts)), vmovl_high_s8(parts)];
            for (out, half) in out.as_chunks_mut::<2>().0.iter_mut().zip(halves) {
                out[0] = vmulq_f32(out[0], vcvtq_f32_s32(vmovl_s16(vget_low_s16(half))));
                out[1] = vmulq_f32(out[1], vcvtq_f32_s32(vmovl_high_s16(half)));
            }
            out
        }
    }
}
