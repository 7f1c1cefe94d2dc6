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
use crate::ternary::{BLOCK_COLS, PANEL_ROWS};
use std::arch::wasm32::*;
use std::ops::Range;

/// Blocks that are looked up together.
const PAIR: usize = 2;
/// Groups of four columns in a pair of blocks.
const QUADS: usize = PAIR * BLOCK_COLS / 4;
/// Panels that share a table at most: their 16-bit sums stay in the second-level cache.
pub const PANELS: usize = 96;
/// Activation rows in a vector of sums.
const LANES: usize = 8;
/// Activation rows of a tile at most. Of 32 the tables would not fit the first-level cache.
pub const TILE: usize = 2 * LANES;
/// Vectors of a tile.
const V: usize = TILE / LANES;

/// A value's sums for a tile of activation rows.
type Entry = [v128; V];
/// The sums of all 81 values for four columns, by their digits, the last column's first.
type Table = [[[[Entry; 3]; 3]; 3]; 3];
/// A pair's tables. No entry is in two cache lines.
#[repr(align(64))]
struct Tables([Table; QUADS]);
/// For one weight row and pair, where in [`Tables`] the entry is that each quad names: in bytes, as
/// addresses are made of nothing less.
type Places = [u16; QUADS];
/// log₂ of an entry's bytes.
const ENTRY_SHIFT: u32 = size_of::<Entry>().ilog2();

