//! Ternary × int8 by the relaxed dot product of 8-bit numbers: 16 multiply-adds in one instruction
//! of WebAssembly, and of processors that have VNNI.
//!
//! Its second operand is 7 bits wide; codes have two. That they are not negative and so small is
//! what makes the result the same everywhere: whether the seven bits are read as signed or not,
//! and whether pairs of products saturate at 16 bits, is up to the engine.

use super::{Exact, VECTORS, Walk};
use crate::kernel::Quantised;
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, TernaryMatrix};
use std::arch::wasm32::*;
use std::ops::Range;

/// See the scalar definition.
#[target_feature(enable = "simd128,relaxed-simd")]
pub fn ternary(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let (size, sums) = x.scale_groups(w, &mut scratch.ints);
    let walk = Walk::new(w, x, (size, sums), panels.start);
    for panel in panels {
        let mut row = 0;
        while row < x.rows() {
            row += match x.rows() - row {
                1 => tile::<1>(&walk, panel, row, y),
                _ => tile::<2>(&walk, panel, row, y),
            };
        }
    }
}

/// One panel × `N` activation rows from `row` on; returns `N`.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn tile<const N: usize>(walk: &Walk<'_>, panel: usize, row: usize, y: &mut Columns<'_>) -> usize {
    let mut xs: [&[[i8; BLOCK_COLS]]; N] = [&[]; N];
    for (n, x) in xs.iter_mut().enumerate() {
        *x = &walk.x.row_chunks(row + n)[..walk.blocks];
    }
    let mut totals = [[f32x4_splat(0.0); VECTORS]; N];
    for g in 0..walk.groups {
        let mut exact = [[i32x4_splat(0); VECTORS]; N];
        for blocks in walk.chunks(g, walk.blocks) {
            exact = dot(&walk.codes(panel)[blocks.clone()], &xs, blocks.start);
        }
        walk.scale(panel, g, row, &exact, &mut totals);
    }
    walk.store(panel, row, &totals, y);
    N
}

/// Σ c·q of 16 rows × `N` activation rows; the activations start with block `from`.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn dot<const N: usize>(
    packed: &[[u8; BLOCK_BYTES]],
    xs: &[&[[i8; BLOCK_COLS]]; N],
    from: usize,
) -> [Exact; N] {
    let mask = u8x16_splat(3);
    let mut rows: [&[[i8; BLOCK_COLS]]; N] = [&[]; N];
    for (row, x) in rows.iter_mut().zip(xs) {
        *row = &x[from..][..packed.len()];
    }
    let mut sums = [[i32x4_splat(0); VECTORS]; N];
    for (b, block) in packed.iter().enumerate() {
        let mut codes: [v128; VECTORS] = bytemuck::must_cast(*block);
        for field in 0..4 {
            for n in 0..N {
                let x = i32x4_splat(i32::from_le_bytes(bytemuck::must_cast(
                    rows[n][b].as_chunks::<4>().0[field],
                )));
                for v in 0..VECTORS {
                    let code = v128_and(codes[v], mask);
                    sums[n][v] = i32x4_relaxed_dot_i8x16_i7x16_add(x, code, sums[n][v]);
                }
            }
            for code in &mut codes {
                *code = u16x8_shr(*code, 2);
            }
        }
    }
    sums
}
