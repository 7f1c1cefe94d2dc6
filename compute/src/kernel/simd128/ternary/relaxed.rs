//! Ternary × int8 by the relaxed dot product of 8-bit numbers.
//!
//! The instruction's second operand has 7 bits; codes have two. An engine may read the operand as signed
//! or unsigned, and pairs of products may saturate at 16 bits. With small codes that are never negative
//! the result is the same on every engine.
//!
//! The form with 16-bit sums is one instruction on any x86-64. The form with 32-bit sums takes five on a
//! CPU without VNNI. Sums are widened after [`CHUNK`] blocks: 4 fields × 2 products × 3 · 128 × 10 blocks
//! = 30,720 fits an int16.

use super::super::lanes;
use super::{Exact, VECTORS, batch, lookup};
use crate::kernel::Quantized;
use crate::kernel::simd::simd;
use crate::kernel::ternary::{TernaryArgs, TernaryDot, tile};
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, TernaryMatrix};
use std::arch::wasm32::*;
use std::ops::Range;

/// Most blocks whose products fit 16-bit sums.
const CHUNK: usize = 10;
/// Number of activation rows from which tables are faster, in all and in the last tile.
const LOOKUP_ROWS: usize = 10;

/// The token of relaxed SIMD, which a module's target has.
#[derive(Clone, Copy)]
struct RelaxedSimd;

simd!(RelaxedSimd, "simd128,relaxed-simd", [v128, v128; 4], wide: lanes::Wide, chains: 4, registers: 16, lanes);

/// See the scalar definition.
#[target_feature(enable = "simd128,relaxed-simd")]
pub fn ternary(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, shorts, sums: exact, floats, .. } = scratch;
    let args = TernaryArgs::new(RelaxedSimd, w, x, panels.start, ints);
    let mut buffers =
        lookup::LookupBuffers { offsets: decoded, narrow: shorts, exact, totals: floats };
    batch(&args, panels, LOOKUP_ROWS, y, &mut buffers, |panel, row, y| {
        // The registers hold no more than one row: two rows at once are a fifth slower.
        tile::<_, 1, 1>(&args, [panel], row, args.activations(row), y);
        1
    });
}

impl TernaryDot for RelaxedSimd {
    type Block = [i8; BLOCK_COLS];
    const CHUNK: usize = CHUNK;

    #[inline(always)]
    fn dot<const P: usize, const N: usize>(
        self,
        codes: [&[[u8; BLOCK_BYTES]]; P],
        xs: [&[[i8; BLOCK_COLS]]; N],
        exact: &mut [[Exact; N]; P],
    ) {
        for (codes, exact) in codes.into_iter().zip(exact) {
            for (x, exact) in xs.into_iter().zip(exact) {
                dot(codes, x, exact);
            }
        }
    }
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
            // The mask removes the bits of the neighboring byte.
            codes = codes.map(|code| u16x8_shr(code, 2));
        }
    }
    for v in 0..VECTORS {
        exact[v] = i32x4_add(exact[v], i32x4_extadd_pairwise_i16x8(narrow[v]));
    }
}
