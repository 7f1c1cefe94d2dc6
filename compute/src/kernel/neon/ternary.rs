//! Ternary × int8, of matrices in the two-bit and the one-bit layout.

use super::multiply::{CHUNK, Multiply, Sums};
use super::strips::{Row, STRIP};
use super::{DotProd, I8mm, Neon};
use crate::kernel::Quantized;
use crate::kernel::byte_ops::ByteOps;
use crate::kernel::one_bit::{self, OneBitDot};
use crate::kernel::simd::Simd;
use crate::kernel::ternary::{TernaryArgs, TernaryDot, tile_of};
use crate::matrix::Int8Panel;
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, TernaryMatrix};
use std::arch::aarch64::*;
use std::ops::Range;

/// Prefetch distance in bytes, and most rows that are multiplied by single bits.
const AHEAD: usize = 1024;
const ONE_BIT_ROWS: usize = 4;

/// A decoded block.
type Decoded = [u8; STRIP];

/// See the scalar definition.
#[inline]
#[target_feature(enable = "neon")]
pub fn ternary<S: Multiply>(
    set: S,
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, .. } = scratch;
    let args = TernaryArgs::new(set, w, x, panels.start, ints);
    if x.rows() < S::DECODED_ROWS {
        panels.for_each(|panel| tiles(&args, panel, args.codes(panel), S::ROWS.min(4), y));
        return;
    }
    decoded.grow(args.blocks * STRIP);
    let decoded = &mut decoded.as_chunks_mut().0[..args.blocks];
    for panel in panels {
        // SAFETY: this module is only compiled for targets with NEON.
        unsafe { set.decode(&whole(args.codes(panel)), decoded) };
        tiles(&args, panel, decoded, S::ROWS, y);
    }
}

/// As [`ternary`], of matrices in the one-bit layout.
#[inline]
#[target_feature(enable = "neon")]
pub fn one_bit<S: Multiply + OneBitDot>(
    set: S,
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, .. } = scratch;
    let args = TernaryArgs::new(set, w, x, panels.start, ints);
    if x.rows() <= ONE_BIT_ROWS {
        return one_bit::streams(&args, panels, 0..x.rows(), y);
    }
    decoded.grow(args.blocks * (BLOCK_BYTES + STRIP));
    let (two_bits, decoded) = decoded.split_at_mut(args.blocks * BLOCK_BYTES);
    let decoded = &mut decoded.as_chunks_mut().0[..args.blocks];
    for panel in panels {
        let codes = args.two_bits(panel, 0..args.blocks, two_bits.as_chunks_mut().0);
        if x.rows() < S::DECODED_ROWS {
            tiles(&args, panel, codes, S::ROWS.min(4), y);
            continue;
        }
        // SAFETY: this module is only compiled for targets with NEON.
        unsafe { set.decode(&whole(codes), decoded) };
        tiles(&args, panel, decoded, S::ROWS, y);
    }
}

/// Implements [`OneBitDot`] for a token, by its product of bytes.
macro_rules! one_bit_dot {
    ($($token:ty, $add:path);+) => {$(
        impl ByteOps for $token {
            #[inline(always)]
            fn block(x: &[u8; BLOCK_BYTES]) -> Sums {
                bytemuck::must_cast::<_, [[u8; 16]; 4]>(*x).map(|bytes| {
                    // SAFETY: this module is only compiled for targets with NEON.
                    unsafe { vreinterpretq_s32_u8(vld1q_u8(bytes.as_ptr())) }
                })
            }

            #[inline(always)]
            fn splat_byte(self, x: u8) -> int32x4_t {
                self.splat_int(i32::from_ne_bytes([x; 4]))
            }

            #[inline(always)]
            fn and(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
                // SAFETY: as above.
                unsafe { vandq_s32(a, b) }
            }

            #[inline(always)]
            fn right2(self, x: int32x4_t) -> int32x4_t {
                // SAFETY: as above.
                unsafe { vreinterpretq_s32_u16(vshrq_n_u16::<2>(vreinterpretq_u16_s32(x))) }
            }

            #[inline(always)]
            fn add_quads(self, sum: int32x4_t, w: int32x4_t, x: int32x4_t) -> int32x4_t {
                // SAFETY: as above.
                unsafe { $add(self, sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x)) }
            }

            #[inline(always)]
            fn widen(self, sum: int32x4_t) -> int32x4_t {
                sum
            }
        }

        impl OneBitDot for $token {
            // Of 4 columns · 128 · 8 · 32 blocks, 32-bit sums hold all.
            const STEPS: usize = 32;
            const BITS: [usize; 5] = [4, 4, 2, 2, 1];
            const PANELS: usize = 1;
            const AHEAD: usize = AHEAD;
        }
    )+};
}
one_bit_dot!(Neon, add_wide; DotProd, DotProd::add::<0>; I8mm, add_dots);

