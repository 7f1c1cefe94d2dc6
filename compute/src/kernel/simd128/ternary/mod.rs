//! Ternary × int8.
//!
//! A block is four vectors of 4 rows. In 16-bit lanes, the lower bytes of a row are two even columns and
//! the upper bytes two odd columns; `i32x4.dot_i16x8` adds both columns' products to the row's sum. Codes
//! are masked but not shifted, which makes them 4ᶠ times too large in field `f`. Activations of field `f`
//! are multiplied by 4³⁻ᶠ, so every product is 64 times too large and one sum per row takes them all.

mod lookup;
#[cfg(feature = "relaxed-simd")]
pub mod relaxed;

use super::lanes::{even_odd, load, store, widen_8_f16};
use crate::kernel::Quantized;
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS, Scales, TernaryMatrix};
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
    let (size, sums) = x.scale_groups(w, ints);
    let args = TernaryArgs::new(w, x, (size, sums), panels.start);
    rearranged.grow(size_of::<Pairs>() * x.rows() * args.blocks);
    let pairs: &mut [[i16; BLOCK_COLS]] = bytemuck::cast_slice_mut(rearranged);
    // Hides the factors from the compiler, which would replace the multiplication by shifts lane by lane.
    let factors = black_box(i16x8(64, 64, 16, 16, 4, 4, 1, 1));
    let mut ready = x.rows();
    let mut buffers =
        lookup::LookupBuffers { offsets: decoded, narrow: shorts, exact, totals: floats };
    args.batch(panels, LOOKUP_ROWS, y, &mut buffers, |panel, row, y| {
        // Rows that use tables are not needed as pairs.
        for row in row..ready {
            let out = &mut pairs[row * args.blocks..][..args.blocks];
            out.iter_mut()
                .zip(x.row_chunks(row))
                .for_each(|(out, block)| *out = pair(block, factors));
        }
        ready = ready.min(row);
        let pairs: &[Pairs] = bytemuck::must_cast_slice(&*pairs);
        match x.rows() - row {
            1 => args.tile::<1>(panel, row, pairs, y),
            _ => args.tile::<2>(panel, row, pairs, y),
        }
    });
}

/// Returns a block's activations as [`Pairs`], multiplied by the factors of their fields.
fn pair(block: &[i8; BLOCK_COLS], factors: v128) -> [i16; BLOCK_COLS] {
    let halves = even_odd(bytemuck::must_cast(*block));
    bytemuck::must_cast(halves.map(|h| i16x8_mul(h, factors)))
}

/// Arguments of a product that all its tiles share.
struct TernaryArgs<'a> {
    w: &'a TernaryMatrix,
    x: &'a Quantized<'a>,
    /// Sums of activations, `[rows][groups]`.
    sums: &'a [i32],
    /// Number of blocks in a panel.
    blocks: usize,
    /// Number of groups of columns that share a scale.
    groups: usize,
    /// Number of blocks in a group.
    group_blocks: usize,
    /// First panel of the output view.
    first: usize,
}

