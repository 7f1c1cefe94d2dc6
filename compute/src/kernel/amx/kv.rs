//! Keys and values as bf16 tiles read them. An f32 stands there as two bf16, what it rounds to and what
//! is left then, in planes of their own: 16 bits of its significand, in as many bytes as before.
//!
//! Tiles multiply pairs of numbers: the n-th pair of 32 is what stands at n and at n + 16. So a tile of
//! keys is `[16 pairs of dimensions][16 positions]`, and one of values `[16 pairs of
//! positions][16 dimensions]`. A page has
//!
//! - keys: `[head_dim / 32][planes][PAGE / 16]` tiles, and
//! - values: `[head_dim / 16][planes]` tiles.
//!
//! Heads of other widths stand as in every other set.

use super::tiles::{ROW_BYTES, ROWS};
use crate::kernel::avx2::{self, detected};
use crate::kernel::kv::{self, Bf16, Element, F32};
use crate::kernel::{KvCodec, KvType, PAGE};
use std::arch::x86_64::*;

/// Two bf16 that are multiplied and added together, the first one in the lower half.
type Pair = u32;
/// A tile as it is written and read.
type Tile = [[Pair; ROWS]; ROWS];
/// Dimensions that a tile of keys has.
pub const DEPTH: usize = ROW_BYTES / size_of::<u16>();
/// Bytes of a tile.
pub const TILE_BYTES: usize = ROWS * ROW_BYTES;
/// Tiles of positions in a page.
pub const ACROSS: usize = PAGE / ROWS;
/// Positions in a tile of values: all of a page.
const _: () = assert!(PAGE == 2 * ROWS);

/// Chunks of [`DEPTH`] dimensions that heads in tiles have at most.
pub const MOST_CHUNKS: usize = 32;

/// Planes that a type has in heads of this width; none where it does not stand in tiles.
pub fn planes(dtype: KvType, head_dim: usize) -> Option<usize> {
    let tiled = in_tiles(head_dim) && matches!(dtype, KvType::F32 | KvType::Bf16);
    tiled.then(|| dtype.size() / size_of::<u16>())
}

/// Whether heads of this width stand in tiles.
fn in_tiles(head_dim: usize) -> bool {
    head_dim.is_multiple_of(DEPTH) && head_dim <= MOST_CHUNKS * DEPTH
}

macro_rules! codec {
    ($element:ident) => {
        KvCodec {
            plain: false,
            write_key: detected!(write_key::<$element>, x, codes, slot),
            write_value: detected!(write_value::<$element>, x, codes, slot),
            keys: detected!(keys::<$element>, codes, scales, out),
            values: detected!(values::<$element>, codes, scales, out),
        }
    };
}

/// See [`KvCodec`].
pub const KV: [KvCodec; KvType::COUNT] = {
    let mut kv = avx2::KV;
    kv[KvType::F32 as usize] = codec!(F32);
    kv[KvType::Bf16 as usize] = codec!(Bf16);
    kv
};

/// The planes of `E`.
const fn planes_of<E: Element>() -> usize {
    size_of::<E::Code>() / size_of::<u16>()
}

/// The upper half of 16 numbers: bf16, the nearest, of two the even one.
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

/// The upper half of a pair.
const UPPER: i32 = 0xFFFF_0000_u32.cast_signed();

/// 16 numbers as bf16 in the upper halves, plane by plane.
#[inline]
#[target_feature(enable = "avx512f")]
fn split(x: &[f32; ROWS]) -> [__m512i; 2] {
    let x: __m512 = bytemuck::must_cast(*x);
    let high = rounded(x);
    [high, rounded(_mm512_sub_ps(x, _mm512_castsi512_ps(high)))]
}