/// Buffers of [`lookup`].
pub struct Buffers<'s> {
    /// [`Places`], `[pair][row]`.
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
    let mut tables = Tables([[[[[[i16x8_splat(0); V]; 3]; 3]; 3]; 3]; QUADS]);
    vectors::<i16>(buffers.narrow, panels.len() * PANEL_ROWS).fill([[0; LANES]; V]);
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
    out.grow(walk.blocks.div_ceil(PAIR) * panels.len() * PANEL_ROWS * size_of::<Places>());
    let out: &mut [[v128; PANEL_ROWS]] = bytemuck::cast_slice_mut(out);
    let tables: [u16; QUADS] = std::array::from_fn(|i| (i * size_of::<Table>()) as u16);
    let tables: v128 = bytemuck::must_cast(tables);
    let mut both = u8x16_splat(0);
    for (p, panel) in panels.clone().enumerate() {
        for (i, pair) in walk.codes(panel).chunks(PAIR).enumerate() {
            let out = &mut out[i * panels.len() + p];
            for (v, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let load = |b: usize| bytemuck::must_cast(pair[b].as_chunks::<16>().0[v]);
                let (first, second) =
                    (load(0), if pair.len() == PAIR { load(1) } else { u8x16_splat(0) });
                for codes in [first, second] {
                    both = v128_or(both, v128_and(codes, u16x8_shr(codes, 1)));
                }
                let (a, b) = (numbers(first), numbers(second));
                let (low, high) =
                    (i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<2, 6, 3, 7>(a, b));
                for (out, rows) in out.as_chunks_mut::<2>().0.iter_mut().zip([low, high]) {
                    *out = [u16x8_extend_low_u8x16(rows), u16x8_extend_high_u8x16(rows)]
                        .map(|numbers| i16x8_add(i16x8_shl(numbers, ENTRY_SHIFT), tables));
                }
            }
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

/// Products of panels with one tile. The 16-bit sums are zero before and after it.
#[inline(never)]
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
    let places: &[Places] = bytemuck::cast_slice(places);
    let narrow = vectors::<i16>(narrow, rows);
    let exact = vectors::<i32>(exact, rows);
    let totals = vectors::<f32>(totals, rows);
    for g in 0..walk.groups {
        let (mut bounds, mut wide) = ([i16x8_splat(0); V], false);
        let end = ((g + 1) * walk.group_blocks).min(walk.blocks);
        for pair in g * walk.group_blocks / PAIR..end.div_ceil(PAIR) {
            let magnitudes = tabulate(walk, &tile, pair, tables);
            if !raise(&mut bounds, &magnitudes) {
                widen(narrow, exact, wide);
                (bounds, wide) = (magnitudes, true);
            }
            add(tables, &places[pair * rows..][..rows], narrow);
        }
        for (p, panel) in panels.clone().enumerate() {
            let rows = p * PANEL_ROWS..(p + 1) * PANEL_ROWS;
            // Of a single group they are read at once, and stay in the first-level cache.
            let totals = &mut totals[if walk.groups == 1 { 0..PANEL_ROWS } else { rows.clone() }];
            let exact = wide.then(|| &exact[rows.clone()]);
            scale(&walk.scales(panel, g), &mut narrow[rows], exact, totals, g > 0);
            if g + 1 == walk.groups {
                for (i, row) in tile.clone().step_by(4).enumerate() {
                    let count = 4.min(tile.end - row);
                    walk.store(panel, row, &outputs(totals, i)[..count], y);
                }
            }
        }
    }
}

/// A panel's outputs for the `i`-th four activation rows, from totals with a weight row each.
#[inline]
fn outputs(totals: &[[[f32; LANES]; V]], i: usize) -> [Total; 4] {
    let row = |r: usize| load(&totals[r].as_flattened().as_chunks().0[i]);
    let rows = |v: usize| transpose4(&[row(4 * v), row(4 * v + 1), row(4 * v + 2), row(4 * v + 3)]);
    let [a, b, c, d] = [rows(0), rows(1), rows(2), rows(3)];
    [
        [a[0], b[0], c[0], d[0]],
        [a[1], b[1], c[1], d[1]],
        [a[2], b[2], c[2], d[2]],
        [a[3], b[3], c[3], d[3]],
    ]
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
    let bytes: [v128; TILE] = std::array::from_fn(|i| match tile.start + i {
        row if row < tile.end => bytemuck::must_cast(walk.x.row_chunks::<BLOCK_COLS>(row)[block]),
        _ => i8x16_splat(0),
    });
    // A round moves each byte's address, four bits of row and four of column, left by one bit:
    // four rounds exchange them.
    let bytes = round(&round(&round(&round(&bytes))));
    bytes.map(|bytes| [i16x8_extend_low_i8x16(bytes), i16x8_extend_high_i8x16(bytes)])
}

/// Interleaves the bytes of the first eight vectors with those of the last eight.
#[inline]
fn round(x: &[v128; TILE]) -> [v128; TILE] {
    let low = |i: usize| {
        i8x16_shuffle::<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(
            x[i],
            x[i + TILE / 2],
        )
    };
    let high = |i: usize| {
        i8x16_shuffle::<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(
            x[i],
            x[i + TILE / 2],
        )
    };
    // Written out: of a loop the compiler makes calls that clear and copy memory.
    [
        low(0),
        high(0),
        low(1),
        high(1),
        low(2),
        high(2),
        low(3),
        high(3),
        low(4),
        high(4),
        low(5),
        high(5),
        low(6),
        high(6),
        low(7),
        high(7),
    ]
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
    for nines in table {
        let mut second = third;
        for b in 0..3 {
            let mut first = second;
            for c in 0..3 {
                let one = plus(&first, &x[0]);
                nines[b][c][0] = first;
                nines[b][c][1] = one;
                nines[b][c][2] = plus(&one, &x[0]);
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

/// Adds to each weight row's sums the entries that it names. Out of line, for its registers' sake,
/// and two rows a turn: what a turn costs beside them is a sixth of a row.
#[inline(never)]
fn add(tables: &Tables, places: &[Places], narrow: &mut [[[i16; LANES]; V]]) {
    let pairs = places.as_chunks::<2>().0.iter().zip(narrow.as_chunks_mut::<2>().0);
    for ([first, second], [sums, next]) in pairs {
        add_row(tables, first, sums);
        add_row(tables, second, next);
    }
}

/// Adds to one weight row's sums.
#[inline(always)]
fn add_row(tables: &Tables, places: &Places, narrow: &mut [[i16; LANES]; V]) {
    let tables: *const Tables = tables;
    let mut sums: [v128; V] = narrow.map(|lanes| bytemuck::must_cast(lanes));
    // Two loads and shifts: eight small loads are slower.
    let words: [u64; 2] = bytemuck::must_cast(*places);
    for i in 0..QUADS {
        let place = (words[i / 4] >> (16 * (i % 4))) as u16;
        // SAFETY: `locate` makes no places but those of entries (of codes 0 to 2, as it has made
        // sure of, `numbers` makes none beyond the 81st), and entries are aligned vectors.
        let entry: &Entry = unsafe { &*tables.byte_add(usize::from(place)).cast() };
        for v in 0..V {
            sums[v] = i16x8_add(sums[v], entry[v]);
        }
    }
    *narrow = sums.map(|sum| bytemuck::must_cast(sum));
}

/// Moves the 16-bit sums to the 32-bit ones, or adds them to these.
#[inline]
fn widen(narrow: &mut [[[i16; LANES]; V]], exact: &mut [[[i32; LANES]; V]], adds: bool) {
    for (narrow, exact) in narrow.as_flattened_mut().iter_mut().zip(exact.as_flattened_mut()) {
        let mut sums = halves(std::mem::take(narrow));
        if adds {
            let before: [v128; 2] = bytemuck::must_cast(*exact);
            for h in 0..2 {
                sums[h] = i32x4_add(sums[h], before[h]);
            }
        }
        *exact = bytemuck::must_cast(sums);
    }
}

/// Sums in 32 bits.
#[inline]
fn halves(lanes: [i16; LANES]) -> [v128; 2] {
    let lanes = bytemuck::must_cast(lanes);
    [i32x4_extend_low_i16x8(lanes), i32x4_extend_high_i16x8(lanes)]
}

/// One panel's sums, those of 16 bits and those of 32 where there are any, scaled: its totals, or what is
/// added to them.
#[inline]
fn scale(
    scales: &[v128; VECTORS],
    narrow: &mut [[[i16; LANES]; V]],
    exact: Option<&[[[i32; LANES]; V]]>,
    totals: &mut [[[f32; LANES]; V]],
    adds: bool,
) {
    let scales: [f32; PANEL_ROWS] = bytemuck::must_cast(*scales);
    for (r, (narrow, totals)) in narrow.iter_mut().zip(totals).enumerate() {
        let scale = f32x4_splat(scales[r]);
        for v in 0..V {
            let mut sums = halves(std::mem::take(&mut narrow[v]));
            if let Some(exact) = exact {
                let before: [v128; 2] = bytemuck::must_cast(exact[r][v]);
                sums = [i32x4_add(sums[0], before[0]), i32x4_add(sums[1], before[1])];
            }
            // Nothing plus a product is not always the product: there are two zeroes.
            let mut total = [f32x4_splat(0.0); 2];
            if adds {
                total = bytemuck::must_cast(totals[v]);
            }
            for h in 0..2 {
                let value = f32x4_mul(f32x4_convert_i32x4(sums[h]), scale);
                total[h] = f32x4_add(total[h], value);
            }
            totals[v] = bytemuck::must_cast(total);
        }
    }
}
