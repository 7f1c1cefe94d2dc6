//! Keys and values as bf16 tiles read them. An f32 stands there as two bf16, what it rounds to and what
//! is left then, in planes of their own: 16 bits of its significand, in as many bytes as before.
//!
//! Tiles multiply pairs of numbers, so a tile of keys is `[16 pairs of dimensions][16 positions]`, and
//! one of values `[16 pairs of positions][16 dimensions]`. A page has
//!
//! - keys: `[head_dim / 32][planes][PAGE / 16]` tiles, and
//! - values: `[head_dim / 16][planes]` tiles.
//!
//! Heads of other widths stand as in every other set.

use super::tiles::{ROW_BYTES, ROWS};
use crate::kernel::avx2::{self, detected};
use crate::kernel::kv::{self, Bf16, Element, F32};
use crate::kernel::{KvCodec, KvType, PAGE};

/// Two numbers that are multiplied and added together.
type Pair = [u16; 2];
/// Dimensions that a tile of keys has.
pub const DEPTH: usize = ROW_BYTES / size_of::<u16>();
/// Bytes of a tile.
pub const TILE_BYTES: usize = ROWS * ROW_BYTES;
/// Tiles of positions in a page.
pub const ACROSS: usize = PAGE / ROWS;
/// Positions in a tile of values: all of a page.
const _: () = assert!(PAGE == 2 * ROWS);

/// Planes that a type has in heads of this width; none where it does not stand in tiles.
pub fn planes(dtype: KvType, head_dim: usize) -> Option<usize> {
    let tiled = head_dim.is_multiple_of(DEPTH) && matches!(dtype, KvType::F32 | KvType::Bf16);
    tiled.then(|| dtype.size() / size_of::<u16>())
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

/// Numbers as bf16, plane by plane.
#[inline(always)]
fn split<const N: usize>(x: &[f32; N]) -> [[u16; N]; 2] {
    let mut parts = [[0; N]; 2];
    for i in 0..N {
        parts[0][i] = Bf16::encode(x[i]);
        parts[1][i] = Bf16::encode(x[i] - Bf16::decode(parts[0][i]));
    }
    parts
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn write_key<E: Element>(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    if !x.len().is_multiple_of(DEPTH) {
        return kv::write_key::<E>(x, codes, slot);
    }
    let tiles: &mut [[[Pair; ROWS]; ROWS]] = bytemuck::cast_slice_mut(codes);
    for (c, x) in x.as_chunks::<DEPTH>().0.iter().enumerate() {
        for (plane, part) in split(x).iter().take(planes_of::<E>()).enumerate() {
            let tile = (c * planes_of::<E>() + plane) * ACROSS + slot / ROWS;
            let pairs: &[Pair; ROWS] = bytemuck::must_cast_ref(part);
            for (row, pair) in tiles[tile].iter_mut().zip(pairs) {
                row[slot % ROWS] = *pair;
            }
        }
    }
    1.0
}

/// What is not finite has no codes: zero times it would not be zero, and tiles multiply what a row does
/// not see with zero.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn write_value<E: Element>(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    if !x.len().is_multiple_of(DEPTH) {
        return kv::write_value::<E>(x, codes, slot);
    }
    let finite = x.iter().all(|x| Bf16::decode(Bf16::encode(*x)).is_finite());
    let tiles: &mut [[[Pair; ROWS]; ROWS]] = bytemuck::cast_slice_mut(codes);
    for (b, x) in x.as_chunks::<ROWS>().0.iter().enumerate() {
        let parts = if finite { split(x) } else { [[0; ROWS]; 2] };
        for (plane, part) in parts.iter().take(planes_of::<E>()).enumerate() {
            let row = &mut tiles[b * planes_of::<E>() + plane][slot / 2];
            row.iter_mut().zip(part).for_each(|(pair, code)| pair[slot % 2] = *code);
        }
    }
    if finite { 1.0 } else { f32::NAN }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn keys<E: Element>(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    if !(out.len() / PAGE).is_multiple_of(DEPTH) {
        return kv::keys::<E>(codes, scales, out);
    }
    let tiles: &[[[Pair; ROWS]; ROWS]] = bytemuck::cast_slice(codes);
    let chunks = tiles.chunks_exact(planes_of::<E>() * ACROSS);
    for (out, tiles) in out.chunks_exact_mut(DEPTH * PAGE).zip(chunks) {
        for (n, out) in out.as_chunks_mut::<PAGE>().0.iter_mut().enumerate() {
            for (slot, out) in out.iter_mut().enumerate() {
                let planes = tiles.iter().skip(slot / ROWS).step_by(ACROSS);
                *out = planes.map(|tile| Bf16::decode(tile[n / 2][slot % ROWS][n % 2])).sum();
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn values<E: Element>(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    let head_dim = out.len() / PAGE;
    if !head_dim.is_multiple_of(DEPTH) {
        return kv::values::<E>(codes, scales, out);
    }
    let tiles: &[[[Pair; ROWS]; ROWS]] = bytemuck::cast_slice(codes);
    for (slot, out) in out.chunks_exact_mut(head_dim).enumerate() {
        let blocks = tiles.chunks_exact(planes_of::<E>());
        for (out, tiles) in out.as_chunks_mut::<ROWS>().0.iter_mut().zip(blocks) {
            for (d, out) in out.iter_mut().enumerate() {
                *out = tiles.iter().map(|tile| Bf16::decode(tile[slot / 2][d][slot % 2])).sum();
            }
        }
    }
}
