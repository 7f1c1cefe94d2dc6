//! Texts whose rows share passes.

use std::ops::Range;
use wrinklefree::cache::KvPool;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};

/// Returns the bits of logits.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Runs a pass for each of `cuts`, with these rows of each text, and returns the bits of each text's
/// logits.
pub fn in_batches<const N: usize>(
    model: &Model,
    rt: &Runtime,
    kv: &mut KvPool,
    texts: [&[u32]; N],
    cuts: &[[Range<usize>; N]],
) -> [Vec<u32>; N] {
    let seqs = texts.map(|text| kv.open(text.len()).unwrap());
    let (mut got, mut ws) = ([const { Vec::new() }; N], Workspace::default());
    for cuts in cuts {
        let rows = texts.iter().zip(seqs).zip(cuts).filter(|(_, cut)| !cut.is_empty());
        let spans: Vec<Span<'_>> = rows
            .map(|((text, seq), cut)| Span {
                seq,
                start: cut.start,
                tokens: &text[cut.clone()],
                attention_mask: AttentionMask::Causal,
                logits: LogitRows::All,
            })
            .collect();
        let mut logits = model.forward(rt, kv, &spans, &mut ws);
        for (out, cut) in got.iter_mut().zip(cuts) {
            let (own, rest) = logits.split(cut.len());
            out.extend(bits(own.values()));
            logits = rest;
        }
    }
    got
}
