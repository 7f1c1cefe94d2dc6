//! Sizes of the parts of a model.

use std::collections::BTreeMap;
use wrinklefree::format::{LayerWeights, Linear, Mixer, Weights};
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

/// Role of the matrices of the adapter that changes drafts.
pub const ADAPTER: &str = "adapter for drafts";

/// Returns the matrices of a layer and their roles.
pub fn linears(layer: &LayerWeights) -> Vec<(&'static str, &Linear)> {
    let mut linears = match &layer.mixer {
        Mixer::Attention(w) => vec![
            ("attention q", &w.q),
            ("attention k", &w.k),
            ("attention v", &w.v),
            ("attention o", &w.o),
        ],
        Mixer::Linear(w) => vec![
            ("linear qkv", &w.qkv),
            ("linear z", &w.z),
            ("linear alpha", &w.alpha),
            ("linear beta", &w.beta),
            ("linear out", &w.out),
        ],
    };
    linears.extend([("ffn gate", &layer.gate), ("ffn up", &layer.up), ("ffn down", &layer.down)]);
    linears
}

/// Returns the vectors that a layer has besides biases: norms, and those of linear attention.
pub fn norms(layer: &LayerWeights) -> impl Iterator<Item = (&'static str, &[f32])> {
    let of_mixer = match &layer.mixer {
        Mixer::Attention(w) => vec![
            ("q_norm", w.q_norm.as_ref()),
            ("k_norm", w.k_norm.as_ref()),
            ("attn_sub_norm", w.sub_norm.as_ref()),
        ],
        Mixer::Linear(w) => vec![
            ("conv", Some(&w.conv)),
            ("a", Some(&w.a)),
            ("dt_bias", Some(&w.dt_bias)),
            ("linear_norm", Some(&w.norm)),
        ],
    };
    [("mixer_norm", Some(&layer.mixer_norm)), ("ffn_norm", Some(&layer.ffn_norm))]
        .into_iter()
        .chain(of_mixer)
        .chain([("ffn_sub_norm", layer.ffn_sub_norm.as_ref())])
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
    let attention = weights.layers.iter().filter_map(|layer| layer.mixer.attention());
    for adapter in attention.filter_map(|w| w.draft_adapter.as_deref()) {
        add(ADAPTER, &adapter.down.weight);
        add(ADAPTER, &adapter.up.weight);
    }
    if let Some(head) = &weights.head {
        add("head", &head.weight);
    }
    if let Some(mtp) = &weights.mtp {
        let own = [Some(&mtp.input), mtp.head.as_ref()].into_iter().flatten();
        let linears = mtp.layer.linears().chain(own).map(|linear| &linear.weight);
        linears.chain(&mtp.embed).for_each(|matrix| add("drafting block", matrix));
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
