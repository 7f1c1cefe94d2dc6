//! Ternary × int8 by the relaxed dot product of 8-bit numbers.
//!
//! Its second operand is 7 bits wide; codes have two. That they are not negative and so small is
//! what makes the result the same everywhere: whether the seven bits are read as signed or not,
//! and whether pairs of products saturate at 16 bits, is up to the engine.
//!
//! The form with 16-bit sums is one instruction on any x86-64; that with 32-bit ones needs five
//! where the processor lacks VNNI. Sums widen after [`CHUNK`] blocks: 4 fields × 2 products ×
//! 3 · 128 × 10 blocks = 30,720 fits an int16.

use super::{Exact, VECTORS, Walk, lookup};
use crate::kernel::Quantized;
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, TernaryMatrix};
use std::arch::wasm32::*;
use std::ops::Range;

/// Blocks whose products fit 16-bit sums.
const CHUNK: usize = 10;
/// Activation rows from which tables pay, and those of the last tile.
const LOOKUP_ROWS: usize = 10;

/// See the scalar definition.
#[target_feature(enable = "simd128,relaxed-simd")]
pub fn ternary(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded: places, shorts, sums: exact, floats, .. } = scratch;
    let (size, sums) = x.scale_groups(w, ints);
    let walk = Walk::new(w, x, (size, sums), panels.start);
    let mut buffers = lookup::Buffers { places, narrow: shorts, exact, totals: floats };
    walk.batch(panels, LOOKUP_ROWS, y, &mut buffers, |panel, row, y| {
        tile(&walk, panel, row, y);
        1
    });
}

/// One panel × one activation row: the registers hold no more, and two at once are a fifth slower.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn tile(walk: &Walk<'_>, panel: usize, row: usize, y: &mut Columns<'_>) {
    let x = &walk.x.row_chunks(row)[..walk.blocks];
    let mut totals = [[f32x4_splat(0.0); VECTORS]];
    for g in 0..walk.groups {
        let mut exact = [i32x4_splat(0); VECTORS];
        for chunk in walk.chunks(g, CHUNK) {
            dot(&walk.codes(panel)[chunk.clone()], &x[chunk], &mut exact);
        }
        walk.scale(panel, g, row, &[exact], &mut totals);
    }
    walk.store(panel, row, &totals, y);
}

/// Adds Σ c·q of 16 rows × one activation row over a chunk.
#[inline]
#[target_feature(enable = "simd128,relaxed-simd")]
fn dot(packed: &[[u8; BLOCK_BYTES]], x: &[[i8; BLOCK_COLS]], exact: &mut Exact) {
    let mask = u8x16_splat(3);
    let mut narrow = [i16x8_splat(0); VECTORS];
    for (block, x) in packed.iter().zip(x) {
        let mut codes: [v128; VECTORS] = bytemuck::must_cast(*block);
        let fields: [[i8; 4]; 4] = bytemuck::must_cast(*x);
        for x in fields {
            let x = i32x4_splat(bytemuck::must_cast(x));
            for v in 0..VECTORS {
                let products = i16x8_relaxed_dot_i8x16_i7x16(x, v128_and(codes[v], mask));
                narrow[v] = i16x8_add(narrow[v], products);
            }
            // What comes from the byte above, the mask takes away.
            codes = codes.map(|code| u16x8_shr(code, 2));
        }
    }
    for v in 0..VECTORS {
        exact[v] = i32x4_add(exact[v], i32x4_extadd_pairwise_i16x8(narrow[v]));
    }
}
