//! int8 × int8 or 15 bits. Both operands are widened to 16 bits. Sums are exact in 32 bits for [`CHUNK`]
//! strips and in f64 beyond that.

use super::Simd128;
use super::lanes::even_odd;
use crate::kernel::Quantized;
use crate::kernel::int8::{Int8Args, Int8Dot};
use crate::kernel::packing::{BLOCK, BLOCKS, SIX, UPPER, WHOLE};
use crate::matrix::{INT8_PAD_COLS, Int8Panel, Int8View};
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
    let (tokens, strips) = (x.tokens(), w.strips());
    scratch.shorts.grow(tokens * strips * INT8_PAD_COLS);
    let pairs = scratch.shorts.as_chunks_mut::<INT8_PAD_COLS>().0;
    for token in 0..tokens {
        join(x, token, &mut pairs[token * strips..][..strips]);
    }
    let dot = JoinedInputs { pairs: bytemuck::must_cast_slice(&*pairs), strips };
    Int8Args { dot, w, x, first: panels.start }.product(panels, y);
}

/// Activations as written by [`join`].
#[derive(Clone, Copy)]
struct JoinedInputs<'a> {
    pairs: &'a [Pairs],
    strips: usize,
}

impl<'a> Int8Dot for JoinedInputs<'a> {
    type Set = Simd128;
    type Tile<const N: usize> = [&'a [Pairs]; N];
    type Sums = [[v128; VECTORS]; 1];
    const SHORT: usize = CHUNK;
    const CHUNK: usize = CHUNK;

    #[inline(always)]
    fn set(self) -> Simd128 {
        Simd128
    }

    #[inline(always)]
    fn tile<const N: usize>(self, token: usize) -> [&'a [Pairs]; N] {
        std::array::from_fn(|n| &self.pairs[(token + n) * self.strips..][..self.strips])
    }

    #[inline(always)]
    fn dot<const P: usize, const N: usize, const W: u8>(
        self,
        values: &[Int8Panel<'_>; P],
        xs: [&'a [Pairs]; N],
        strips: Range<usize>,
        _: bool,
    ) -> [[Self::Sums; N]; P] {
        let mut sums = [[[[i32x4_splat(0); VECTORS]; 1]; N]; P];
        for (values, sums) in values.iter().zip(&mut sums) {
            dot::<N, W>(values, strips.clone(), &xs, sums);
        }
        sums
    }

    #[inline(always)]
    fn walk<const W: u8>(args: &Int8Args<'_, Self>, panels: Range<usize>, y: &mut Columns<'_>) {
        for panel in panels {
            let mut token = 0;
            while token < args.x.tokens() {
                match args.x.tokens() - token {
                    1 => args.tile::<1, 1, W>([panel], token, y),
                    _ => args.tile::<1, 2, W>([panel], token, y),
                }
                token += 2;
            }
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

/// Adds the exact Σ w·q of 16 rows × `N` tokens over some strips.
#[inline]
fn dot<const N: usize, const W: u8>(
    values: &Int8Panel<'_>,
    range: Range<usize>,
    xs: &[&[Pairs]; N],
    sums: &mut [[[v128; VECTORS]; 1]; N],
) {
    for i in range {
        for v in 0..VECTORS {
            for block in 0..BLOCKS {
                let values = even_odd(vector::<W>(values, i, block, v));
                for half in 0..2 {
                    for n in 0..N {
                        let x = i32x4_splat(bytemuck::must_cast(xs[n][i][half][block]));
                        let sum = &mut sums[n][0][v];
                        *sum = i32x4_add(*sum, i32x4_dot_i16x8(values[half], x));
                    }
                }
            }
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
