//! Ternary × int8 for large batches, by lookup table.
//!
//! Four ternary weights (a quad) have 81 values. For every four columns, the 81 sums Σ w·q are computed
//! once for a tile of 16 activation rows, one row in each 16-bit lane. Each weight row then adds the
//! sums that its codes select: a load and an addition for 32 multiply-adds, without decoding a code.
//!
//! 16-bit sums are widened before they can overflow, whatever the weights: when Σ |q| of some activation
//! row since the last time would exceed 32,767. That takes at least 7 pairs of blocks, and with ordinary
//! activations many more.

use super::super::lanes::{load, transpose4};
use super::{Total, VECTORS};
use crate::kernel::simd::Simd;
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, Layout, PANEL_ROWS};
use std::arch::wasm32::*;
use std::ops::Range;

/// Number of blocks that are looked up together.
const PAIR: usize = 2;
/// Number of quads of columns in a pair of blocks.
const QUADS: usize = PAIR * BLOCK_COLS / 4;
/// Most panels that share a table. Their 16-bit sums stay in the second-level cache.
pub const PANELS: usize = 96;
/// Number of activation rows in a vector of sums.
const LANES: usize = 8;
/// Most activation rows of a tile. The tables of 32 rows would not fit the first-level cache.
pub const TILE: usize = 2 * LANES;
/// Number of vectors of a tile.
const V: usize = TILE / LANES;

/// Sums of one value for a tile of activation rows.
type Entry = [v128; V];
/// Sums of all 81 values for four columns, indexed by their digits, the last column's first.
type Table = [[[[Entry; 3]; 3]; 3]; 3];
/// Tables of a pair of blocks. No entry crosses a cache line.
#[repr(align(64))]
struct Tables([Table; QUADS]);
/// Byte offsets into [`Tables`] of the entries that one weight row selects for a pair of blocks.
type RowOffsets = [u16; QUADS];
/// log₂ of the size of an entry.
const ENTRY_SHIFT: u32 = size_of::<Entry>().ilog2();

/// Buffers of [`lookup`].
pub struct LookupBuffers<'s> {
    /// [`RowOffsets`], `[pair][row]`.
    pub offsets: &'s mut AlignedVec<u8>,
    /// 16-bit sums, `[row][activation row]`.
    pub narrow: &'s mut AlignedVec<i16>,
    pub exact: &'s mut AlignedVec<i32>,
    pub totals: &'s mut AlignedVec<f32>,
}

/// Multiplies `panels`, at most [`PANELS`], with the activation rows `rows`, in tiles from the first on.
/// Returns false, with nothing done, if there are no rows, the panels have the fourth code or a pair of
/// blocks would cross a group boundary.
pub fn lookup<S: Simd<Panel = Total>>(
    args: &TernaryArgs<'_, S>,
    panels: Range<usize>,
    rows: Range<usize>,
    y: &mut Columns<'_>,
    buffers: &mut LookupBuffers<'_>,
) -> bool {
    let straddling = args.groups > 1 && !args.group_blocks.is_multiple_of(PAIR);
    if rows.is_empty() || straddling || !encode_offsets(args, panels.clone(), buffers.offsets) {
        return false;
    }
    let mut tables = Tables([[[[[[i16x8_splat(0); V]; 3]; 3]; 3]; 3]; QUADS]);
    vectors::<i16>(buffers.narrow, panels.len() * PANEL_ROWS).fill([[0; LANES]; V]);
    for row in rows.clone().step_by(TILE) {
        let tile = row..rows.end.min(row + TILE);
        product(args, panels.clone(), tile, y, &mut tables, buffers);
    }
    true
}

