//! Ternary × int8 for large batches, by table.
//!
//! Four ternary weights have 81 values. For every four columns the 81 sums Σ w·q are computed once
//! for a tile of 16 or 32 activation rows, one row in each 16-bit lane; each weight row then adds the
//! sums that its codes name: one addition with a memory operand for 64 multiply-adds, where
//! `vpmaddubsw` and `vpaddw` take two instructions for 32. (T-MAC, arXiv 2407.00088, looks up sums
//! of activations too, with weight rows in the lanes.)
//!
//! A core's loads bound this, so a weight row's sums are fetched once for eight tables, two blocks
//! of columns, and the row's eight places in them are a single load.
//!
//! Sums of 16 bits widen before they can overflow, whatever the weights: when Σ |q| of some
//! activation row since the last time would exceed 32,767. That is after 7 pairs of blocks at the
//! worst; ordinary activations are seldom near their row's largest, and last much longer.

use super::super::lanes::{load, prefetch, transpose8};
use super::{AHEAD, Total, Walk};
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS};
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks that are looked up together.
pub const PAIR: usize = 2;
/// Groups of four columns in a pair of blocks.
pub const QUADS: usize = PAIR * BLOCK_COLS / 4;
/// Values of four ternary weights.
const VALUES: usize = 81;
/// Activation rows in a vector.
const LANES: usize = 16;
/// Panels that share a table at most: their 16-bit sums stay in the second-level cache.
pub const PANELS: usize = 128;
/// Activation rows of a tile at most.
pub const TILE: usize = 2 * LANES;

/// Vectors of a tile at most.
const VECTORS: usize = TILE / LANES;

/// A value's sums for a tile of activation rows; a tile of 16 leaves the second vector alone.
pub type Entry = [__m256i; VECTORS];
/// The sums of all values for four columns.
type Table = [Entry; VALUES];
/// A pair's tables. An entry is a cache line.
#[repr(align(64))]
pub struct Tables(pub [Table; QUADS]);
/// For one weight row and pair, which entry of its table each quad names: none beyond the 81st.
pub type Places = [u8; QUADS];
/// Sums of a weight row with a tile.
pub type Sums<const V: usize> = [[i16; LANES]; V];
/// Adds to each weight row's sums the entries that it names.
pub type Add = unsafe fn(&Tables, &[Places], &mut [Sums<VECTORS>]);

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
/// first on. Returns `false`, with nothing done, where the panels hold the fourth code or pairs of
/// blocks are not whole.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn lookup(
    walk: &Walk<'_>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    buffers: &mut Buffers<'_>,
) -> bool {
    let done = pairs_are_whole(walk) && locate(walk, panels.clone(), buffers.places);
    if done {
        // SAFETY: `add` needs what this function needs, and `locate` has written the places.
        unsafe { tiles(walk, panels, rows, y, buffers, add::<VECTORS>) };
    }
    done
}

/// Whether no pair of blocks straddles two groups.
pub fn pairs_are_whole(walk: &Walk<'_>) -> bool {
    walk.groups == 1 || walk.group_blocks.is_multiple_of(PAIR)
}

/// The same after places have been found.
///
/// # Safety
/// The CPU has what `add` needs, which gets the places.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn tiles(
    walk: &Walk<'_>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    buffers: &mut Buffers<'_>,
    add: Add,
) {
    let mut tables = Tables([[[_mm256_setzero_si256(); VECTORS]; VALUES]; QUADS]);
    for row in rows.clone().step_by(TILE) {
        let tile = row..rows.end.min(row + TILE);
        let (panels, tables) = (panels.clone(), &mut tables);
        match tile.len() {
            0..=LANES => product(walk, panels, tile, y, tables, buffers, |t, p, n| {
                self::add::<1>(t, p, n);
            }),
            // SAFETY: the caller's promise.
            _ => product(walk, panels, tile, y, tables, buffers, |t, p, n| unsafe { add(t, p, n) }),
        }
    }
}

/// Writes the places of all values of some panels. A last block without a partner gets one of
/// zeros; its activations are zero, too. Returns `false` where a code 3 occurs, which is no ternary
/// weight.
#[target_feature(enable = "avx2,fma,f16c")]
fn locate(walk: &Walk<'_>, panels: Range<usize>, out: &mut AlignedVec<u8>) -> bool {
    out.grow(walk.blocks.div_ceil(PAIR) * panels.len() * PANEL_ROWS * QUADS);
    let out = out.as_chunks_mut::<{ PANEL_ROWS * QUADS }>().0;
    let mut both = _mm256_setzero_si256();
    for (p, panel) in panels.clone().enumerate() {
        for (i, pair) in walk.codes(panel).chunks(PAIR).enumerate() {
            prefetch(pair[0].as_ptr(), AHEAD);
            prefetch(pair[0].as_ptr(), AHEAD + BLOCK_BYTES);
            let second = pair.get(1).unwrap_or(&[0; BLOCK_BYTES]);
            let halves: [__m256i; 4] = bytemuck::must_cast([pair[0], *second]);
            for q in halves {
                both = _mm256_or_si256(both, _mm256_and_si256(q, _mm256_srli_epi16::<1>(q)));
            }
            out[i * panels.len() + p] = bytemuck::must_cast(places(&halves));
        }
    }
    _mm256_testz_si256(both, _mm256_set1_epi8(0b01_01_01_01)) != 0
}

