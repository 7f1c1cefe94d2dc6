//! Ternary × int8.
//!
//! A block is two halves of 8 rows. A half's fields come out by shift and mask, `vpmaddubsw`
//! multiplies them with four broadcast activations (codes are the unsigned operand), and 16-bit
//! sums collect up to [`CHUNK`] blocks before they widen: 4 fields × 2 products × 3 · 128 × 10
//! blocks = 30,720 fits an int16.

use super::lanes::{load_u8, prefetch, repeat4};
use crate::kernel::{Quantised, group_sums};
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS, Scales, TernaryMatrix};
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks whose products fit 16-bit sums.
const CHUNK: usize = 10;
/// How far ahead of the panel's walk memory is asked for, in bytes.
const AHEAD: usize = 1536;

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn ternary(
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantised<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let (size, sums) = match w.scales() {
        Scales::Tensor(_) => (w.cols().next_multiple_of(BLOCK_COLS).max(1), x.sums),
        Scales::Groups(g) => (g.size(), group_sums(x, w.cols(), g.size(), &mut scratch.ints)),
    };
    let walk = Walk { w, x, sums, group_blocks: size / BLOCK_COLS, first: panels.start };
    for panel in panels {
        let mut row = 0;
        while row < x.rows() {
            row += match x.rows() - row {
                4.. => walk.tile::<4>(panel, row, y),
                3 => walk.tile::<3>(panel, row, y),
                2 => walk.tile::<2>(panel, row, y),
                _ => walk.tile::<1>(panel, row, y),
            };
        }
    }
}

/// What all tiles of one call share.
struct Walk<'a> {
    w: &'a TernaryMatrix,
    x: &'a Quantised<'a>,
    /// Σ of activations, `[rows][groups]`.
    sums: &'a [i32],
    group_blocks: usize,
    /// The panel that `y`'s view starts with.
    first: usize,
}

impl Walk<'_> {
    /// One panel × `N` activation rows from `row` on; returns `N`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn tile<const N: usize>(&self, panel: usize, row: usize, y: &mut Columns<'_>) -> usize {
        let blocks = self.w.cols().div_ceil(BLOCK_COLS);
        let codes = &self.w.codes()[panel * blocks * BLOCK_BYTES..][..blocks * BLOCK_BYTES];
        let codes = codes.as_chunks::<BLOCK_BYTES>().0;
        let xs: [&[[i8; BLOCK_COLS]]; N] =
            std::array::from_fn(|n| &self.x.row_chunks::<BLOCK_COLS>(row + n)[..blocks]);
        let groups = blocks.div_ceil(self.group_blocks);
        let mut totals = [[_mm256_setzero_ps(); 2]; N];
        for g in 0..groups {
            let range = g * self.group_blocks..((g + 1) * self.group_blocks).min(blocks);
            let exact = dot(&codes[range.clone()], xs.map(|x| &x[range.clone()]));
            let scales = self.scales(panel, g);
            for n in 0..N {
                let offset = _mm256_set1_epi32(self.sums[(row + n) * groups + g]);
                for h in 0..2 {
                    let value = _mm256_cvtepi32_ps(_mm256_sub_epi32(exact[n][h], offset));
                    // Not fused: every set rounds the product, so that all agree bit for bit.
                    totals[n][h] = _mm256_add_ps(totals[n][h], _mm256_mul_ps(value, scales[h]));
                }
            }
        }
        let from = (panel - self.first) * PANEL_ROWS;
        for (n, total) in totals.iter().enumerate() {
            store(self.x, row + n, total, from, y);
        }
        N
    }

    /// The scales of a panel's 16 rows in one group.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn scales(&self, panel: usize, group: usize) -> [__m256; 2] {
        match self.w.scales() {
            Scales::Tensor(s) => [_mm256_set1_ps(*s); 2],
            Scales::Groups(g) => {
                let at = panel * g.groups() + group;
                let halves = &g.bytes().as_chunks::<32>().0[at];
                let both: [__m128i; 2] = bytemuck::must_cast(load_u8(halves));
                both.map(|h| _mm256_cvtph_ps(h))
            }
        }
    }
}

/// Exact Σ c·q of 16 rows × `N` activation rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot<const N: usize>(
    codes: &[[u8; BLOCK_BYTES]],
    xs: [&[[i8; BLOCK_COLS]]; N],
) -> [[__m256i; 2]; N] {
    let (mask, ones) = (_mm256_set1_epi8(3), _mm256_set1_epi16(1));
    let mut wide = [[_mm256_setzero_si256(); 2]; N];
    for (c, codes) in codes.chunks(CHUNK).enumerate() {
        let xs = xs.map(|x| &x[c * CHUNK..][..codes.len()]);
        let mut narrow = [[_mm256_setzero_si256(); 2]; N];
        for (b, block) in codes.iter().enumerate() {
            prefetch(block.as_ptr(), AHEAD);
            let halves: &[[u8; 32]; 2] = bytemuck::must_cast_ref(block);
            let mut q = [load_u8(&halves[0]), load_u8(&halves[1])];
            for field in 0..4 {
                let w = q.map(|q| _mm256_and_si256(q, mask));
                for n in 0..N {
                    let x = repeat4(&xs[n][b], field);
                    for h in 0..2 {
                        let products = _mm256_maddubs_epi16(w[h], x);
                        narrow[n][h] = _mm256_add_epi16(narrow[n][h], products);
                    }
                }
                q = q.map(|q| _mm256_srli_epi16::<2>(q));
            }
        }
        for n in 0..N {
            for h in 0..2 {
                let pairs = _mm256_madd_epi16(narrow[n][h], ones);
                wide[n][h] = _mm256_add_epi32(wide[n][h], pairs);
            }
        }
    }
    wide
}

/// Writes 16 outputs of activation row `b` to the view's columns from `from` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn store(x: &Quantised<'_>, b: usize, total: &[__m256; 2], from: usize, y: &mut Columns<'_>) {
    let (row, adds) = x.target(b);
    let step = _mm256_set1_ps(x.steps[b]);
    let out = &mut y.row(row)[from..];
    let count = out.len().min(PANEL_ROWS);
    let mut lanes: [f32; PANEL_ROWS] = bytemuck::must_cast(total.map(|t| _mm256_mul_ps(t, step)));
    if adds {
        lanes.iter_mut().zip(&out[..count]).for_each(|(l, o)| *l += o);
    }
    match out.first_chunk_mut() {
        Some(whole) => *whole = lanes,
        None => out.copy_from_slice(&lanes[..count]),
    }
}
