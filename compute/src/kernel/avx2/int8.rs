//! int8 × int8 or, with two planes, int8 × 15 bits.
//!
//! Both operands are widened to 16 bits, because `vpmaddubsw` would saturate. Sums are exact in 32 bits
//! for a chunk of columns and in f64 beyond that. Weights in planes are combined in registers. Even
//! columns of a block are multiplied with even ones and odd ones with odd ones, so that widening takes
//! shifts, which keep rows in order.
//!
//! Tokens are processed in tiles. The activations of a tile are rearranged so that a panel reads them
//! from front to back: `[tile][block of 4 columns][token of the tile]`.

use super::lanes::{load_u8, prefetch};
use super::ternary::store;
use crate::kernel::Quantized;
use crate::kernel::packing::{BLOCK, BLOCKS, SIX, SPLIT, UPPER, WHOLE, lines};
use crate::matrix::{
    INT8_BLOCK_COLS, INT8_PAD_COLS, Int8Panel, Int8Scales, Int8View, PARTS, Packing,
};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Most tokens of a tile: their 12 sums, two vectors of weights, one of activations and one of products
/// fill the 16 registers.
const TILE: usize = 6;
/// Prefetch distance in bytes.
const AHEAD: usize = 2048;
/// Most strips whose products fit 32-bit sums: 16 columns · 128 · 32,767 · 32 strips < 2³¹.
const CHUNK: usize = 32;

/// A block's columns of one token: the even columns, then the odd ones.
type Quad = [[i16; 2]; 2];

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let wide = join(x, BLOCKS * w.strips(), &mut scratch.shorts);
    let args = Int8Args { w, x, wide, first: panels.start };
    match w.packing() {
        Packing::Whole => args.product::<WHOLE>(panels, y),
        Packing::Upper => args.product::<UPPER>(panels, y),
        Packing::Six => args.product::<SIX>(panels, y),
        Packing::Split => args.product::<SPLIT>(panels, y),
    }
}

/// Splits tokens into tiles that are as even as possible.
fn tiles(tokens: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = tokens.div_ceil(TILE);
    (0..tiles).map(move |t| tokens * t / tiles..tokens * (t + 1) / tiles)
}

/// Writes the tokens' values, joined from their planes, in the order in which [`dot`] reads them.
#[target_feature(enable = "avx2,fma,f16c")]
fn join<'o>(x: &Quantized<'_>, blocks: usize, out: &'o mut AlignedVec<i16>) -> &'o [Quad] {
    let quads = x.tokens() * blocks;
    out.grow(quads * INT8_BLOCK_COLS);
    let out: &mut [Quad] =
        bytemuck::must_cast_slice_mut(&mut out.as_chunks_mut::<INT8_BLOCK_COLS>().0[..quads]);
    out.fill([[0; 2]; 2]);
    for tile in tiles(x.tokens()) {
        let out = &mut out[tile.start * blocks..tile.end * blocks];
        for (n, token) in tile.clone().enumerate() {
            for row in token * x.planes..(token + 1) * x.planes {
                let quads = out[n..].iter_mut().step_by(tile.len());
                for (wide, narrow) in quads.zip(x.row_chunks::<INT8_BLOCK_COLS>(row)) {
                    for (k, &narrow) in narrow.iter().enumerate() {
                        let wide = &mut wide[k % 2][k / 2];
                        *wide = (*wide << 8) + i16::from(narrow);
                    }
                }
            }
        }
    }
    out
}

/// Arguments of a product that all its tiles share.
struct Int8Args<'a> {
    w: Int8View<'a>,
    x: &'a Quantized<'a>,
    /// Activations as written by [`join`].
    wide: &'a [Quad],
    /// First panel of the output view.
    first: usize,
}

/// Columns of a strip of `N` tokens.
type Strip<const N: usize> = [[Quad; N]; BLOCKS];