#[target_feature(enable = "avx512f")]
fn write_key<E: Element>(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    if !in_tiles(x.len()) {
        return kv::write_key::<E>(x, codes, slot);
    }
    let tiles: &mut [Tile] = bytemuck::cast_slice_mut(codes);
    let chunks = tiles.chunks_exact_mut(planes_of::<E>() * ACROSS);
    for (x, tiles) in x.as_chunks::<ROWS>().0.as_chunks::<2>().0.iter().zip(chunks) {
        let (first, second) = (split(&x[0]), split(&x[1]));
        for (plane, tiles) in tiles.chunks_exact_mut(ACROSS).enumerate() {
            let pairs = _mm512_or_si512(_mm512_srli_epi32::<16>(first[plane]), second[plane]);
            let pairs: [Pair; ROWS] = bytemuck::must_cast(pairs);
            for (row, pair) in tiles[slot / ROWS].iter_mut().zip(pairs) {
                row[slot % ROWS] = pair;
            }
        }
    }
    1.0
}

/// What is not finite has no codes: zero times it would not be zero, and tiles multiply what a row does
/// not see with zero.
#[target_feature(enable = "avx512f")]
fn write_value<E: Element>(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    if !in_tiles(x.len()) {
        return kv::write_value::<E>(x, codes, slot);
    }
    let finite = all_finite(x);
    let tiles: &mut [Tile] = bytemuck::cast_slice_mut(codes);
    for (x, tiles) in x.as_chunks().0.iter().zip(tiles.chunks_exact_mut(planes_of::<E>())) {
        let parts = if finite { split(x) } else { [_mm512_setzero_si512(); 2] };
        for (tile, part) in tiles.iter_mut().zip(parts) {
            let pairs = &mut tile[slot % ROWS];
            let before: __m512i = bytemuck::must_cast(*pairs);
            let upper = _mm512_set1_epi32(UPPER);
            *pairs = bytemuck::must_cast(if slot < ROWS {
                let other = _mm512_and_si512(before, upper);
                _mm512_or_si512(other, _mm512_srli_epi32::<16>(part))
            } else {
                _mm512_or_si512(_mm512_andnot_si512(upper, before), part)
            });
        }
    }
    if finite { 1.0 } else { f32::NAN }
}

/// Whether whole vectors of numbers are finite as bf16, too.
#[inline]
#[target_feature(enable = "avx512f")]
fn all_finite(x: &[f32]) -> bool {
    /// What is half way to the first number that bf16 has not.
    const BEYOND: i32 = 0x7F7F_8000;
    let magnitude = _mm512_set1_epi32(i32::MAX);
    let largest = x.as_chunks::<ROWS>().0.iter().fold(_mm512_setzero_si512(), |largest, x| {
        let bits = _mm512_castps_si512(bytemuck::must_cast(*x));
        _mm512_max_epi32(largest, _mm512_and_si512(bits, magnitude))
    });
    _mm512_cmpge_epi32_mask(largest, _mm512_set1_epi32(BEYOND)) == 0
}

/// The `half`-th number of a pair.
#[inline(always)]
fn number(pair: Pair, half: usize) -> f32 {
    Bf16::decode((pair >> (16 * half)) as u16)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn keys<E: Element>(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    if !in_tiles(out.len() / PAGE) {
        return kv::keys::<E>(codes, scales, out);
    }
    let tiles: &[Tile] = bytemuck::cast_slice(codes);
    let chunks = tiles.chunks_exact(planes_of::<E>() * ACROSS);
    for (out, tiles) in out.chunks_exact_mut(DEPTH * PAGE).zip(chunks) {
        for (d, out) in out.as_chunks_mut::<PAGE>().0.iter_mut().enumerate() {
            for (slot, out) in out.iter_mut().enumerate() {
                let planes = tiles.iter().skip(slot / ROWS).step_by(ACROSS);
                *out = planes.map(|tile| number(tile[d % ROWS][slot % ROWS], d / ROWS)).sum();
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn values<E: Element>(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    let head_dim = out.len() / PAGE;
    if !in_tiles(head_dim) {
        return kv::values::<E>(codes, scales, out);
    }
    let tiles: &[Tile] = bytemuck::cast_slice(codes);
    for (slot, out) in out.chunks_exact_mut(head_dim).enumerate() {
        let blocks = tiles.chunks_exact(planes_of::<E>());
        for (out, tiles) in out.as_chunks_mut::<ROWS>().0.iter_mut().zip(blocks) {
            for (d, out) in out.iter_mut().enumerate() {
                *out = tiles.iter().map(|tile| number(tile[slot % ROWS][d], slot / ROWS)).sum();
            }
        }
    }
}
