//! int8 × int8 or, with two planes, int8 × 15 bits.
//!
//! Both operands are widened to 16 bits, because `vpmaddubsw` would saturate. Sums are exact in 32 bits
//! for a chunk of columns and in f64 beyond that. Weights in planes are combined in registers. Even
//! columns of a block are multiplied with even ones and odd ones with odd ones, so that widening takes
//! shifts, which keep rows in order.
//!
//! Tokens are processed in tiles. The activations of a tile are rearranged so that a panel reads them
//! from front to back: `[tile][block of 4 columns][token of the tile]`.

use super::Avx2;
use super::lanes::{load_u8, prefetch};
use crate::kernel::Quantized;
use crate::kernel::int8::{Int8Args, Int8Dot};
use crate::kernel::packing::{BLOCK, BLOCKS, SIX, UPPER, WHOLE, lines};
use crate::kernel::simd::Simd;
use crate::matrix::{INT8_BLOCK_COLS, Int8Panel, Int8View};
use crate::mem::AlignedVec;
use crate::par::{Columns, Scratch};
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
pub type Quad = [[i16; 2]; 2];

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn int8(
    w: Int8View<'_>,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    product(Avx2::new(), w, panels, (x, y), scratch);
}

/// Products of the AVX2 set or of one with more instructions.
pub trait PairDot: Simd<IntPanel = [__m256i; 2]> {
    /// Returns the exact Σ w·q of 16 rows of each panel × `N` tokens over the strips from `first` on, as
    /// many as `x` has.
    fn dot<const P: usize, const N: usize, const W: u8>(
        self,
        values: &[Int8Panel<'_>; P],
        first: usize,
        x: &[Strip<N>],
    ) -> [[[[__m256i; 2]; 1]; N]; P];
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn product<S: PairDot>(
    s: S,
    w: Int8View<'_>,
    panels: Range<usize>,
    (x, y): (&Quantized<'_>, &mut Columns<'_>),
    scratch: &mut Scratch,
) {
    let wide = join(x, BLOCKS * w.strips(), &mut scratch.shorts);
    let dot = JoinedInputs { s, wide, strips: w.strips() };
    Int8Args { dot, w, x, first: panels.start }.product(panels, y);
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

/// Activations as written by [`join`].
#[derive(Clone, Copy)]
struct JoinedInputs<'a, S> {
    s: S,
    wide: &'a [Quad],
    strips: usize,
}

/// Columns of a strip of `N` tokens.
pub type Strip<const N: usize> = [[Quad; N]; BLOCKS];

impl<'a, S: PairDot> Int8Dot for JoinedInputs<'a, S> {
    type Set = S;
    type Tile<const N: usize> = &'a [Strip<N>];
    type Sums = [[__m256i; 2]; 1];
    const SHORT: usize = CHUNK;
    const CHUNK: usize = CHUNK;

    #[inline(always)]
    fn set(self) -> S {
        self.s
    }

    #[inline(always)]
    fn tile<const N: usize>(self, token: usize) -> &'a [Strip<N>] {
        let quads = self.wide[token * BLOCKS * self.strips..].as_chunks::<N>().0;
        &quads.as_chunks().0[..self.strips]
    }

    #[inline(always)]
    fn dot<const P: usize, const N: usize, const W: u8>(
        self,
        values: &[Int8Panel<'_>; P],
        x: &'a [Strip<N>],
        strips: Range<usize>,
        _: bool,
    ) -> [[Self::Sums; N]; P] {
        self.s.dot::<P, N, W>(values, strips.start, &x[strips])
    }

    #[inline(always)]
    fn walk<const W: u8>(args: &Int8Args<'_, Self>, panels: Range<usize>, y: &mut Columns<'_>) {
        for panel in panels {
            for tile in tiles(args.x.tokens()) {
                match tile.len() {
                    1 => args.tile::<1, 1, W>([panel], tile.start, y),
                    2 => args.tile::<1, 2, W>([panel], tile.start, y),
                    3 => args.tile::<1, 3, W>([panel], tile.start, y),
                    4 => args.tile::<1, 4, W>([panel], tile.start, y),
                    5 => args.tile::<1, 5, W>([panel], tile.start, y),
                    _ => args.tile::<1, TILE, W>([panel], tile.start, y),
                }
            }
        }
    }
}

/// Implements [`PairDot`] for a token with these features. `$add` adds the products of pairs of 16-bit
/// numbers to sums, of which few tokens have up to `$chains` each: more hide its latency.
macro_rules! pair_dot {
    ($token:ty, $features:literal, $add:path, chains: $chains:literal) => {
        impl $crate::kernel::avx2::int8::PairDot for $token {
            #[inline(always)]
            fn dot<const P: usize, const N: usize, const W: u8>(
                self,
                values: &[Int8Panel<'_>; P],
                first: usize,
                x: &[Strip<N>],
            ) -> [[[[__m256i; 2]; 1]; N]; P] {
                // SAFETY: the token proves that the CPU has the features.
                unsafe { dot::<P, N, W>(values, first, x) }
            }
        }

        /// See [`PairDot::dot`].
        #[inline]
        #[target_feature(enable = $features)]
        #[allow(clippy::needless_range_loop, clippy::modulo_one)] // Indices are shared; AVX2 has one chain.
        fn dot<const P: usize, const N: usize, const W: u8>(
            values: &[Int8Panel<'_>; P],
            first: usize,
            x: &[Strip<N>],
        ) -> [[[[__m256i; 2]; 1]; N]; P] {
            $crate::kernel::simd::align_stack();
            let mut chains = [[[[_mm256_setzero_si256(); 2]; N]; $chains]; P];
            for (i, x) in (first..).zip(x) {
                for (values, chains) in values.iter().zip(&mut chains) {
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
                                for (odd, (w, x)) in
                                    [(even, x_even), (odd, x_odd)].into_iter().enumerate()
                                {
                                    let chain = chain::<N>(block, odd) % $chains;
                                    chains[chain][n][h] = $add(chains[chain][n][h], w, x);
                                }
                            }
                        }
                    }
                }
            }
            let mut sums = [[[[_mm256_setzero_si256(); 2]; 1]; N]; P];
            for (sums, chains) in sums.iter_mut().zip(&chains) {
                for chain in chains {
                    for n in 0..N {
                        for h in 0..2 {
                            sums[n][0][h] = _mm256_add_epi32(sums[n][0][h], chain[n][h]);
                        }
                    }
                }
            }
            sums
        }
    };
}
pub(super) use pair_dot;
pair_dot!(Avx2, "avx2,fma,f16c", add_pairs, chains: 1);

/// Returns the chain of sums that takes a block's even or odd columns: one of four for a token, one of two
/// for two tokens, and the same for more, whose sums fill the registers.
#[inline(always)]
pub const fn chain<const N: usize>(block: usize, odd: usize) -> usize {
    match N {
        1 => 2 * (block % 2) + odd,
        2 => odd,
        _ => 0,
    }
}

/// Adds the products of pairs of 16-bit numbers to sums.
#[inline]
#[target_feature(enable = "avx2")]
fn add_pairs(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
}

/// Prefetches the lines that are [`AHEAD`] bytes past the `i`-th strip.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn fetch<const W: u8>(w: &Int8Panel<'_>, i: usize) {
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
pub fn half<const W: u8>(w: &Int8Panel<'_>, i: usize, block: usize, h: usize) -> __m256i {
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
