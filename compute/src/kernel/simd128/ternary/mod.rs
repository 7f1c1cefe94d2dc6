//! Ternary × int8.
//!
//! A block is four vectors of 4 rows. In 16-bit lanes, the lower bytes of a row are two even columns and
//! the upper bytes two odd columns; `i32x4.dot_i16x8` adds both columns' products to the row's sum. Codes
//! are masked but not shifted, which makes them 4ᶠ times too large in field `f`. Activations of field `f`
//! are multiplied by 4³⁻ᶠ, so every product is 64 times too large and one sum per row takes them all.

mod lookup;
#[cfg(feature = "relaxed-simd")]
pub mod relaxed;

use super::Simd128;
use super::lanes::even_odd;
use crate::kernel::Quantized;
use crate::kernel::byte_ops::byte_ops;
use crate::kernel::one_bit::{self, OneBitDot};
use crate::kernel::simd::Simd;
use crate::kernel::ternary::{TernaryArgs, TernaryDot, tile};
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS, TernaryMatrix};
use std::arch::wasm32::*;
use std::hint::black_box;
use std::ops::Range;

/// Number of vectors of 4 rows in a panel.
const VECTORS: usize = PANEL_ROWS / 4;
/// Most blocks whose 64-fold products fit 32-bit sums: 64 · 3 · 128 · 16 columns · 4096 < 2³¹.
const CHUNK: usize = 4096;
/// log₂ of the factor by which products are too large.
const EXCESS: u32 = 6;
/// Number of activation rows from which tables are faster, in all and in the last tile.
const LOOKUP_ROWS: usize = 5;

/// Sums of one activation row with the 16 rows of a panel.
type Exact = [v128; VECTORS];
/// Scaled sums of one activation row with the 16 rows of a panel.
type Total = [v128; VECTORS];
/// Activations of a block: a pair of columns per field, first for the lower bytes of the codes, then for
/// the upper ones.
type Pairs = [[[i16; 2]; 4]; 2];

/// See the scalar definition.
pub fn ternary(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, shorts, sums: exact, floats, rearranged, .. } = scratch;
    let args = TernaryArgs::new(Simd128, w, x, panels.start, ints);
    rearranged.grow(size_of::<Pairs>() * x.rows() * args.blocks);
    let pairs: &mut [[i16; BLOCK_COLS]] = bytemuck::cast_slice_mut(rearranged);
    // Hides the factors from the compiler, which would replace the multiplication by shifts lane by lane.
    let factors = black_box(i16x8(64, 64, 16, 16, 4, 4, 1, 1));
    let mut ready = x.rows();
    let mut buffers =
        lookup::LookupBuffers { offsets: decoded, narrow: shorts, exact, totals: floats };
    batch(&args, panels, LOOKUP_ROWS, y, &mut buffers, |panel, row, y| {
        // Rows that use tables are not needed as pairs.
        for row in row..ready {
            let out = &mut pairs[row * args.blocks..][..args.blocks];
            out.iter_mut()
                .zip(x.row_chunks(row))
                .for_each(|(out, block)| *out = pair(block, factors));
        }
        ready = ready.min(row);
        let pairs: &[Pairs] = bytemuck::must_cast_slice(&*pairs);
        let of_row = |row| &pairs[row * args.blocks..][..args.blocks];
        match x.rows() - row {
            1 => tile(&args, [panel], row, [of_row(row)], y),
            _ => tile(&args, [panel], row, [of_row(row), of_row(row + 1)], y),
        }
        2
    });
}

/// As [`ternary`], of matrices in the one-bit layout.
pub fn one_bit(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    one_bit_product(Simd128, LOOKUP_ROWS, w, panels, (x, y), scratch);
}

/// As [`one_bit`], with tables from `least` rows on.
#[inline(always)]
fn one_bit_product<S: OneBitDot + Simd<Panel = Total>>(
    s: S,
    least: usize,
    w: &TernaryMatrix,
    panels: Range<usize>,
    (x, y): (&Quantized<'_>, &mut Columns<'_>),
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, shorts, sums: exact, floats, .. } = scratch;
    let args = TernaryArgs::new(s, w, x, panels.start, ints);
    let mut buffers =
        lookup::LookupBuffers { offsets: decoded, narrow: shorts, exact, totals: floats };
    batch(&args, panels, least, y, &mut buffers, |panel, row, y| {
        one_bit::streams(&args, panel..panel + 1, row..x.rows(), y);
        x.rows() - row
    });
}

/// The operations of this set that [`byte_ops`] uses.
mod ops {
    use std::arch::wasm32::*;

    pub fn splat_byte(x: u8) -> v128 {
        u8x16_splat(x)
    }

    pub fn and(a: v128, b: v128) -> v128 {
        v128_and(a, b)
    }

    pub fn right2(x: v128) -> v128 {
        u16x8_shr(x, 2)
    }

