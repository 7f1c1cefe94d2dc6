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
use super::{batch, lookup};
use crate::kernel::Quantized;
use crate::kernel::byte_dot::byte_dot;
use crate::kernel::one_bit::OneBitDot;
use crate::kernel::simd::simd;
use crate::kernel::ternary::{TernaryArgs, tile};
use crate::par::{Columns, Scratch};
use crate::ternary::TernaryMatrix;
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

/// As [`ternary`], of matrices in the one-bit layout.
#[target_feature(enable = "simd128,relaxed-simd")]
pub fn one_bit(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    super::one_bit_product(RelaxedSimd, LOOKUP_ROWS, w, panels, (x, y), scratch);
}

impl OneBitDot for RelaxedSimd {
    // Of 8 times 2 columns · 128, 16-bit sums hold 16 blocks.
    const STEPS: usize = 16;
    const BITS: [usize; 5] = [2, 2, 1, 1, 1];
    const PANELS: usize = 1;
    const AHEAD: usize = 0;
}

/// The operations of this set that [`byte_dot`] uses.
mod ops {
    use crate::kernel::simd::lanes;
    use std::arch::wasm32::*;

    lanes! { "simd128,relaxed-simd":
        fn splat_byte(x: u8) -> v128 { u8x16_splat(x) }
        fn and(a: v128, b: v128) -> v128 { v128_and(a, b) }
        fn right2(x: v128) -> v128 { u16x8_shr(x, 2) }

        fn add_quads(sum: v128, w: v128, x: v128) -> v128 {
            i16x8_add(sum, i16x8_relaxed_dot_i8x16_i7x16(x, w))
        }

        fn widen(sum: v128) -> v128 { i32x4_extadd_pairwise_i16x8(sum) }
    }
}

byte_dot!(RelaxedSimd, ops, chunk: CHUNK, ahead: 0, chains: [1; 9]);
