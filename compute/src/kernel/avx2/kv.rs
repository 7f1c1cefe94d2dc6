//! Codecs and summaries of pages: the common source, compiled with AVX2.

use super::detected;
use crate::kernel::kv::{self, Element, codecs};
use crate::kernel::{KvCodec, KvType};

#[target_feature(enable = "avx2,fma,f16c")]
fn write_key<E: Element>(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    kv::write_key::<E>(x, codes, slot)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn write_value<E: Element>(x: &[f32], codes: &mut [u8], slot: usize) -> f32 {
    kv::write_value::<E>(x, codes, slot)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn keys<E: Element>(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    kv::keys::<E>(codes, scales, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn values<E: Element>(codes: &[u8], scales: &[f32], out: &mut [f32]) {
    kv::values::<E>(codes, scales, out);
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn summarize(keys: &[f32], summary: &mut [f32]) {
    kv::summarize(keys, summary);
}

/// See the scalar definition.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn estimate(queries: &[f32], scale: f32, summary: &[f32]) -> f32 {
    kv::estimate(queries, scale, summary)
}

macro_rules! codec {
    ($element:ident) => {
        KvCodec {
            write_key: detected!(write_key::<$element>, x, codes, slot),
            write_value: detected!(write_value::<$element>, x, codes, slot),
            keys: detected!(keys::<$element>, codes, scales, out),
            values: detected!(values::<$element>, codes, scales, out),
            plain: true,
        }
    };
}

/// See [`KvCodec`].
pub const KV: [KvCodec; KvType::COUNT] = codecs!(codec);
