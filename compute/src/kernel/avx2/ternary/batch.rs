//! Ternary × int8 for batches, which arithmetic limits.
//!
//! Activations are processed in stripes of rows that stay in the cache. A stripe is rearranged so that a
//! panel reads it from front to back: `[chunk][tile][step of 4 columns][row of the tile]`. A chunk's
//! codes are decoded once per stripe and multiplied with one tile of rows after the other.

use super::{AHEAD, BatchDot, CHUNK, Exact};
use crate::kernel::byte_dot::widen;
use crate::kernel::byte_ops::add_quads;
use crate::kernel::panel_rows;
use crate::kernel::simd::{Task, by_token};
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, Layout};
use std::arch::x86_64::*;
use std::ops::Range;

/// Most activation rows of a tile: 12 sums, two vectors of codes, one of activations and one of products
/// fill the 16 registers.
const TILE: usize = 6;
/// Most activation rows of a stripe.
const STRIPE: usize = 16 * TILE;
/// Most bytes of a stripe of more than one tile: half of a small second-level cache.
const STRIPE_BYTES: usize = 256 << 10;
/// Number of steps of four columns in a block.
const STEPS: usize = BLOCK_COLS / 4;
/// Number of bytes that may be written past the last row, because rows are moved in eights.
const SLACK: usize = 32;

/// Decoded codes of a chunk, `[step][half]`: one byte each.
type Decoded = [[__m256i; 2]; STEPS * CHUNK];

/// Multiplies `panels` with some activation rows.
#[inline(always)]
pub fn batch<S: BatchDot>(
    args: &TernaryArgs<'_, S>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    buffer: &mut AlignedVec<i8>,
) {
    args.s.outlined(Batch { args, panels, rows, y, buffer });
}

/// A call of [`batch`].
struct Batch<'b, 'a, 'y, S> {
    args: &'b TernaryArgs<'a, S>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &'b mut Columns<'y>,
    buffer: &'b mut AlignedVec<i8>,
}

impl<S: BatchDot> Task for Batch<'_, '_, '_, S> {
    #[inline(always)]
    fn run(self) {
        stripes(self.args, self.panels, self.rows, self.y, self.buffer);
    }
}

/// As [`batch`], inlined.
#[inline(always)]
fn stripes<S: BatchDot>(
    args: &TernaryArgs<'_, S>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    buffer: &mut AlignedVec<i8>,
) {
    let s = args.s;
    let (zero, zeros) = (s.panel(s.splat(0.0)), s.int_panel(s.splat_int(0)));
    let cols = args.blocks * BLOCK_COLS;
    let most = (STRIPE_BYTES / cols.max(1) / TILE).clamp(1, STRIPE / TILE) * TILE;
    buffer.grow(most.min(rows.len()) * cols + SLACK);
    let mut decoded = [zeros; STEPS * CHUNK];
    let mut exact = [zeros; STRIPE];
    let mut totals = [zero; STRIPE];
    for first in rows.clone().step_by(most) {
        let stripe = Stripe { first, rows: most.min(rows.end - first) };
        by_token!(s, stripe.rearrange(args, buffer));
        let (exact, totals) = (&mut exact[..stripe.rows], &mut totals[..stripe.rows]);
        for panel in panels.clone() {
            totals.fill(zero);
            for g in 0..args.groups {
                exact.fill(zeros);
                for chunk in args.chunks(g, CHUNK) {
                    let codes = chunk_codes(args, panel, chunk.clone(), &mut decoded);
                    stripe.dot(s, codes, chunk, buffer, exact);
                }
                args.scale(panel, g, first, exact, totals);
            }
            args.store(panel, first, totals, y);
        }
    }
}

/// Some activation rows.
struct Stripe {
    first: usize,
    rows: usize,
}

