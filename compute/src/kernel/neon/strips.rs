//! Weights as strips of 16 rows × 16 columns, in any packing.

use super::lanes::{load_i8, load_u8};
use crate::kernel::packing::{BLOCK, BLOCKS, SIX, UPPER, WHOLE, lines};
use crate::matrix::{INT8_PAD_COLS, Int8Panel};
use crate::ternary::PANEL_ROWS;
use std::arch::aarch64::*;

/// Number of vectors of 4 rows in a panel.
pub const VECTORS: usize = PANEL_ROWS / 4;
/// The packing of ternary codes: those of a strip's four blocks in one byte.
pub const TWO_BIT: u8 = 16;
/// Decoded values as pairs of rows: `[8 columns][8 pairs][2 rows × 8 columns]`.
pub const PAIRS: u8 = 17;
/// Bytes of a strip of decoded values.
pub const STRIP: usize = PANEL_ROWS * INT8_PAD_COLS;
/// Activations of one row in strips.
pub type Row<'a> = &'a [[i8; INT8_PAD_COLS]];

/// Loads the `v`-th vector of a block's line, in a plane whose lines have `blocks` blocks.
#[inline]
#[target_feature(enable = "neon")]
fn line(plane: &[u8], blocks: usize, block: usize, v: usize) -> uint8x16_t {
    load_u8(&plane.as_chunks::<BLOCK>().0[block / blocks].as_chunks::<16>().0[v])
}

/// Returns `count` strips of a panel from the `first`-th on.
#[inline]
pub fn strips<'a, const W: u8>(w: &Int8Panel<'a>, first: usize, count: usize) -> Int8Panel<'a> {
    let (values, low) = match W {
        TWO_BIT => (1, 0),
        PAIRS => (BLOCKS, 0),
        _ => lines(W),
    };
    // The compiler sees the length of a single strip, so that its loads need no checks.
    let cut =
        |plane: &'a [u8], lines: usize| &plane[first * lines * BLOCK..][..count * lines * BLOCK];
    Int8Panel { values: cut(w.values, values), low: cut(w.low, low), fill: w.fill }
}

/// Returns the `v`-th four rows of a block of a strip; ternary codes are 0 to 3.
#[inline]
#[target_feature(enable = "neon")]
pub fn vector<const W: u8>(w: &Int8Panel<'_>, block: usize, v: usize) -> int8x16_t {
    let vector = match W {
        WHOLE => line(w.values, 1, block, v),
        TWO_BIT => field(line(w.values, BLOCKS, block, v), block),
        _ => joined::<W>(w, block, v),
    };
    vreinterpretq_s8_u8(vector)
}

/// Returns two bits of each byte: the `field`-th lowest ones.
#[inline]
#[target_feature(enable = "neon")]
fn field(codes: uint8x16_t, field: usize) -> uint8x16_t {
    let mask = vdupq_n_u8(3);
    match field {
        0 => vandq_u8(codes, mask),
        1 => vandq_u8(vshrq_n_u8::<2>(codes), mask),
        2 => vandq_u8(vshrq_n_u8::<4>(codes), mask),
        _ => vshrq_n_u8::<6>(codes),
    }
}

/// Joins the bits of two planes.
#[inline]
#[target_feature(enable = "neon")]
fn joined<const W: u8>(w: &Int8Panel<'_>, block: usize, v: usize) -> uint8x16_t {
    let (high, odd) = (line(w.values, 2, block, v), block % 2 == 1);
    if W == SIX {
        let low = vshlq_n_u8::<2>(field(line(w.low, BLOCKS, block, v), block));
        let high = if odd { vshrq_n_u8::<4>(high) } else { high };
        return vsliq_n_u8::<4>(low, high);
    }
    let low = match W {
        UPPER => vdupq_n_u8(w.fill | w.fill << 4),
        _ => line(w.low, 2, block, v),
    };
    // An insertion keeps the other four bits of its first operand.
    if odd { vsriq_n_u8::<4>(high, low) } else { vsliq_n_u8::<4>(low, high) }
}

/// Writes ternary codes as int8 weights are packed.
#[inline]
#[target_feature(enable = "neon")]
pub fn decode_whole(w: &Int8Panel<'_>, out: &mut [[u8; STRIP]]) {
    for (i, out) in out.iter_mut().enumerate() {
        for (at, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
            store(out, vector::<TWO_BIT>(&strips::<TWO_BIT>(w, i, 1), at / VECTORS, at % VECTORS));
        }
    }
}

/// Writes ternary codes as [`PAIRS`].
#[inline]
#[target_feature(enable = "neon")]
pub fn decode_pairs(w: &Int8Panel<'_>, out: &mut [[u8; STRIP]]) {
    for (i, out) in out.iter_mut().enumerate() {
        let (w, out) = (&strips::<TWO_BIT>(w, i, 1), out.as_chunks_mut().0.as_chunks_mut::<2>().0);
        for v in 0..VECTORS {
            // Halves that are known at compile time: shifts have constants.
            let (first, second) = (pairs::<TWO_BIT>(w, 0, v), pairs::<TWO_BIT>(w, 1, v));
            for p in 0..2 {
                store(&mut out[v][p], first[p]);
                store(&mut out[VECTORS + v][p], second[p]);
            }
        }
    }
}

/// Stores 16 bytes.
#[inline]
#[target_feature(enable = "neon")]
fn store(out: &mut [u8; 16], v: int8x16_t) {
    // SAFETY: the array has 16 bytes.
    unsafe { vst1q_u8(out.as_mut_ptr(), vreinterpretq_u8_s8(v)) };
}

/// Returns the `v`-th four rows of eight columns of a strip, as two pairs of rows.
#[inline]
#[target_feature(enable = "neon")]
pub fn pairs<const W: u8>(w: &Int8Panel<'_>, half: usize, v: usize) -> [int8x16_t; 2] {
    if W == PAIRS {
        let vectors = w.values.as_chunks().0;
        let at = (half * VECTORS + v) * 2;
        return [0, 1].map(|p| vreinterpretq_s8_u8(load_u8(&vectors[at + p])));
    }
    let [a, b] = [0, 1].map(|b| vreinterpretq_s32_s8(vector::<W>(w, 2 * half + b, v)));
    [vzip1q_s32(a, b), vzip2q_s32(a, b)].map(|pair| vreinterpretq_s8_s32(pair))
}

/// Returns the same rows; the compiler then knows that they have one length.
#[inline]
pub fn of_one_length<'a, const N: usize>(xs: &[Row<'a>; N]) -> [Row<'a>; N] {
    xs.map(|x| &x[..xs[0].len()])
}

/// Loads a strip of the activations of `N` rows.
#[inline]
#[target_feature(enable = "neon")]
pub fn columns<const N: usize>(xs: &[Row<'_>; N], i: usize) -> [int8x16_t; N] {
    let mut columns = [vdupq_n_s8(0); N];
    for n in 0..N {
        columns[n] = load_i8(&xs[n][i]);
    }
    columns
}
