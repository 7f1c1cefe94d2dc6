//! Ternary × int8 for large batches, by table.
//!
//! Four ternary weights have 81 values. For every four columns the 81 sums Σ w·q are computed once
//! for a tile of 16 activation rows, one row in each 16-bit lane; each weight row then adds the sums
//! that its codes name: a load and an addition for 32 multiply-adds, without a decoded code.
//!
//! Sums of 16 bits widen before they can overflow, whatever the weights: when Σ |q| of some
//! activation row since the last time would exceed 32,767. That is after 7 pairs of blocks at the
//! worst; ordinary activations are seldom near their row's largest, and last much longer.

use super::super::lanes::{load, transpose4};
use super::{Total, VECTORS, Walk};
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS};
use std::arch::wasm32::*;
use std::ops::Range;

/// Blocks that are looked up together: a row's places in their tables are a single load.
const PAIR: usize = 2;
/// Groups of four columns in a pair of blocks.
const QUADS: usize = PAIR * BLOCK_COLS / 4;
/// Values of four ternary weights.
const VALUES: usize = 81;
/// Panels that share a table at most: their 16-bit sums stay in the second-level cache.
pub const PANELS: usize = 128;
/// Activation rows in a vector of sums.
const LANES: usize = 8;
/// Activation rows of a tile at most. Of 32 the tables would not fit the first-level cache.
pub const TILE: usize = 2 * LANES;
/// Vectors of a tile.
const V: usize = TILE / LANES;

/// A value's sums for a tile of activation rows.
type Entry = [v128; V];
/// The sums of all values for four columns.
type Table = [Entry; VALUES];
/// A pair's tables. No entry is in two cache lines.
#[repr(align(64))]
struct Tables([Table; QUADS]);
/// For one weight row and pair, which entry of its table each quad names.
type Places = [u8; QUADS];

/// Buffers of [`lookup`].
pub struct Buffers<'s> {
    /// `[pair][row][quad]`.
    pub places: &'s mut AlignedVec<u8>,
    /// Sums, `[row][activation row]`.
    pub narrow: &'s mut AlignedVec<i16>,
    pub exact: &'s mut AlignedVec<i32>,
    pub totals: &'s mut AlignedVec<f32>,
}

/// Products of `panels`, [`PANELS`] at most, with the activation rows `rows`, in tiles from the
/// first on. Returns `false`, with nothing done, where there are no rows, the panels hold the
/// fourth code or pairs of blocks would straddle groups.
pub fn lookup(
    walk: &Walk<'_>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    buffers: &mut Buffers<'_>,
) -> bool {
    let straddling = walk.groups > 1 && !walk.group_blocks.is_multiple_of(PAIR);
    if rows.is_empty() || straddling || !locate(walk, panels.clone(), buffers.places) {
        return false;
    }
    let mut tables = Tables([[[i16x8_splat(0); V]; VALUES]; QUADS]);
    for row in rows.clone().step_by(TILE) {
        let tile = row..rows.end.min(row + TILE);
        product(walk, panels.clone(), tile, y, &mut tables, buffers);
    }
    true
}

/// Writes the places of all values of some panels. A last block without a partner gets one of
/// zeros; its activations are zero, too. Returns `false` where a code 3 occurs, which is no ternary
/// weight.
fn locate(walk: &Walk<'_>, panels: Range<usize>, out: &mut AlignedVec<u8>) -> bool {
    out.grow(walk.blocks.div_ceil(PAIR) * panels.len() * PANEL_ROWS * QUADS);
    let out = out.as_chunks_mut::<{ PANEL_ROWS * QUADS }>().0;
    let mut both = u8x16_splat(0);
    for (p, panel) in panels.clone().enumerate() {
        for (i, pair) in walk.codes(panel).chunks(PAIR).enumerate() {
            let second = pair.get(1).unwrap_or(&[0; BLOCK_BYTES]);
            let blocks: [[v128; VECTORS]; PAIR] = bytemuck::must_cast([pair[0], *second]);
            for codes in blocks.as_flattened() {
                both = v128_or(both, v128_and(*codes, u16x8_shr(*codes, 1)));
            }
            let mut places = [[i32x4_splat(0); PAIR]; VECTORS];
            for v in 0..VECTORS {
                let (a, b) = (numbers(blocks[0][v]), numbers(blocks[1][v]));
                places[v] = [i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<2, 6, 3, 7>(a, b)];
            }
            out[i * panels.len() + p] = bytemuck::must_cast(places);
        }
    }
    !v128_any_true(v128_and(both, u8x16_splat(0b01_01_01_01)))
}