impl Int8Args<'_> {
    /// Computes the product with packing `W`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn product<const W: u8>(&self, panels: Range<usize>, y: &mut Columns<'_>) {
        for panel in panels {
            for tile in tiles(self.x.tokens()) {
                match tile.len() {
                    1 => self.tile::<1, W>(panel, tile, y),
                    2 => self.tile::<2, W>(panel, tile, y),
                    3 => self.tile::<3, W>(panel, tile, y),
                    4 => self.tile::<4, W>(panel, tile, y),
                    5 => self.tile::<5, W>(panel, tile, y),
                    _ => self.tile::<TILE, W>(panel, tile, y),
                }
            }
        }
    }

    /// Multiplies one panel × a tile of `N` tokens.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn tile<const N: usize, const W: u8>(
        &self,
        panel: usize,
        tile: Range<usize>,
        y: &mut Columns<'_>,
    ) {
        let w = self.w;
        let quads = self.wide[tile.start * BLOCKS * w.strips()..].as_chunks::<N>().0;
        let x = &quads.as_chunks().0[..w.strips()];
        // GGUF files have groups of 16 and 32 columns: so many groups that each must cost little.
        let even = w.cols().is_multiple_of(w.group());
        let totals = match w.group().div_ceil(INT8_PAD_COLS) {
            1 if even => short_groups::<N, W, 1>(w, panel, x),
            2 if even => short_groups::<N, W, 2>(w, panel, x),
            strips => groups::<N, W>(w, panel, strips, x),
        };
        let from = (panel - self.first) * PANEL_ROWS;
        for (token, total) in tile.zip(&totals) {
            store(total, self.x.joined_step(token), &mut y.row(token)[from..], false);
        }
    }
}

/// Returns Σ w·q of 16 rows × `N` tokens, rounded once per group of `strips` strips.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn groups<const N: usize, const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    strips: usize,
    x: &[Strip<N>],
) -> [[__m256; 2]; N] {
    let scales = w.scales(panel);
    let mut totals = [[_mm256_setzero_ps(); 2]; N];
    for g in 0..w.groups() {
        let range = g * strips..((g + 1) * strips).min(w.strips());
        let sums = rounded::<N, W>(w, panel, range.clone(), &x[range]);
        add(&mut totals, &sums, group_scales(&scales, g));
    }
    totals
}

/// As [`groups`], if all groups have `G` strips, at most [`CHUNK`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn short_groups<const N: usize, const W: u8, const G: usize>(
    w: Int8View<'_>,
    panel: usize,
    x: &[Strip<N>],
) -> [[__m256; 2]; N] {
    let (values, scales) = (w.panel(panel, 0..w.strips()), w.scales(panel));
    let mut totals = [[_mm256_setzero_ps(); 2]; N];
    for (g, x) in x.as_chunks::<G>().0.iter().enumerate() {
        let sums = in_floats(&dot::<N, W>(&values, g * G, x));
        add(&mut totals, &sums, group_scales(&scales, g));
    }
    totals
}

/// Adds sums times their scales to totals. Multiplication and addition are not fused: every instruction
/// set rounds the product, so that all agree bit for bit.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<const N: usize>(
    totals: &mut [[__m256; 2]; N],
    sums: &[[__m256; 2]; N],
    scales: [__m256; 2],
) {
    for n in 0..N {
        for h in 0..2 {
            let value = _mm256_mul_ps(sums[n][h], scales[h]);
            totals[n][h] = _mm256_add_ps(totals[n][h], value);
        }
    }
}

/// Converts sums to floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn in_floats<const N: usize>(sums: &[[__m256i; 2]; N]) -> [[__m256; 2]; N] {
    let mut out = [[_mm256_setzero_ps(); 2]; N];
    for n in 0..N {
        out[n] = [_mm256_cvtepi32_ps(sums[n][0]), _mm256_cvtepi32_ps(sums[n][1])];
    }
    out
}

/// Returns the scales of a group's 16 rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn group_scales(scales: &Int8Scales<'_>, group: usize) -> [__m256; 2] {
    match scales {
        Int8Scales::Float(scales) => bytemuck::must_cast(scales[group]),
        Int8Scales::Parts(parts, factors) => {
            let parts: __m128i = bytemuck::must_cast(parts[group]);
            let [first, second]: [__m256; 2] = bytemuck::must_cast(factors[group / PARTS]);
            let upper = _mm_unpackhi_epi64(parts, parts);
            let [a, b] = [_mm256_cvtepi8_epi32(parts), _mm256_cvtepi8_epi32(upper)];
            [
                _mm256_mul_ps(_mm256_cvtepi32_ps(a), first),
                _mm256_mul_ps(_mm256_cvtepi32_ps(b), second),
            ]
        }
    }
}