/// The places of 16 rows in a pair of blocks, of two halves each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn places(pair: &[__m256i; 4]) -> [__m256i; 4] {
    let mut values = [_mm256_setzero_si256(); 4];
    for (values, half) in values.iter_mut().zip(pair) {
        *values = numbers(*half);
    }
    let mut out = [_mm256_setzero_si256(); 4];
    for h in 0..2 {
        // Rows 0, 1, 4, 5 and rows 2, 3, 6, 7.
        let a = _mm256_unpacklo_epi32(values[h], values[2 + h]);
        let b = _mm256_unpackhi_epi32(values[h], values[2 + h]);
        out[2 * h] = _mm256_permute2x128_si256::<0x20>(a, b);
        out[2 * h + 1] = _mm256_permute2x128_si256::<0x31>(a, b);
    }
    out
}

/// The values of the quads of 8 rows of a block as numbers, Σ code · 3ⁱ: a byte each, four to a
/// row. Codes are 0, 1 or 2: no number is beyond 80.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn numbers(mut codes: __m256i) -> __m256i {
    let mask = _mm256_set1_epi8(3);
    let powers = _mm256_set1_epi32(i32::from_le_bytes([1, 3, 9, 27]));
    let ones = _mm256_set1_epi16(1);
    let mut quads = [_mm256_setzero_si256(); BLOCK_COLS / 4];
    for quad in &mut quads {
        // One field of a row's four bytes is one quad of that row.
        let products = _mm256_maddubs_epi16(_mm256_and_si256(codes, mask), powers);
        *quad = _mm256_madd_epi16(products, ones);
        codes = _mm256_srli_epi16::<2>(codes);
    }
    let low = _mm256_or_si256(quads[0], _mm256_slli_epi32::<8>(quads[1]));
    let high = _mm256_or_si256(quads[2], _mm256_slli_epi32::<8>(quads[3]));
    _mm256_or_si256(low, _mm256_slli_epi32::<16>(high))
}

/// Products of panels with one tile.
#[target_feature(enable = "avx2,fma,f16c")]
fn product<const V: usize>(
    walk: &Walk<'_>,
    panels: Range<usize>,
    tile: Range<usize>,
    y: &mut Columns<'_>,
    tables: &mut Tables,
    buffers: &mut Buffers<'_>,
    add: impl Fn(&Tables, &[Places], &mut [Sums<V>]),
) {
    let rows = panels.len() * PANEL_ROWS;
    let Buffers { places, narrow, exact, totals } = buffers;
    let places: &[Places] = places.as_chunks().0;
    let narrow = vectors::<i16, V>(narrow, rows);
    let exact = vectors::<i32, V>(exact, rows);
    let totals = vectors::<f32, V>(totals, rows);
    narrow.fill([[0; LANES]; V]);
    for g in 0..walk.groups {
        let (mut bounds, mut wide) = ([_mm256_setzero_si256(); V], false);
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
                for (i, row) in tile.clone().step_by(8).enumerate() {
                    let count = 8.min(tile.end - row);
                    walk.store(panel, row, &outputs(totals, i)[..count], y);
                }
            }
        }
    }
}

/// A panel's outputs for the `i`-th eight activation rows, from totals with a weight row each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn outputs<const V: usize>(totals: &[[[f32; LANES]; V]], i: usize) -> [Total; 8] {
    let mut out = [[_mm256_setzero_ps(); 2]; 8];
    for h in 0..2 {
        let rows =
            std::array::from_fn(|r| load(&totals[8 * h + r].as_flattened().as_chunks::<8>().0[i]));
        for (out, column) in out.iter_mut().zip(transpose8(&rows)) {
            out[h] = column;
        }
    }
    out
}

/// The first `rows` rows of a buffer of sums, `[row][vector][lane]`.
fn vectors<T: bytemuck::Pod, const V: usize>(
    buffer: &mut AlignedVec<T>,
    rows: usize,
) -> &mut [[[T; LANES]; V]] {
    buffer.grow(rows * V * LANES);
    &mut buffer.as_chunks_mut::<LANES>().0.as_chunks_mut::<V>().0[..rows]
}

