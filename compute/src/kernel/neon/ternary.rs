//! Ternary × int8, of matrices in the two-bit layout.

use super::multiply::{CHUNK, Multiply, Sums};
use super::strips::{Row, STRIP};
use crate::kernel::Quantized;
use crate::kernel::ternary::{TernaryArgs, TernaryDot, tile_of};
use crate::matrix::Int8Panel;
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, TernaryMatrix};
use std::ops::Range;

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