/// The values of the quads of 4 rows of a block as numbers, Σ code · 3ⁱ: a byte each, four to a
/// row. Codes are 0, 1 or 2: no number is beyond 80.
#[inline]
fn numbers(codes: v128) -> v128 {
    // The uppermost byte of the product is c₀ + 3·c₁ + 9·c₂ + 27·c₃; no byte carries.
    let powers = u32x4_splat(u32::from_le_bytes([27, 9, 3, 1]));
    let number = |codes| u32x4_shr(i32x4_mul(v128_and(codes, u8x16_splat(3)), powers), 24);
    let low = v128_or(number(codes), u32x4_shl(number(u16x8_shr(codes, 2)), 8));
    let upper = u16x8_shr(codes, 4);
    let high = v128_or(number(upper), u32x4_shl(number(u16x8_shr(upper, 2)), 8));
    v128_or(low, u32x4_shl(high, 16))
}

/// Products of panels with one tile.
fn product(
    walk: &Walk<'_>,
    panels: Range<usize>,
    tile: Range<usize>,
    y: &mut Columns<'_>,
    tables: &mut Tables,
    buffers: &mut Buffers<'_>,
) {
    let rows = panels.len() * PANEL_ROWS;
    let Buffers { places, narrow, exact, totals } = buffers;
    let places: &[Places] = places.as_chunks().0;
    let narrow = vectors::<i16>(narrow, rows);
    let exact = vectors::<i32>(exact, rows);
    let totals = vectors::<f32>(totals, rows);
    narrow.fill([[0; LANES]; V]);
    totals.fill([[0.0; LANES]; V]);
    for g in 0..walk.groups {
        exact.fill([[0; LANES]; V]);
        let mut bounds = [i16x8_splat(0); V];
        let end = ((g + 1) * walk.group_blocks).min(walk.blocks);
        for pair in g * walk.group_blocks / PAIR..end.div_ceil(PAIR) {
            let magnitudes = tabulate(walk, &tile, pair, tables);
            if !raise(&mut bounds, &magnitudes) {
                widen(narrow, exact);
                bounds = magnitudes;
            }
            add(tables, &places[pair * rows..][..rows], narrow);
        }
        widen(narrow, exact);
        for (p, panel) in panels.clone().enumerate() {
            let rows = p * PANEL_ROWS..(p + 1) * PANEL_ROWS;
            scale(&walk.scales(panel, g), &exact[rows.clone()], &mut totals[rows]);
        }
    }
    for (p, panel) in panels.clone().enumerate() {
        let totals = &totals[p * PANEL_ROWS..(p + 1) * PANEL_ROWS];
        for (i, row) in tile.clone().step_by(4).enumerate() {
            let count = 4.min(tile.end - row);
            walk.store(panel, row, &outputs(totals, i)[..count], y);
        }
    }
}

/// A panel's outputs for the `i`-th four activation rows, from totals with a weight row each.
#[inline]
fn outputs(totals: &[[[f32; LANES]; V]], i: usize) -> [Total; 4] {
    let mut out = [[f32x4_splat(0.0); VECTORS]; 4];
    for v in 0..VECTORS {
        let rows =
            std::array::from_fn(|r| load(&totals[4 * v + r].as_flattened().as_chunks().0[i]));
        for (out, column) in out.iter_mut().zip(transpose4(&rows)) {
            out[v] = column;
        }
    }
    out
}

/// The first `rows` rows of a buffer of sums, `[row][vector][lane]`.
fn vectors<T: bytemuck::Pod>(buffer: &mut AlignedVec<T>, rows: usize) -> &mut [[[T; LANES]; V]] {
    buffer.grow(rows * V * LANES);
    &mut buffer.as_chunks_mut::<LANES>().0.as_chunks_mut::<V>().0[..rows]
}

/// The tables of one pair's quads for a tile of activation rows; returns Σ |q| of each row.
fn tabulate(
    walk: &Walk<'_>,
    tile: &Range<usize>,
    pair: usize,
    Tables(tables): &mut Tables,
) -> [v128; V] {
    let mut magnitudes = [i16x8_splat(0); V];
    for (b, tables) in tables.chunks_exact_mut(QUADS / PAIR).enumerate() {
        let x = columns(walk, tile, pair * PAIR + b);
        for x in &x {
            for v in 0..V {
                magnitudes[v] = i16x8_add(magnitudes[v], i16x8_abs(x[v]));
            }
        }
        for (quad, table) in x.as_chunks::<4>().0.iter().zip(tables) {
            sums(quad, table);
        }
    }
    magnitudes
}

/// Adds a pair's magnitudes, 4,096 at most, to the bounds of what the 16-bit sums hold; `false`,
/// with the bounds spoilt, where one would exceed 32,767.
#[inline]
fn raise(bounds: &mut [v128; V], magnitudes: &[v128; V]) -> bool {
    let mut fit = true;
    for v in 0..V {
        bounds[v] = i16x8_add(bounds[v], magnitudes[v]);
        // Past 32,767 the sign bit is set.
        fit &= i16x8_bitmask(bounds[v]) == 0;
    }
    fit
}