/// The tables of one pair's quads for a tile of activation rows; returns Σ |q| of each row. Out of
/// line, as [`add`].
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn tabulate<const V: usize>(
    walk: &Walk<'_>,
    tile: &Range<usize>,
    pair: usize,
    Tables(tables): &mut Tables,
) -> [__m256i; V] {
    let mut magnitudes = [_mm256_setzero_si256(); V];
    for (b, tables) in tables.chunks_exact_mut(QUADS / PAIR).enumerate() {
        let mut x = [[_mm256_setzero_si256(); V]; BLOCK_COLS];
        for v in 0..V {
            columns(walk, tile, v, pair * PAIR + b, &mut x);
            for x in &x {
                magnitudes[v] = _mm256_add_epi16(magnitudes[v], _mm256_abs_epi16(x[v]));
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
#[target_feature(enable = "avx2,fma,f16c")]
fn raise<const V: usize>(bounds: &mut [__m256i; V], magnitudes: &[__m256i; V]) -> bool {
    let mut fit = true;
    for v in 0..V {
        bounds[v] = _mm256_add_epi16(bounds[v], magnitudes[v]);
        // Past 32,767 the sign bit is set.
        let signs = _mm256_set1_epi16(i16::MIN);
        fit &= _mm256_testz_si256(bounds[v], signs) != 0;
    }
    fit
}

/// A block's 16 columns of the tile's `v`-th 16 activation rows, one row in each lane; 0 for rows
/// that are not there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn columns<const V: usize>(
    walk: &Walk<'_>,
    tile: &Range<usize>,
    v: usize,
    block: usize,
    out: &mut [[__m256i; V]; BLOCK_COLS],
) {
    let mut bytes = [_mm_setzero_si128(); LANES];
    for (bytes, row) in bytes.iter_mut().zip(tile.clone().skip(v * LANES)) {
        *bytes = bytemuck::must_cast(walk.x.row_chunks::<BLOCK_COLS>(row)[block]);
    }
    // A round moves each byte's address, four bits of row and four of column, left by one bit:
    // four rounds exchange them.
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

/// Σ (code − 1) · x of all 81 values, counted up in base 3.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sums<const V: usize>(x: &[[__m256i; V]; 4], table: &mut Table) {
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
                    entry[..V].copy_from_slice(&sum);
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
#[target_feature(enable = "avx2,fma,f16c")]
fn plus<const V: usize>(a: &[__m256i; V], b: &[__m256i; V]) -> [__m256i; V] {
    let mut out = *a;
    for v in 0..V {
        out[v] = _mm256_add_epi16(a[v], b[v]);
    }
    out
}

/// Adds to each weight row's sums the entries that it names. Out of line, for its registers' sake.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<const V: usize>(Tables(tables): &Tables, places: &[Places], narrow: &mut [Sums<V>]) {
    for (places, narrow) in places.iter().zip(narrow) {
        let mut sums: [__m256i; V] = narrow.map(bytemuck::must_cast);
        let word = u64::from_le_bytes(*places);
        for (i, table) in tables.iter().enumerate() {
            let place = (word >> (8 * i)) & 0xFF;
            // SAFETY: of codes 0 to 2, which `locate` has made sure of, `numbers` makes none beyond
            // the 81st entry.
            let entry: &Entry = unsafe { table.get_unchecked(place as usize) };
            for v in 0..V {
                sums[v] = _mm256_add_epi16(sums[v], entry[v]);
            }
        }
        *narrow = sums.map(bytemuck::must_cast);
    }
}

/// Moves the 16-bit sums to the 32-bit ones, or adds them to these.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen<const V: usize>(narrow: &mut [Sums<V>], exact: &mut [[[i32; LANES]; V]], adds: bool) {
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

/// Sums in 32 bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves(lanes: [i16; LANES]) -> [__m256i; 2] {
    let [low, high]: [__m128i; 2] = bytemuck::must_cast(lanes);
    [_mm256_cvtepi16_epi32(low), _mm256_cvtepi16_epi32(high)]
}

/// One panel's sums, those of 16 bits and those of 32 where there are any, scaled: its totals, or what is
/// added to them. Not fused: every set rounds the product, so that all agree bit for bit.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scale<const V: usize>(
    scales: &[__m256; 2],
    narrow: &mut [Sums<V>],
    exact: Option<&[[[i32; LANES]; V]]>,
    totals: &mut [[[f32; LANES]; V]],
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
            // Nothing plus a product is not always the product: there are two zeroes.
            let mut total = [_mm256_setzero_ps(); 2];
            if adds {
                total = bytemuck::must_cast(totals[v]);
            }
            for h in 0..2 {
                let value = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[h]), scale);
                total[h] = _mm256_add_ps(total[h], value);
            }
            totals[v] = bytemuck::must_cast(total);
        }
    }
}