impl Stripe {
    /// Splits the rows, counted from the stripe's first, into tiles that are as even as possible.
    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, tiles) = (self.rows, self.rows.div_ceil(TILE));
        (0..tiles).map(move |t| rows * t / tiles..rows * (t + 1) / tiles)
    }

    /// Returns the range of the rearranged activations of a tile and a chunk.
    fn range(&self, tile: &Range<usize>, chunk: &Range<usize>) -> Range<usize> {
        let at = BLOCK_COLS * (chunk.start * self.rows + chunk.len() * tile.start);
        at..at + BLOCK_COLS * chunk.len() * tile.len()
    }

    /// Writes the stripe's activations in the order in which [`Stripe::dot`] reads them.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn rearrange<S: BatchDot>(&self, args: &TernaryArgs<'_, S>, out: &mut [i8]) {
        for chunk in (0..args.groups).flat_map(|g| args.chunks(g, CHUNK)) {
            for tile in self.tiles() {
                let out = &mut out[self.range(&tile, &chunk).start..];
                // The last row stands for rows that the tile does not have. The next values in the
                // buffer overwrite them.
                let mut xs: [&[[i8; BLOCK_COLS]]; 8] = [&[]; 8];
                for (r, x) in xs.iter_mut().enumerate() {
                    let row = self.first + (tile.start + r).min(tile.end - 1);
                    *x = &args.x.row_chunks(row)[chunk.clone()];
                }
                for b in 0..chunk.len() {
                    for (s, step) in steps(&xs, b).iter().enumerate() {
                        let at = 4 * tile.len() * (STEPS * b + s);
                        out[at..at + SLACK].copy_from_slice(step);
                    }
                }
            }
        }
    }

    /// Adds Σ c·q over a chunk of blocks to the sums of each row.
    #[inline(always)]
    fn dot<S: BatchDot>(
        &self,
        s: S,
        codes: &[[__m256i; 2]],
        chunk: Range<usize>,
        rearranged: &[i8],
        exact: &mut [Exact],
    ) {
        for tile in self.tiles() {
            let x = rearranged[self.range(&tile, &chunk)].as_chunks().0;
            let exact = &mut exact[tile];
            match exact.len() {
                1 => dot::<_, 1>(s, codes, x, exact),
                2 => dot::<_, 2>(s, codes, x, exact),
                3 => dot::<_, 3>(s, codes, x, exact),
                4 => dot::<_, 4>(s, codes, x, exact),
                5 => dot::<_, 5>(s, codes, x, exact),
                _ => dot::<_, TILE>(s, codes, x, exact),
            }
        }
    }
}

/// Returns the four steps of block `b`: 4 columns of each of eight rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn steps(xs: &[&[[i8; BLOCK_COLS]]; 8], b: usize) -> [[i8; SLACK]; STEPS] {
    let mut lanes = [_mm256_setzero_si256(); 4];
    for (r, lanes) in lanes.iter_mut().enumerate() {
        let (low, high) = (bytemuck::must_cast(xs[r][b]), bytemuck::must_cast(xs[r + 4][b]));
        *lanes = _mm256_set_m128i(high, low);
    }
    let [a, b, c, d] = lanes;
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (ef, gh) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    bytemuck::must_cast([
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ef, gh),
        _mm256_unpackhi_epi64(ef, gh),
    ])
}

/// Decodes a chunk of a panel; returns the used part of `out`.
#[inline(always)]
fn chunk_codes<'o, S: BatchDot>(
    args: &TernaryArgs<'_, S>,
    panel: usize,
    chunk: Range<usize>,
    out: &'o mut Decoded,
) -> &'o [[__m256i; 2]] {
    if args.w.layout() == Layout::OneBit {
        let mut buffer = [[0; BLOCK_BYTES]; CHUNK];
        return decode(args.s, args.two_bits(panel, chunk, &mut buffer), out);
    }
    decode(args.s, &args.codes(panel)[chunk], out)
}

/// Decodes packed blocks; returns the used part of `out`.
#[inline(always)]
fn decode<'o, S: BatchDot>(
    s: S,
    packed: &[[u8; BLOCK_BYTES]],
    out: &'o mut Decoded,
) -> &'o [[__m256i; 2]] {
    let mask = s.splat_byte(3);
    for (block, out) in packed.iter().zip(out.as_chunks_mut::<STEPS>().0) {
        s.prefetch(block.as_ptr(), AHEAD);
        let mut q = S::block(block);
        for step in out {
            *step = [s.and(q[0], mask), s.and(q[1], mask)];
            q = [s.right2(q[0]), s.right2(q[1])];
        }
    }
    &out[..STEPS * packed.len()]
}

/// Adds Σ c·q of one tile over a chunk.
#[inline(always)]
fn dot<S: BatchDot, const N: usize>(
    s: S,
    codes: &[[__m256i; 2]],
    x: &[[i8; 4]],
    exact: &mut [Exact],
) {
    let mut sums = [s.int_panel(s.splat_int(0)); N];
    for (w, x) in codes.iter().zip(x.as_chunks::<N>().0) {
        for n in 0..N {
            let x = s.splat_int(i32::from_le_bytes(x[n].map(i8::cast_unsigned)));
            add_quads(s, &mut sums[n], w, x);
        }
    }
    for (exact, sums) in exact.iter_mut().zip(sums) {
        panel_rows::add_ints(s, exact, &widen(s, &[sums]));
    }
}