/// A block's 16 columns of the tile's activation rows, one row in each lane; 0 for rows that are
/// not there.
#[inline]
fn columns(walk: &Walk<'_>, tile: &Range<usize>, block: usize) -> [[v128; V]; BLOCK_COLS] {
    let mut bytes = [i8x16_splat(0); TILE];
    for (bytes, row) in bytes.iter_mut().zip(tile.clone()) {
        *bytes = bytemuck::must_cast(walk.x.row_chunks::<BLOCK_COLS>(row)[block]);
    }
    // A round moves each byte's address, four bits of row and four of column, left by one bit:
    // four rounds exchange them.
    let bytes = round(&round(&round(&round(&bytes))));
    bytes.map(|bytes| [i16x8_extend_low_i8x16(bytes), i16x8_extend_high_i8x16(bytes)])
}

/// Interleaves the bytes of the first eight vectors with those of the last eight.
#[inline]
fn round(bytes: &[v128; TILE]) -> [v128; TILE] {
    let mut out = [i8x16_splat(0); TILE];
    for i in 0..TILE / 2 {
        let (a, b) = (bytes[i], bytes[i + TILE / 2]);
        out[2 * i] = i8x16_shuffle::<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(a, b);
        out[2 * i + 1] =
            i8x16_shuffle::<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(a, b);
    }
    out
}

/// Σ (code − 1) · x of all 81 values, counted up in base 3.
#[inline]
fn sums(x: &[[v128; V]; 4], table: &mut Table) {
    let mut third = [i16x8_splat(0); V];
    for x in x {
        for v in 0..V {
            third[v] = i16x8_sub(third[v], x[v]);
        }
    }
    for nines in table.as_chunks_mut::<27>().0 {
        let mut second = third;
        for threes in nines.as_chunks_mut::<9>().0 {
            let mut first = second;
            for ones in threes.as_chunks_mut::<3>().0 {
                let mut sum = first;
                for entry in ones {
                    *entry = sum;
                    sum = plus(&sum, &x[0]);
                }
                first = plus(&first, &x[1]);
            }
            second = plus(&second, &x[2]);
        }
        third = plus(&third, &x[3]);
    }
}

/// The sum of two rows of vectors.
#[inline]
fn plus(a: &[v128; V], b: &[v128; V]) -> [v128; V] {
    let mut out = *a;
    for v in 0..V {
        out[v] = i16x8_add(a[v], b[v]);
    }
    out
}

/// Adds to each weight row's sums the entries that it names. Out of line, for its registers' sake.
#[inline(never)]
fn add(Tables(tables): &Tables, places: &[Places], narrow: &mut [[[i16; LANES]; V]]) {
    for (places, narrow) in places.iter().zip(narrow) {
        let mut sums: [v128; V] = narrow.map(|lanes| bytemuck::must_cast(lanes));
        let word = u64::from_le_bytes(*places);
        for (i, table) in tables.iter().enumerate() {
            let place = (word >> (8 * i)) & 0xFF;
            // SAFETY: of codes 0 to 2, which `locate` has made sure of, `numbers` makes none beyond
            // the 81st entry.
            let entry: &Entry = unsafe { table.get_unchecked(place as usize) };
            for v in 0..V {
                sums[v] = i16x8_add(sums[v], entry[v]);
            }
        }
        *narrow = sums.map(|sum| bytemuck::must_cast(sum));
    }
}

/// Moves the 16-bit sums to the 32-bit ones.
#[inline]
fn widen(narrow: &mut [[[i16; LANES]; V]], exact: &mut [[[i32; LANES]; V]]) {
    for (narrow, exact) in narrow.as_flattened_mut().iter_mut().zip(exact.as_flattened_mut()) {
        let lanes: v128 = bytemuck::must_cast(std::mem::take(narrow));
        let halves = [i32x4_extend_low_i16x8(lanes), i32x4_extend_high_i16x8(lanes)];
        let mut sums: [v128; 2] = bytemuck::must_cast(*exact);
        for h in 0..2 {
            sums[h] = i32x4_add(sums[h], halves[h]);
        }
        *exact = bytemuck::must_cast(sums);
    }
}

/// Adds one panel's exact sums, scaled, to its totals.
#[inline]
fn scale(scales: &[v128; VECTORS], exact: &[[[i32; LANES]; V]], totals: &mut [[[f32; LANES]; V]]) {
    let scales: [f32; PANEL_ROWS] = bytemuck::must_cast(*scales);
    for ((exact, totals), scale) in exact.iter().zip(totals).zip(scales) {
        let scale = f32x4_splat(scale);
        for (exact, total) in exact.iter().zip(totals) {
            let exact: [v128; 2] = bytemuck::must_cast(*exact);
            let mut sums: [v128; 2] = bytemuck::must_cast(*total);
            for h in 0..2 {
                let value = f32x4_mul(f32x4_convert_i32x4(exact[h]), scale);
                sums[h] = f32x4_add(sums[h], value);
            }
            *total = bytemuck::must_cast(sums);
        }
    }
}
