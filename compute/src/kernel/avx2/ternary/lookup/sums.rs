//! Converts the 16-bit sums of lookups to outputs.

use super::super::super::lanes::{load, transpose8};
use super::super::{TernaryArgs, Total};
use super::{LANES, Sums, TILE, VECTORS};
use crate::par::Columns;
use crate::ternary::PANEL_ROWS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Exact sums of a weight row with a tile.
pub type Exact<const V: usize> = [[i32; LANES]; V];
/// Scaled sums of a weight row with a tile.
pub type Totals<const V: usize> = [[f32; LANES]; V];

/// Tracks how close the 16-bit sums of a tile are to overflow.
#[derive(Clone, Copy, Default)]
pub struct OverflowTracker {
    /// Σ |q| of each activation row since its sums were widened.
    bounds: Sums<VECTORS>,
    /// True if there are 32-bit sums.
    wide: bool,
}

impl OverflowTracker {
    /// Prepares the sums for products with activations of these Σ |q| per row, at most 16,384. Widens
    /// 16-bit sums that might overflow.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn reserve<const V: usize>(
        &mut self,
        magnitudes: &[__m256i; V],
        narrow: &mut [Sums<V>],
        exact: &mut [Exact<V>],
    ) {
        let mut fit = true;
        for (bound, &more) in self.bounds.iter_mut().zip(magnitudes) {
            let sum = _mm256_add_epi16(bytemuck::must_cast(*bound), more);
            // Above 32,767 the sign bit is set.
            fit &= _mm256_testz_si256(sum, _mm256_set1_epi16(i16::MIN)) != 0;
            *bound = bytemuck::must_cast(sum);
        }
        if !fit {
            widen(narrow, exact, self.wide);
            self.wide = true;
            for (bound, &more) in self.bounds.iter_mut().zip(magnitudes) {
                *bound = bytemuck::must_cast(more);
            }
        }
    }

    /// Scales and clears the sums of a group of columns. After the last group it stores the outputs.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn finish<const V: usize>(
        &mut self,
        args: &TernaryArgs<'_>,
        group: usize,
        (panels, tile): (Range<usize>, Range<usize>),
        (narrow, exact, totals): (&mut [Sums<V>], &[Exact<V>], &mut [Totals<V>]),
        y: &mut Columns<'_>,
    ) {
        let steps = args.group_steps(tile.start, group);
        for (p, panel) in panels.enumerate() {
            let rows = p * PANEL_ROWS..(p + 1) * PANEL_ROWS;
            // With a single group they are read at once and stay in the first-level cache.
            let totals = &mut totals[if args.groups == 1 { 0..PANEL_ROWS } else { rows.clone() }];
            let exact = if self.wide { Some(&exact[rows.clone()]) } else { None };
            let scales = args.scales(panel, group);
            scale((&scales, steps.as_ref()), &mut narrow[rows], exact, totals, group > 0);
            if group + 1 == args.groups {
                for (i, row) in tile.clone().step_by(8).enumerate() {
                    let count = 8.min(tile.end - row);
                    args.store(panel, row, &outputs(totals, i)[..count], y);
                }
            }
        }
        *self = Self::default();
    }
}

/// Returns a panel's outputs for the `i`-th eight activation rows, from totals per weight row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn outputs<const V: usize>(totals: &[Totals<V>], i: usize) -> [Total; 8] {
    let mut out = [[_mm256_setzero_ps(); 2]; 8];
    for h in 0..2 {
        let mut rows = [_mm256_setzero_ps(); 8];
        for (row, totals) in rows.iter_mut().zip(&totals[8 * h..]) {
            *row = load(&totals.as_flattened().as_chunks::<8>().0[i]);
        }
        for (out, column) in out.iter_mut().zip(transpose8(&rows)) {
            out[h] = column;
        }
    }
    out
}

/// Moves the 16-bit sums to the 32-bit sums, or adds them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen<const V: usize>(narrow: &mut [Sums<V>], exact: &mut [Exact<V>], adds: bool) {
    for (narrow, exact) in narrow.as_flattened_mut().iter_mut().zip(exact.as_flattened_mut()) {
        let mut sums = halves(std::mem::take(narrow));
        if adds {
            let before: [__m256i; 2] = bytemuck::must_cast(*exact);
            for h in 0..2 {
                sums[h] = _mm256_add_epi32(sums[h], before[h]);
            }
        }
        *exact = bytemuck::must_cast(sums);
    }
}

/// Widens sums to 32 bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves(lanes: [i16; LANES]) -> [__m256i; 2] {
    let [low, high]: [__m128i; 2] = bytemuck::must_cast(lanes);
    [_mm256_cvtepi16_epi32(low), _mm256_cvtepi16_epi32(high)]
}

/// Scales a panel's 16-bit sums, plus its 32-bit sums if there are any, and writes them to its totals or
/// adds them. `steps` are the scales of the tile's activations. Not fused: every instruction set rounds
/// the product, so that all agree bit for bit.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scale<const V: usize>(
    (scales, steps): (&[__m256; 2], Option<&[f32; TILE]>),
    narrow: &mut [Sums<V>],
    exact: Option<&[Exact<V>]>,
    totals: &mut [Totals<V>],
    adds: bool,
) {
    let scales: [f32; PANEL_ROWS] = bytemuck::must_cast(*scales);
    for (r, (narrow, totals)) in narrow.iter_mut().zip(totals).enumerate() {
        let scale = _mm256_set1_ps(scales[r]);
        for v in 0..V {
            let mut sums = halves(std::mem::take(&mut narrow[v]));
            if let Some(exact) = exact {
                let before: [__m256i; 2] = bytemuck::must_cast(exact[r][v]);
                for h in 0..2 {
                    sums[h] = _mm256_add_epi32(sums[h], before[h]);
                }
            }
            // Adding to +0 is needed: a product of −0 must become +0.
            let mut total = [_mm256_setzero_ps(); 2];
            if adds {
                total = bytemuck::must_cast(totals[v]);
            }
            for h in 0..2 {
                let mut value = _mm256_cvtepi32_ps(sums[h]);
                if let Some(steps) = steps {
                    value = _mm256_mul_ps(value, load(&steps.as_chunks().0[2 * v + h]));
                }
                total[h] = _mm256_add_ps(total[h], _mm256_mul_ps(value, scale));
            }
            totals[v] = bytemuck::must_cast(total);
        }
    }
}
