//! Keys and values in bf16, in the layout of tiles.
//!
//! Tiles multiply pairs of numbers: the n-th pair of 32 numbers is those at n and at n + 16. So a tile
//! of keys is `[16 pairs of dimensions][16 positions]`, and a tile of values
//! `[16 pairs of positions][16 dimensions]`. A page has
//!
//! - keys: `[head_dim / 32][PAGE / 16]` tiles, and
//! - values: `[head_dim / 16]` tiles.
//!
//! Other types, and heads of other widths, have the layout of all other instruction sets.

use super::tiles::{ROW_BYTES, ROWS};
use crate::kernel::avx2;
use crate::kernel::kv::{self, Bf16, Element};
use crate::kernel::simd::detected;
use crate::kernel::{KvCodec, KvType, PAGE, PageLayout};
use std::arch::x86_64::*;

/// Two bf16 whose products are added, the first one in the lower half.
type Pair = u32;
/// A tile in memory.
type Tile = [[Pair; ROWS]; ROWS];
/// Number of dimensions of a tile of keys.
pub const DEPTH: usize = ROW_BYTES / size_of::<u16>();
/// Number of bytes of a tile.
pub const TILE_BYTES: usize = ROWS * ROW_BYTES;
/// Number of tiles that cover the positions of a page.
pub const ACROSS: usize = PAGE / ROWS;
/// A tile of values has all positions of a page.
const _: () = assert!(PAGE == 2 * ROWS);

/// Most chunks of [`DEPTH`] dimensions of a head in tiles.
pub const MOST_CHUNKS: usize = 32;

/// Returns true if a page's keys and values are in tiles.
pub fn is_tiled(layout: &PageLayout) -> bool {
    [layout.keys, layout.values] == [KvType::Bf16; 2] && in_tiles(layout.head_dim)
}

/// Returns true if heads of this width are in tiles.
fn in_tiles(head_dim: usize) -> bool {
    head_dim.is_multiple_of(DEPTH) && head_dim <= MOST_CHUNKS * DEPTH
}

/// See [`KvCodec`].
pub const KV: [KvCodec; KvType::COUNT] = {
    let mut kv = avx2::KV;
    kv[KvType::Bf16 as usize] = KvCodec {
        write_key: detected!(write_key, x, codes, slot),
        write_value: detected!(write_value, x, codes, slot),
        keys: detected!(keys, codes, scales, out),
        values: detected!(values, codes, scales, out),
        plain: false,
    };
    kv
};

/// Rounds 16 numbers to bf16, half to even; the results are in the upper halves.
#[inline]
#[target_feature(enable = "avx512f")]
fn rounded(x: __m512) -> __m512i {
    let bits = _mm512_castps_si512(x);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
    let sum = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x40_0000));
    _mm512_and_si512(sum, _mm512_set1_epi32(UPPER))
}

/// Mask of the upper half of a pair.
const UPPER: i32 = 0xFFFF_0000_u32.cast_signed();

#[target_feature(enable = "avx512f")]
fn write_key(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    if !in_tiles(x.len()) {
        return kv::write_key::<Bf16>(x, codes, slot);
    }
    let tiles: &mut [Tile] = bytemuck::cast_slice_mut(codes);
    let chunks = tiles.chunks_exact_mut(ACROSS);
    for (x, tiles) in x.as_chunks::<ROWS>().0.as_chunks::<2>().0.iter().zip(chunks) {
        let [first, second] = [0, 1].map(|half| rounded(bytemuck::must_cast(x[half])));
        let pairs = _mm512_or_si512(_mm512_srli_epi32::<16>(first), second);
        let pairs: [Pair; ROWS] = bytemuck::must_cast(pairs);
        for (row, pair) in tiles[slot / ROWS].iter_mut().zip(pairs) {
            row[slot % ROWS] = pair;
        }
    }
    1.0
}

/// Writes a value. A value that is not finite is stored as zeros, because tiles multiply positions that
/// a row does not see with zero, and zero times infinity is not zero.
#[target_feature(enable = "avx512f")]
fn write_value(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    if !in_tiles(x.len()) {
        return kv::write_value::<Bf16>(x, codes, slot);
    }
    let (finite, upper) = (all_finite(x), _mm512_set1_epi32(UPPER));
    let tiles: &mut [Tile] = bytemuck::cast_slice_mut(codes);
    for (x, tile) in x.as_chunks::<ROWS>().0.iter().zip(tiles) {
        let code = if finite { rounded(bytemuck::must_cast(*x)) } else { _mm512_setzero_si512() };
        let pairs = &mut tile[slot % ROWS];
        let before: __m512i = bytemuck::must_cast(*pairs);
        *pairs = bytemuck::must_cast(if slot < ROWS {
            let other = _mm512_and_si512(before, upper);
            _mm512_or_si512(other, _mm512_srli_epi32::<16>(code))
        } else {
            _mm512_or_si512(_mm512_andnot_si512(upper, before), code)
        });
    }
    if finite { 1.0 } else { f32::NAN }
}

/// Returns true if all numbers are finite, also as bf16.
#[inline]
#[target_feature(enable = "avx512f")]
fn all_finite(x: &[f32]) -> bool {
    /// Half way between the largest bf16 and the next number.
    const BEYOND: i32 = 0x7F7F_8000;
    let magnitude = _mm512_set1_epi32(i32::MAX);
    let largest = x.as_chunks::<ROWS>().0.iter().fold(_mm512_setzero_si512(), |largest, x| {
        let bits = _mm512_castps_si512(bytemuck::must_cast(*x));
        _mm512_max_epi32(largest, _mm512_and_si512(bits, magnitude))
    });
    _mm512_cmpge_epi32_mask(largest, _mm512_set1_epi32(BEYOND)) == 0
}

/// Returns the `half`-th number of a pair.
#[inline(always)]
fn number(pair: Pair, half: usize) -> f32 {
    Bf16::decode((pair >> (16 * half)) as u16)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn keys(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    if !in_tiles(out.len() / PAGE) {
        return kv::keys::<Bf16>(codes, scales, out);
    }
    let tiles: &[Tile] = bytemuck::cast_slice(codes);
    for (out, tiles) in out.chunks_exact_mut(DEPTH * PAGE).zip(tiles.chunks_exact(ACROSS)) {
        for (d, out) in out.as_chunks_mut::<PAGE>().0.iter_mut().enumerate() {
            for (slot, out) in out.iter_mut().enumerate() {
                *out = number(tiles[slot / ROWS][d % ROWS][slot % ROWS], d / ROWS);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn values(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    let head_dim = out.len() / PAGE;
    if !in_tiles(head_dim) {
        return kv::values::<Bf16>(codes, scales, out);
    }
    let tiles: &[Tile] = bytemuck::cast_slice(codes);
    for (slot, out) in out.chunks_exact_mut(head_dim).enumerate() {
        for (out, tile) in out.as_chunks_mut::<ROWS>().0.iter_mut().zip(tiles) {
            for (d, out) in out.iter_mut().enumerate() {
                *out = number(tile[slot % ROWS][d], slot / ROWS);
            }
        }
    }
}
