//! Lookup tables: the sums of activations for all values of four weights.

use super::super::TernaryArgs;
use super::indices::{MOST_COLS, QuadOrder};
use super::{LANES, QUADS, Sums, VALUES};
use crate::ternary::BLOCK_COLS;
use std::arch::x86_64::*;
use std::ops::Range;

/// Table of a quad: for each value, the sums of a tile of activation rows.
pub type Table<const V: usize> = [Sums<V>; VALUES];
/// Tables of a word.
pub type Tables<const V: usize> = [Table<V>; QUADS];
/// Activations of a period, one row in each lane.
pub type Activations<const V: usize> = [[__m256i; V]; MOST_COLS];

/// Writes a period's columns of a tile of activation rows, one row in each lane. Returns Σ |q| of each
/// row.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn transpose<const V: usize>(
    args: &TernaryArgs<'_>,
    tile: &Range<usize>,
    (order, period): (&QuadOrder, usize),
    out: &mut Activations<V>,
) -> [__m256i; V] {
    let mut magnitudes = [_mm256_setzero_si256(); V];
    let blocks = order.cols / BLOCK_COLS;
    let out = out.as_chunks_mut::<BLOCK_COLS>().0;
    for (b, out) in out.iter_mut().take(blocks).enumerate() {
        for v in 0..V {
            columns(args, tile, v, period * blocks + b, out);
            for x in &*out {
                magnitudes[v] = _mm256_add_epi16(magnitudes[v], _mm256_abs_epi16(x[v]));
            }
        }
    }
    magnitudes
}

/// Transposes a block's 16 columns of the tile's `v`-th 16 activation rows, one row in each lane. Missing
/// rows and columns are 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn columns<const V: usize>(
    args: &TernaryArgs<'_>,
    tile: &Range<usize>,
    v: usize,
    block: usize,
    out: &mut [[__m256i; V]; BLOCK_COLS],
) {
    let mut bytes = [_mm_setzero_si128(); LANES];
    for (bytes, row) in bytes.iter_mut().zip(tile.clone().skip(v * LANES)) {
        let x = args.x.row_chunks::<BLOCK_COLS>(row).get(block);
        *bytes = bytemuck::must_cast(x.copied().unwrap_or_default());
    }
    // A byte's address is four bits of row and four of column. Each round rotates it left by one bit, so
    // four rounds exchange rows and columns.
    let bytes = round(&round(&round(&round(&bytes))));
    for (out, bytes) in out.iter_mut().zip(bytes) {
        out[v] = _mm256_cvtepi8_epi16(bytes);
    }
}

/// Interleaves the bytes of the first eight vectors with those of the last eight.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn round(bytes: &[__m128i; LANES]) -> [__m128i; LANES] {
    let mut out = [_mm_setzero_si128(); LANES];
    for i in 0..LANES / 2 {
        out[2 * i] = _mm_unpacklo_epi8(bytes[i], bytes[i + LANES / 2]);
        out[2 * i + 1] = _mm_unpackhi_epi8(bytes[i], bytes[i + LANES / 2]);
    }
    out
}

/// Computes the tables of a word's quads. Not inlined, so that the compiler keeps values in registers.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn tabulate<const V: usize>(
    x: &Activations<V>,
    quads: &[[u8; 4]; QUADS],
    tables: &mut Tables<V>,
) {
    for (quad, table) in quads.iter().zip(tables) {
        sums(&quad.map(|column| x[usize::from(column)]), table);
    }
}

/// Computes Σ (code − 1) · x of all 81 values, counting in base 3.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sums<const V: usize>(x: &[[__m256i; V]; 4], table: &mut Table<V>) {
    let mut third = [_mm256_setzero_si256(); V];
    for x in x {
        for v in 0..V {
            third[v] = _mm256_sub_epi16(third[v], x[v]);
        }
    }
    for nines in table.as_chunks_mut::<27>().0 {
        let mut second = third;
        for threes in nines.as_chunks_mut::<9>().0 {
            let mut first = second;
            for ones in threes.as_chunks_mut::<3>().0 {
                let mut sum = first;
                for entry in ones {
                    for v in 0..V {
                        entry[v] = bytemuck::must_cast(sum[v]);
                    }
                    sum = plus(&sum, &x[0]);
                }
                first = plus(&first, &x[1]);
            }
            second = plus(&second, &x[2]);
        }
        third = plus(&third, &x[3]);
    }
}

/// Adds two rows of vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn plus<const V: usize>(a: &[__m256i; V], b: &[__m256i; V]) -> [__m256i; V] {
    let mut out = *a;
    for v in 0..V {
        out[v] = _mm256_add_epi16(a[v], b[v]);
    }
    out
}