/// Returns Σ w·q of 16 rows × `N` tokens over a group, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn rounded<const N: usize, const W: u8>(
    w: Int8View<'_>,
    panel: usize,
    range: Range<usize>,
    x: &[Strip<N>],
) -> [[__m256; 2]; N] {
    let values = w.panel(panel, range);
    if x.len() <= CHUNK {
        return in_floats(&dot::<N, W>(&values, 0, x));
    }
    let mut out = [[_mm256_setzero_ps(); 2]; N];
    let mut exact = [[_mm256_setzero_pd(); 4]; N];
    for (i, x) in x.chunks(CHUNK).enumerate() {
        let sums = dot::<N, W>(&values, i * CHUNK, x);
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

/// Returns the exact Σ w·q of 16 rows × `N` tokens over the strips from `first` on, as many as `x` has.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
#[allow(clippy::needless_range_loop)] // The sums of all tokens share an index.
fn dot<const N: usize, const W: u8>(
    values: &Int8Panel<'_>,
    first: usize,
    x: &[Strip<N>],
) -> [[__m256i; 2]; N] {
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    for (i, x) in (first..).zip(x) {
        fetch::<W>(values, i);
        for (block, x) in x.iter().enumerate() {
            for h in 0..2 {
                let w = half::<W>(values, i, block, h);
                let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w));
                let odd = _mm256_srai_epi16::<8>(w);
                for n in 0..N {
                    let [x_even, x_odd] = x[n];
                    let x_even = _mm256_set1_epi32(bytemuck::must_cast(x_even));
                    let x_odd = _mm256_set1_epi32(bytemuck::must_cast(x_odd));
                    let products = _mm256_madd_epi16(even, x_even);
                    sums[n][h] = _mm256_add_epi32(sums[n][h], products);
                    let products = _mm256_madd_epi16(odd, x_odd);
                    sums[n][h] = _mm256_add_epi32(sums[n][h], products);
                }
            }
        }
    }
    sums
}

/// Prefetches the lines that are [`AHEAD`] bytes past the `i`-th strip.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fetch<const W: u8>(w: &Int8Panel<'_>, i: usize) {
    let (values, low) = lines(W);
    for (plane, lines) in [(w.values, values), (w.low, low)] {
        for line in &plane.as_chunks::<BLOCK>().0[i * lines..(i + 1) * lines] {
            prefetch(line.as_ptr(), AHEAD);
        }
    }
}

/// Returns eight rows of a block of the `i`-th strip, one byte per weight.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn half<const W: u8>(w: &Int8Panel<'_>, i: usize, block: usize, h: usize) -> __m256i {
    let (values, low) = lines(W);
    let load =
        |plane: &[u8], line: usize| load_u8(&plane.as_chunks::<BLOCK>().0[line].as_chunks().0[h]);
    if W == WHOLE {
        return load(w.values, i * values + block);
    }
    // Shifts of 16-bit lanes bring in bits of the neighboring byte, which are masked.
    let upper = _mm256_set1_epi8(0xf0_u8 as i8);
    let mut high = load(w.values, i * values + block / 2);
    if block.is_multiple_of(2) {
        high = _mm256_slli_epi16::<4>(high);
    }
    let high = _mm256_and_si256(high, upper);
    let low = match W {
        UPPER => _mm256_set1_epi8(w.fill as i8),
        SIX => {
            let line = load(w.low, i * low);
            let line = match block {
                0 => _mm256_slli_epi16::<2>(line),
                1 => line,
                2 => _mm256_srli_epi16::<2>(line),
                _ => _mm256_srli_epi16::<4>(line),
            };
            _mm256_and_si256(line, _mm256_set1_epi8(0b1100))
        }
        _ => {
            let line = load(w.low, i * low + block / 2);
            let line = if block.is_multiple_of(2) { line } else { _mm256_srli_epi16::<4>(line) };
            _mm256_andnot_si256(upper, line)
        }
    };
    _mm256_or_si256(high, low)
}
