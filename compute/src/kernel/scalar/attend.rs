//! Softmax attention over pages, and the codecs of pages.

use super::exp;
use crate::kernel::kv::{codecs, keys, values, write_key, write_value};
use crate::kernel::{Attention, KvCodec, KvType, PAGE};
use crate::par::{Columns, Scratch};

macro_rules! codec {
    ($element:ident) => {
        KvCodec {
            write_key: write_key::<$element>,
            write_value: write_value::<$element>,
            keys: keys::<$element>,
            values: values::<$element>,
            plain: true,
        }
    };
}

/// See [`KvCodec`].
pub const KV: [KvCodec; KvType::COUNT] = codecs!(codec);

/// Computes out = softmax(q · Kᵀ · scale) · V for every query of every row, keys in order of position.
pub fn attend(a: &Attention<'_>, out: &mut Columns<'_>, scratch: &mut Scratch) {
    let Scratch { floats, page, softmax, .. } = scratch;
    page.grow(a.head_dim() * PAGE);
    softmax.grow(a.ends.len() * a.group());
    for (row, &end) in a.ends.iter().enumerate() {
        floats.grow(end);
        let queries = a.row(row).chunks_exact(a.head_dim()).zip(&mut softmax[row * a.group()..]);
        for ((query, softmax), out) in queries.zip(out.row(row).chunks_exact_mut(a.head_dim())) {
            *softmax = attend_query(a, query, &mut floats[..end], page, out);
        }
    }
}

/// Computes one query; returns the largest score and the sum of weights. `scores` has an element for every key that it sees; `decoded` holds a page.
fn attend_query(
    a: &Attention<'_>,
    query: &[f32],
    scores: &mut [f32],
    decoded: &mut [f32],
    out: &mut [f32],
) -> [f32; 2] {
    for (i, scores) in scores.chunks_mut(PAGE).enumerate() {
        let keys = a.layout.keys(&KV, a.page(i), decoded);
        for (slot, score) in scores.iter_mut().enumerate() {
            let dot: f32 = query.iter().enumerate().map(|(d, q)| q * keys[d * PAGE + slot]).sum();
            *score = dot * a.scale;
        }
    }
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for s in scores.iter_mut() {
        *s = exp(*s - max);
        sum += *s;
    }
    out.fill(0.0);
    for (i, scores) in scores.chunks(PAGE).enumerate() {
        let values = a.layout.values(&KV, a.page(i), decoded);
        for (p, value) in scores.iter().zip(values.chunks_exact(a.head_dim())) {
            for (o, v) in out.iter_mut().zip(value) {
                *o += p * v;
            }
        }
    }
    out.iter_mut().for_each(|o| *o *= 1.0 / sum);
    [max, sum]
}
