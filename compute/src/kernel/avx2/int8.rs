//! int8 × int8 or, from two planes, int8 × 15 bits: both sides widened to 16 bits (`vpmaddubsw` would
//! saturate), exact in 32 for a chunk of columns and in f64 beyond it. Weights in planes of four bits are
//! put together in registers.
//!
//! Tokens go in tiles, each rearranged so that a panel's walk reads it from front to back:
//! `[tile][block of 4 columns][token of the tile]`.

use super::lanes::{load_half, prefetch};
use super::ternary::store;
use crate::kernel::Quantised;
use crate::matrix::{INT8_BLOCK_COLS, Int8Panel, Int8View, Packing};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Tokens of a tile at most: with half a panel, 12 sums, two vectors of weights, one of activations
/// and one of products fill the 16 registers.
const TILE: usize = 6;
/// How far ahead of the panel's walk memory is asked for, in bytes.
const AHEAD: usize = 2048;
/// Bytes in a block of 16 rows × 4 columns.
const BLOCK: usize = PANEL_ROWS * INT8_BLOCK_COLS;
/// Pairs of blocks whose products fit 32-bit sums: 8 columns · 128 · 32,767 · 64 pairs < 2³¹.
const CHUNK: usize = 64;

const WHOLE: u8 = Packing::Whole as u8;
const UPPER: u8 = Packing::Upper as u8;

/// A block's columns of one token.
type Quad = [i16; INT8_BLOCK_COLS];

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let wide = join(x, 2 * w.pairs(), &mut scratch.shorts);
    let walk = Walk { w, x, wide, first: panels.start };
    match w.packing() {
        Packing::Whole => walk.product::<WHOLE>(panels, y),
        Packing::Upper => walk.product::<UPPER>(panels, y),
        Packing::Split => walk.product::<{ Packing::Split as u8 }>(panels, y),
    }
}

/// Tokens of each tile: as even as can be.
fn tiles(tokens: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = tokens.div_ceil(TILE);
    (0..tiles).map(move |t| tokens * t / tiles..tokens * (t + 1) / tiles)
}

/// Writes the tokens' values, all planes in one, in the order in which [`dot`] reads them.
#[target_feature(enable = "avx2,fma,f16c")]
fn join<'o>(x: &Quantised<'_>, blocks: usize, out: &'o mut AlignedVec<i16>) -> &'o [Quad] {
    let quads = x.tokens() * blocks;
    out.grow(quads * INT8_BLOCK_COLS);
    let out = &mut out.as_chunks_mut().0[..quads];
    out.fill([0; INT8_BLOCK_COLS]);
    for tile in tiles(x.tokens()) {
        let out = &mut out[tile.start * blocks..tile.end * blocks];
        for (n, token) in tile.clone().enumerate() {
            for row in token * x.planes..(token + 1) * x.planes {
                let quads = out[n..].iter_mut().step_by(tile.len());
                for (wide, narrow) in quads.zip(x.row_chunks::<INT8_BLOCK_COLS>(row)) {
                    *wide = std::array::from_fn(|k| (wide[k] << 8) + i16::from(narrow[k]));
                }
            }
        }
    }
    out
}

/// What all tiles of one call share.
struct Walk<'a> {
    w: Int8View<'a>,
    x: &'a Quantised<'a>,
    /// The activations, as [`join`] has written them.
    wide: &'a [Quad],
    /// The panel that `y`'s view starts with.
    first: usize,
}

impl Walk<'_> {
    /// The product with weights packed like this.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn product<const W: u8>(&self, panels: Range<usize>, y: &mut Columns<'_>) {
        for panel in panels {
            for tile in tiles(self.x.tokens()) {
                match tile.len() {
                    1 => self.tile::<1, 2, W>(panel, tile, y),
                    2 => self.tile::<2, 2, W>(panel, tile, y),
                    3 => self.tile::<3, 2, W>(panel, tile, y),
                    4 => self.tile::<4, 1, W>(panel, tile, y),
                    5 => self.tile::<5, 1, W>(panel, tile, y),
                    _ => self.tile::<TILE, 1, W>(panel, tile, y),
                }
            }
        }
    }

    /// One panel × a tile of `N` tokens, `H` halves of the panel at a time.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn tile<const N: usize, const H: usize, const W: u8>(
        &self,
        panel: usize,
        tile: Range<usize>,
        y: &mut Columns<'_>,
    ) {
        let w = self.w;
        let x =
            &self.wide[tile.start * 2 * w.pairs()..].as_chunks::<N>().0.as_chunks().0[..w.pairs()];
        let scales = &w.scales().as_chunks::<64>().0[panel * w.groups()..][..w.groups()];
        let group_pairs = w.group().div_ceil(2 * INT8_BLOCK_COLS);
        let mut totals = [[_mm256_setzero_ps(); 2]; N];
        for (g, scales) in scales.iter().enumerate() {
            let range = g * group_pairs..((g + 1) * group_pairs).min(w.pairs());
            let sums = rounded::<N, H, W>(w, panel, range.clone(), &x[range]);
            let scales: [__m256; 2] = bytemuck::must_cast(*scales);
            for n in 0..N {
                for h in 0..2 {
                    // Not fused: every set rounds the product, so that all agree bit for bit.
                    let value = _mm256_mul_ps(sums[n][h], scales[h]);
                    totals[n][h] = _mm256_add_ps(totals[n][h], value);
                }
            }
        }
        let from = (panel - self.first) * PANEL_ROWS;
        for (token, total) in tile.zip(&totals) {
            store(total, self.x.joined_step(token), &mut y.row(token)[from..], false);
        }
    }
}