impl<'a> TernaryArgs<'a> {
    /// Collects the arguments; `size` columns share a scale, and `sums` are the sums of activations.
    fn new(
        w: &'a TernaryMatrix,
        x: &'a Quantized<'a>,
        (size, sums): (usize, &'a [i32]),
        first: usize,
    ) -> Self {
        let blocks = w.cols().div_ceil(BLOCK_COLS);
        let group_blocks = size / BLOCK_COLS;
        Self { w, x, sums, blocks, groups: blocks.div_ceil(group_blocks), group_blocks, first }
    }

    /// Computes all products: by table in tiles of at least `least` rows if possible, else by `tile`, which
    /// gets a panel and an activation row and returns the number of rows that it has computed.
    #[inline]
    fn batch(
        &self,
        panels: Range<usize>,
        least: usize,
        y: &mut Columns<'_>,
        buffers: &mut lookup::LookupBuffers<'_>,
        mut tile: impl FnMut(usize, usize, &mut Columns<'_>) -> usize,
    ) {
        let rows = self.x.rows();
        let rest = rows % lookup::TILE;
        let tables = if rest < least { rows - rest } else { rows };
        for first in panels.clone().step_by(lookup::PANELS) {
            let panels = first..panels.end.min(first + lookup::PANELS);
            let done = lookup::lookup(self, panels.clone(), 0..tables, y, buffers);
            for panel in panels {
                let mut row = if done { tables } else { 0 };
                while row < rows {
                    row += tile(panel, row, y);
                }
            }
        }
    }

    /// Multiplies one panel × `N` activation rows from `row` on; returns `N`.
    #[inline]
    fn tile<const N: usize>(
        &self,
        panel: usize,
        row: usize,
        pairs: &[Pairs],
        y: &mut Columns<'_>,
    ) -> usize {
        let xs: [&[Pairs]; N] =
            std::array::from_fn(|n| &pairs[(row + n) * self.blocks..][..self.blocks]);
        let mut totals = [[f32x4_splat(0.0); VECTORS]; N];
        for g in 0..self.groups {
            let mut exact = [[i32x4_splat(0); VECTORS]; N];
            for chunk in self.chunks(g, CHUNK) {
                let sums = dot(&self.codes(panel)[chunk.clone()], xs.map(|x| &x[chunk.clone()]));
                for n in 0..N {
                    for v in 0..VECTORS {
                        exact[n][v] = i32x4_add(exact[n][v], i32x4_shr(sums[n][v], EXCESS));
                    }
                }
            }
            self.scale(panel, g, row, &exact, &mut totals);
        }
        self.store(panel, row, &totals, y);
        N
    }

    /// Splits the blocks of group `g` into chunks of `size`.
    fn chunks(&self, g: usize, size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let end = ((g + 1) * self.group_blocks).min(self.blocks);
        (g * self.group_blocks..end).step_by(size).map(move |at| at..end.min(at + size))
    }

    /// Returns the packed codes of a panel.
    fn codes(&self, panel: usize) -> &[[u8; BLOCK_BYTES]] {
        let bytes = self.blocks * BLOCK_BYTES;
        self.w.codes()[panel * bytes..][..bytes].as_chunks().0
    }

    /// Returns the scales of a panel's 16 rows in group `g`.
    #[inline]
    fn scales(&self, panel: usize, g: usize) -> [v128; VECTORS] {
        match self.w.scales() {
            Scales::Tensor(s) => [f32x4_splat(*s); VECTORS],
            Scales::Groups(scales) => {
                let halves = &scales.bytes().as_chunks::<32>().0[panel * self.groups + g];
                let halves: [v128; 2] = bytemuck::must_cast(*halves);
                bytemuck::must_cast(halves.map(widen_8_f16))
            }
        }
    }

    /// Adds (Σ c·q − Σ q) · scale of group `g`, for activation rows from `row` on.
    #[inline]
    fn scale(&self, panel: usize, g: usize, row: usize, exact: &[Exact], totals: &mut [Total]) {
        let scales = self.scales(panel, g);
        for (n, (exact, total)) in exact.iter().zip(totals).enumerate() {
            let offset = i32x4_splat(self.sums[(row + n) * self.groups + g]);
            for v in 0..VECTORS {
                let value = f32x4_convert_i32x4(i32x4_sub(exact[v], offset));
                total[v] = f32x4_add(total[v], f32x4_mul(value, scales[v]));
            }
        }
    }

    /// Writes a panel's outputs of activation rows from `row` on.
    #[inline]
    fn store(&self, panel: usize, row: usize, totals: &[Total], y: &mut Columns<'_>) {
        let from = (panel - self.first) * PANEL_ROWS;
        for (n, total) in totals.iter().enumerate() {
            let (out, adds) = self.x.target(row + n);
            let step = f32x4_splat(self.x.steps[row + n]);
            let total = total.map(|t| f32x4_mul(t, step));
            let out = &mut y.row(out)[from..];
            if let Some(out) = out.first_chunk_mut::<PANEL_ROWS>() {
                for (out, total) in out.as_chunks_mut::<4>().0.iter_mut().zip(total) {
                    let before = if adds { load(out) } else { f32x4_splat(0.0) };
                    store(out, if adds { f32x4_add(before, total) } else { total });
                }
                continue;
            }
            let lanes: [f32; PANEL_ROWS] = bytemuck::must_cast(total);
            for (o, l) in out.iter_mut().zip(lanes) {
                *o = if adds { *o + l } else { l };
            }
        }
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
