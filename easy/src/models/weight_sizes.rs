//! Sizes of the parts of a model.

use std::collections::BTreeMap;
use wrinklefree::format::{LayerWeights, Linear, Weights};
use wrinklefree::matrix::Matrix;

/// All matrices of one role and kind.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Group {
    /// `embedding`, `head`, `attention q`…
    pub role: &'static str,
    /// Element type: `ternary`, `int8`, `bf16`…
    pub kind: String,
    /// `rows × cols` of one.
    pub shape: [usize; 2],
    /// Number of matrices.
    pub count: usize,
    /// Parameters in all of them, without padding.
    pub parameters: u64,
    /// Bytes in memory.
    pub bytes: u64,
}

/// Returns the seven matrices of a layer and their roles.
pub fn linears(layer: &LayerWeights) -> [(&'static str, &Linear); 7] {
    [
        ("attention q", &layer.q),
        ("attention k", &layer.k),
        ("attention v", &layer.v),
        ("attention o", &layer.o),
        ("ffn gate", &layer.gate),
        ("ffn up", &layer.up),
        ("ffn down", &layer.down),
    ]
}

/// Returns the norm vectors that a layer has.
pub fn norms(layer: &LayerWeights) -> impl Iterator<Item = (&'static str, &[f32])> {
    [
        ("attn_norm", Some(&layer.attn_norm)),
        ("q_norm", layer.q_norm.as_ref()),
        ("k_norm", layer.k_norm.as_ref()),
        ("attn_sub_norm", layer.attn_sub_norm.as_ref()),
        ("ffn_norm", Some(&layer.ffn_norm)),
        ("ffn_sub_norm", layer.ffn_sub_norm.as_ref()),
    ]
    .into_iter()
    .filter_map(|(name, norm)| Some((name, norm?.as_slice())))
}

/// Groups matrices by role and kind, in the order of a forward pass; norms and biases come last.
pub fn groups(weights: &Weights) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut add = |role: &'static str, matrix: &Matrix| {
        let (kind, shape) = (matrix.kind(), [matrix.rows(), matrix.cols()]);
        let (parameters, bytes) = ((shape[0] * shape[1]) as u64, matrix.bytes() as u64);
        match groups.iter_mut().find(|g| g.role == role && g.kind == kind && g.shape == shape) {
            Some(group) => {
                group.count += 1;
                group.parameters += parameters;
                group.bytes += bytes;
            }
            None => groups.push(Group { role, kind, shape, count: 1, parameters, bytes }),
        }
    };
    add("embedding", &weights.embed);
    for layer in &weights.layers {
        for (role, linear) in linears(layer) {
            add(role, &linear.weight);
        }
    }
    if let Some(head) = &weights.head {
        add("head", &head.weight);
    }
    groups.extend(vectors(weights));
    groups
}

/// Groups norms and biases by length; all are f32.
fn vectors(weights: &Weights) -> Vec<Group> {
    let mut lengths: BTreeMap<(&'static str, usize), usize> = BTreeMap::new();
    let mut add = |role, length| *lengths.entry((role, length)).or_default() += 1;
    add("norm", weights.final_norm.len());
    for layer in &weights.layers {
        for (_, norm) in norms(layer) {
            add("norm", norm.len());
        }
        for (_, linear) in linears(layer) {
            if let Some(bias) = &linear.bias {
                add("bias", bias.len());
            }
        }
    }
    let group = |((role, length), count): ((&'static str, usize), usize)| Group {
        role,
        kind: "f32".into(),
        shape: [1, length],
        count,
        parameters: (length * count) as u64,
        bytes: (length * count * size_of::<f32>()) as u64,
    };
    lengths.into_iter().map(group).collect()
}

/// Returns the bytes of all weights.
pub fn bytes(weights: &Weights) -> u64 {
    groups(weights).iter().map(|g| g.bytes).sum()
}