/// Σ w·q of 16 rows × `N` tokens over a group, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn rounded<const N: usize, const H: usize, const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    range: Range<usize>,
    x: &[[[Quad; N]; 2]],
) -> [[__m256; 2]; N] {
    let mut out = [[_mm256_setzero_ps(); 2]; N];
    if range.len() <= CHUNK {
        let sums = dot::<N, H, W>(w.panel(panel, range), x);
        for n in 0..N {
            out[n] = [_mm256_cvtepi32_ps(sums[n][0]), _mm256_cvtepi32_ps(sums[n][1])];
        }
        return out;
    }
    let mut exact = [[_mm256_setzero_pd(); 4]; N];
    for (i, x) in x.chunks(CHUNK).enumerate() {
        let from = range.start + i * CHUNK;
        let sums = dot::<N, H, W>(w.panel(panel, from..from + x.len()), x);
        for n in 0..N {
            let quarters: [__m128i; 4] = bytemuck::must_cast(sums[n]);
            for q in 0..4 {
                exact[n][q] = _mm256_add_pd(exact[n][q], _mm256_cvtepi32_pd(quarters[q]));
            }
        }
    }
    for n in 0..N {
        let [a, b, c, d] = exact[n];
        out[n] = [
            _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)),
            _mm256_set_m128(_mm256_cvtpd_ps(d), _mm256_cvtpd_ps(c)),
        ];
    }
    out
}

/// Exact Σ w·q of 16 rows × `N` tokens over a chunk.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot<const N: usize, const H: usize, const W: u8>(
    values: Int8Panel<'_>,
    x: &[[[Quad; N]; 2]],
) -> [[__m256i; 2]; N] {
    let mut out = [[_mm256_setzero_si256(); 2]; N];
    for first in (0..2).step_by(H) {
        let part = halves::<N, H, W>(values, x, first);
        for n in 0..N {
            out[n][first..first + H].copy_from_slice(&part[n]);
        }
    }
    out
}

/// The same for the `H` halves of the panel from the `first` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves<const N: usize, const H: usize, const W: u8>(
    values: Int8Panel<'_>,
    x: &[[[Quad; N]; 2]],
    first: usize,
) -> [[__m256i; H]; N] {
    // Four rows a vector, two partial sums a row.
    let mut sums = [[[_mm256_setzero_si256(); 2]; H]; N];
    for (i, x) in x.iter().enumerate() {
        let lines = lines::<W>(&values, i);
        for (block, x) in x.iter().enumerate() {
            let mut w = [[_mm256_setzero_si256(); 2]; H];
            for (h, half) in w.iter_mut().enumerate() {
                for (k, w) in half.iter_mut().enumerate() {
                    let four = quarter::<W>(&lines, block, 2 * (first + h) + k);
                    *w = _mm256_cvtepi8_epi16(four);
                }
            }
            for n in 0..N {
                let x = _mm256_set1_epi64x(bytemuck::must_cast(x[n]));
                for h in 0..H {
                    for k in 0..2 {
                        let products = _mm256_madd_epi16(w[h][k], x);
                        sums[n][h][k] = _mm256_add_epi32(sums[n][h][k], products);
                    }
                }
            }
        }
    }
    // Rows 0–1, 4–5, 2–3, 6–7 of a half: add the partial sums, then put the rows in order.
    sums.map(|s| s.map(|[a, b]| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(a, b))))
}

/// Two blocks: as they stand, or the upper and the lower halves of their values.
type Lines<'a> = [&'a [[u8; 16]; BLOCK / 16]; 2];

/// The `i`-th two blocks. Where the lower halves are not read, each is what stands for them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn lines<'a, const W: u8>(w: &Int8Panel<'a>, i: usize) -> Lines<'a> {
    let values = w.values.as_chunks::<BLOCK>().0;
    let (first, second) = match W {
        WHOLE => (&values[2 * i], &values[2 * i + 1]),
        UPPER => (&values[i], &FILLS[usize::from(w.fill)]),
        _ => (&values[i], &w.low.as_chunks::<BLOCK>().0[i]),
    };
    prefetch(first.as_ptr(), AHEAD);
    if W != UPPER {
        prefetch(second.as_ptr(), AHEAD);
    }
    [bytemuck::must_cast_ref(first), bytemuck::must_cast_ref(second)]
}

/// A block of each lower half, in both halves of its bytes.
static FILLS: [[u8; BLOCK]; 16] = {
    let mut fills = [[0; BLOCK]; 16];
    let mut fill = 0;
    while fill < 16 {
        fills[fill] = [fill as u8 * 0x11; BLOCK];
        fill += 1;
    }
    fills
};

/// Four rows of one of two blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn quarter<const W: u8>(lines: &Lines<'_>, block: usize, quarter: usize) -> __m128i {
    if W == WHOLE {
        return load_half(&lines[block][quarter]);
    }
    // The upper halves of bytes stay where they are, in 16-bit lanes too.
    let upper = _mm_set1_epi8(0xf0_u8 as i8);
    let (mut high, mut low) = (load_half(&lines[0][quarter]), load_half(&lines[1][quarter]));
    if block == 0 {
        high = _mm_slli_epi16::<4>(high);
    } else {
        low = _mm_srli_epi16::<4>(low);
    }
    _mm_or_si128(_mm_and_si128(high, upper), _mm_andnot_si128(upper, low))
}