/// Writes the table offsets of some panels. Zeros replace the second block of the last pair if it is
/// missing; its activations are zero, too. Returns false if there is a fourth code, which is not a
/// ternary weight.
fn encode_offsets<S: Simd>(
    args: &TernaryArgs<'_, S>,
    panels: Range<usize>,
    out: &mut AlignedVec<u8>,
) -> bool {
    out.grow(args.blocks.div_ceil(PAIR) * panels.len() * PANEL_ROWS * size_of::<RowOffsets>());
    let out: &mut [[v128; PANEL_ROWS]] = bytemuck::cast_slice_mut(out);
    let tables: [u16; QUADS] = std::array::from_fn(|i| (i * size_of::<Table>()) as u16);
    let tables: v128 = bytemuck::must_cast(tables);
    let mut both = u8x16_splat(0);
    let mut buffer = [[0; BLOCK_BYTES]; PAIR];
    for (p, panel) in panels.clone().enumerate() {
        for (i, first) in (0..args.blocks).step_by(PAIR).enumerate() {
            let blocks = first..args.blocks.min(first + PAIR);
            let pair = match args.w.layout() {
                Layout::OneBit => args.two_bits(panel, blocks, &mut buffer),
                _ => &args.codes(panel)[blocks],
            };
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

/// Returns Σ code · 3ⁱ of the quads of 4 rows of a block: one byte per quad, four per row. With codes 0,
/// 1 or 2 no number exceeds 80.
#[inline]
fn numbers(codes: v128) -> v128 {
    // The highest byte of the product is c₀ + 3·c₁ + 9·c₂ + 27·c₃; no byte carries.
    let powers = u32x4_splat(u32::from_le_bytes([27, 9, 3, 1]));
    let number = |codes| u32x4_shr(i32x4_mul(v128_and(codes, u8x16_splat(3)), powers), 24);
    let low = v128_or(number(codes), u32x4_shl(number(u16x8_shr(codes, 2)), 8));
    let upper = u16x8_shr(codes, 4);
    let high = v128_or(number(upper), u32x4_shl(number(u16x8_shr(upper, 2)), 8));
    v128_or(low, u32x4_shl(high, 16))
}

/// Multiplies panels with one tile. The 16-bit sums are zero before and after it.
#[inline(never)]
fn product<S: Simd<Panel = Total>>(
    args: &TernaryArgs<'_, S>,
    panels: Range<usize>,
    tile: Range<usize>,
    y: &mut Columns<'_>,
    tables: &mut Tables,
    buffers: &mut LookupBuffers<'_>,
) {
    let rows = panels.len() * PANEL_ROWS;
    let LookupBuffers { offsets, narrow, exact, totals } = buffers;
    let offsets: &[RowOffsets] = bytemuck::cast_slice(offsets);
    let narrow = vectors::<i16>(narrow, rows);
    let exact = vectors::<i32>(exact, rows);
    let totals = vectors::<f32>(totals, rows);
    for g in 0..args.groups {
        let (mut bounds, mut wide) = ([i16x8_splat(0); V], false);
        let Range { start, end } = args.group(g);
        for pair in start / PAIR..end.div_ceil(PAIR) {
            let magnitudes = tabulate(args, &tile, pair, tables);
            if !reserve(&mut bounds, &magnitudes) {
                widen(narrow, exact, wide);
                (bounds, wide) = (magnitudes, true);
            }
            add(tables, &offsets[pair * rows..][..rows], narrow);
        }
        let steps = args.group_steps(tile.start, g);
        for (p, panel) in panels.clone().enumerate() {
            let rows = p * PANEL_ROWS..(p + 1) * PANEL_ROWS;
            // With a single group they are read at once and stay in the first-level cache.
            let totals = &mut totals[if args.groups == 1 { 0..PANEL_ROWS } else { rows.clone() }];
            let exact = wide.then(|| &exact[rows.clone()]);
            let scales = args.scales(panel, g);
            scale((&scales, steps.as_ref()), &mut narrow[rows], exact, totals, g > 0);
            if g + 1 == args.groups {
                for (i, row) in tile.clone().step_by(4).enumerate() {
                    let count = 4.min(tile.end - row);
                    args.store(panel, row, &outputs(totals, i)[..count], y);
                }
            }
        }
    }
}

/// Returns a panel's outputs for the `i`-th four activation rows, from totals per weight row.
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

/// Returns the first `rows` rows of a buffer of sums, `[row][vector][lane]`.
fn vectors<T: bytemuck::Pod>(buffer: &mut AlignedVec<T>, rows: usize) -> &mut [[[T; LANES]; V]] {
    buffer.grow(rows * V * LANES);
    &mut buffer.as_chunks_mut::<LANES>().0.as_chunks_mut::<V>().0[..rows]
}

/// Computes the tables of one pair's quads for a tile of activation rows; returns Σ |q| of each row.
fn tabulate<S: Simd>(
    args: &TernaryArgs<'_, S>,
    tile: &Range<usize>,
    pair: usize,
    Tables(tables): &mut Tables,
) -> [v128; V] {
    let mut magnitudes = [i16x8_splat(0); V];
    for (b, tables) in tables.chunks_exact_mut(QUADS / PAIR).enumerate() {
        let x = columns(args, tile, pair * PAIR + b);
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

/// Adds a pair's magnitudes, at most 4,096, to the bounds of the 16-bit sums. Returns false if one would
/// exceed 32,767; the bounds are then invalid.
#[inline]
fn reserve(bounds: &mut [v128; V], magnitudes: &[v128; V]) -> bool {
    let mut fit = true;
    for v in 0..V {
        bounds[v] = i16x8_add(bounds[v], magnitudes[v]);
        // Above 32,767 the sign bit is set.
        fit &= i16x8_bitmask(bounds[v]) == 0;
    }
    fit
}

/// Transposes a block's 16 columns of the tile's activation rows, one row in each lane. Missing rows are
/// 0.
#[inline]
fn columns<S: Simd>(
    args: &TernaryArgs<'_, S>,
    tile: &Range<usize>,
    block: usize,
) -> [[v128; V]; BLOCK_COLS] {
    let bytes: [v128; TILE] = std::array::from_fn(|i| match tile.start + i {
        row if row < tile.end => bytemuck::must_cast(args.x.row_chunks::<BLOCK_COLS>(row)[block]),
        _ => i8x16_splat(0),
    });
    // A byte's address is four bits of row and four of column. Each round rotates it left by one bit, so
    // four rounds exchange rows and columns.
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
    // Unrolled by hand: the compiler turns a loop into calls that clear and copy memory.
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

/// Computes Σ (code − 1) · x of all 81 values, counting in base 3.
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

/// Adds two rows of vectors.
#[inline]
fn plus(a: &[v128; V], b: &[v128; V]) -> [v128; V] {
    let mut out = *a;
    for v in 0..V {
        out[v] = i16x8_add(a[v], b[v]);
    }
    out
}

/// Adds to each weight row's sums the table entries that its offsets select. Not inlined, so that the
/// compiler keeps the sums in registers. Two rows per iteration: the overhead of an iteration is a sixth
/// of a row.
#[inline(never)]
fn add(tables: &Tables, offsets: &[RowOffsets], narrow: &mut [[[i16; LANES]; V]]) {
    let pairs = offsets.as_chunks::<2>().0.iter().zip(narrow.as_chunks_mut::<2>().0);
    for ([first, second], [sums, next]) in pairs {
        add_row(tables, first, sums);
        add_row(tables, second, next);
    }
}

/// Adds to one weight row's sums.
#[inline(always)]
fn add_row(tables: &Tables, offsets: &RowOffsets, narrow: &mut [[i16; LANES]; V]) {
    let tables: *const Tables = tables;
    let mut sums: [v128; V] = narrow.map(|lanes| bytemuck::must_cast(lanes));
    // Two loads and shifts: eight small loads are slower.
    let words: [u64; 2] = bytemuck::must_cast(*offsets);
    for i in 0..QUADS {
        let offset = (words[i / 4] >> (16 * (i % 4))) as u16;
        // SAFETY: `encode_offsets` writes only offsets of entries: it has checked that codes are 0 to 2,
        // for which `numbers` returns at most 80. Entries are aligned vectors.
        let entry: &Entry = unsafe { &*tables.byte_add(usize::from(offset)).cast() };
        for v in 0..V {
            sums[v] = i16x8_add(sums[v], entry[v]);
        }
    }
    *narrow = sums.map(|sum| bytemuck::must_cast(sum));
}

/// Moves the 16-bit sums to the 32-bit sums, or adds them.
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

/// Widens sums to 32 bits.
#[inline]
fn halves(lanes: [i16; LANES]) -> [v128; 2] {
    let lanes = bytemuck::must_cast(lanes);
    [i32x4_extend_low_i16x8(lanes), i32x4_extend_high_i16x8(lanes)]
}

/// Scales a panel's 16-bit sums, plus its 32-bit sums if there are any, and writes them to its totals or
/// adds them. `steps` are the scales of the tile's activations.
#[inline]
fn scale(
    (scales, steps): (&[v128; VECTORS], Option<&[f32; TILE]>),
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
            // Adding to +0 is needed: a product of −0 must become +0.
            let mut total = [f32x4_splat(0.0); 2];
            if adds {
                total = bytemuck::must_cast(totals[v]);
            }
            for h in 0..2 {
                let mut value = f32x4_convert_i32x4(sums[h]);
                if let Some(steps) = steps {
                    value = f32x4_mul(value, load(&steps.as_chunks().0[2 * v + h]));
                }
                total[h] = f32x4_add(total[h], f32x4_mul(value, scale));
            }
            totals[v] = bytemuck::must_cast(total);
        }
    }
}