    /// In 16-bit lanes, the lower bytes of a row are two even columns and the upper bytes two odd ones.
    #[inline(always)]
    pub fn add_quads(sum: v128, w: v128, x: v128) -> v128 {
        let even = i32x4_dot_i16x8(v128_and(w, u16x8_splat(255)), i16x8_shr(i16x8_shl(x, 8), 8));
        let odd = i32x4_dot_i16x8(u16x8_shr(w, 8), i16x8_shr(x, 8));
        i32x4_add(sum, i32x4_add(even, odd))
    }

    pub fn widen(sum: v128) -> v128 {
        sum
    }
}

byte_ops!(Simd128, ops);

impl OneBitDot for Simd128 {
    // Of 4 columns · 128 · 8 · 32 blocks, 32-bit sums hold all.
    const STEPS: usize = 32;
    const BITS: [usize; 5] = [2, 2, 1, 1, 1];
    const PANELS: usize = 1;
    const AHEAD: usize = 0;
}

/// Returns a block's activations as [`Pairs`], multiplied by the factors of their fields.
fn pair(block: &[i8; BLOCK_COLS], factors: v128) -> [i16; BLOCK_COLS] {
    let halves = even_odd(bytemuck::must_cast(*block));
    bytemuck::must_cast(halves.map(|h| i16x8_mul(h, factors)))
}

/// Computes all products: by table in tiles of at least `least` rows if possible, else by `tile`, which
/// gets a panel and an activation row and returns the number of rows that it has computed.
#[inline]
fn batch<S: Simd<Panel = Total>>(
    args: &TernaryArgs<'_, S>,
    panels: Range<usize>,
    least: usize,
    y: &mut Columns<'_>,
    buffers: &mut lookup::LookupBuffers<'_>,
    mut tile: impl FnMut(usize, usize, &mut Columns<'_>) -> usize,
) {
    let rows = args.x.rows();
    let rest = rows % lookup::TILE;
    let tables = if rest < least { rows - rest } else { rows };
    for first in panels.clone().step_by(lookup::PANELS) {
        let panels = first..panels.end.min(first + lookup::PANELS);
        let done = lookup::lookup(args, panels.clone(), 0..tables, y, buffers);
        for panel in panels {
            let mut row = if done { tables } else { 0 };
            while row < rows {
                row += tile(panel, row, y);
            }
        }
    }
}

impl TernaryDot for Simd128 {
    type Block = Pairs;
    const CHUNK: usize = CHUNK;

    #[inline(always)]
    fn dot<const P: usize, const N: usize>(
        self,
        codes: [&[[u8; BLOCK_BYTES]]; P],
        xs: [&[Pairs]; N],
    ) -> [[Exact; N]; P] {
        codes.map(|codes| dot(codes, xs).map(|sums| sums.map(|sum| i32x4_shr(sum, EXCESS))))
    }
}

/// Returns 64 · Σ c·q of 16 rows × `N` activation rows.
#[inline]
fn dot<const N: usize>(packed: &[[u8; BLOCK_BYTES]], xs: [&[Pairs]; N]) -> [Exact; N] {
    let mut sums = [[i32x4_splat(0); VECTORS]; N];
    let xs = xs.map(|x| &x[..packed.len()]);
    for (b, block) in packed.iter().enumerate() {
        let codes: [v128; VECTORS] = bytemuck::must_cast(*block);
        add_half(&codes, xs.map(|x| &x[b][0]), &mut sums);
        add_half(&codes.map(|c| u16x8_shr(c, 8)), xs.map(|x| &x[b][1]), &mut sums);
    }
    sums
}

/// Adds the products of the lower bytes of a block's codes.
#[inline(always)]
fn add_half<const N: usize>(
    codes: &[v128; VECTORS],
    x: [&[[i16; 2]; 4]; N],
    sums: &mut [Exact; N],
) {
    add_field::<N, 0>(codes, x, sums);
    add_field::<N, 1>(codes, x, sums);
    add_field::<N, 2>(codes, x, sums);
    add_field::<N, 3>(codes, x, sums);
}

/// Adds the products of field `F`. A const parameter instead of a loop keeps masks constant and sums in
/// registers even if the compiler does not unroll.
#[inline(always)]
fn add_field<const N: usize, const F: usize>(
    codes: &[v128; VECTORS],
    x: [&[[i16; 2]; 4]; N],
    sums: &mut [Exact; N],
) {
    let mask = i16x8_splat(3 << (2 * F));
    let x = x.map(|x| i32x4_splat(bytemuck::must_cast(x[F])));
    for v in 0..VECTORS {
        let code = v128_and(codes[v], mask);
        for n in 0..N {
            sums[n][v] = i32x4_add(sums[n][v], i32x4_dot_i16x8(code, x[n]));
        }
    }
}