/// Adds the products of four bytes of each row.
#[inline]
#[target_feature(enable = "neon")]
fn add_wide(_: Neon, sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(w, x)))
}

/// As [`DotProd::add`].
#[inline]
#[target_feature(enable = "neon")]
fn add_dots(set: I8mm, sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    set.dotprod.add::<0>(sum, w, x)
}

/// Multiplies a panel × all activation rows, at most `most` at a time.
#[inline]
#[target_feature(enable = "neon")]
fn tiles<Codes, S: TernaryDot<Codes, Block = [i8; BLOCK_COLS]>>(
    args: &TernaryArgs<'_, S>,
    panel: usize,
    codes: &[Codes],
    most: usize,
    y: &mut Columns<'_>,
) {
    let (panel, mut row) = (([panel], [codes]), 0);
    while row < args.x.rows() {
        row += match (args.x.rows() - row).min(most) {
            6.. => tile::<Codes, S, 6>(args, panel, row, y),
            4.. => tile::<Codes, S, 4>(args, panel, row, y),
            2.. => tile::<Codes, S, 2>(args, panel, row, y),
            _ => tile::<Codes, S, 1>(args, panel, row, y),
        };
    }
}

/// Multiplies a panel × `N` activation rows from `row` on; returns `N`.
#[inline]
#[target_feature(enable = "neon")]
fn tile<Codes, S: TernaryDot<Codes, Block = [i8; BLOCK_COLS]>, const N: usize>(
    args: &TernaryArgs<'_, S>,
    panel: ([usize; 1], [&[Codes]; 1]),
    row: usize,
    y: &mut Columns<'_>,
) -> usize {
    tile_of(args, panel, row, args.activations::<N>(row), y);
    N
}

/// Returns all codes of a panel.
fn whole<const BYTES: usize>(codes: &[[u8; BYTES]]) -> Int8Panel<'_> {
    Int8Panel { values: codes.as_flattened(), low: &[], fill: 0 }
}

/// Implements [`TernaryDot`] for blocks of this type by a function of [`Multiply`].
macro_rules! ternary_dot {
    ($codes:ty, $dot:ident) => {
        impl<S: Multiply> TernaryDot<$codes> for S {
            type Block = [i8; BLOCK_COLS];
            const CHUNK: usize = CHUNK;

            #[inline(always)]
            fn dot<const P: usize, const N: usize>(
                self,
                codes: [&[$codes]; P],
                xs: [Row<'_>; N],
            ) -> [[Sums; N]; P] {
                let mut exact = [[self.int_panel(self.splat_int(0)); N]; P];
                for (codes, exact) in codes.into_iter().zip(&mut exact) {
                    // SAFETY: this module is only compiled for targets with NEON.
                    *exact = unsafe { self.$dot(&whole(codes), &xs) };
                }
                exact
            }
        }
    };
}
ternary_dot!([u8; BLOCK_BYTES], two_bit);
ternary_dot!(Decoded, decoded);
