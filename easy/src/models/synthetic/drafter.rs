//! Random drafters (DSpark) for synthetic models: six layers of the model's width, all heads.

use super::{Rng, Row, Synthetic, TABLE};
use bytes::Bytes;
use std::collections::BTreeMap;
use wrinklefree::format::{
    Activation, Architecture, AttentionWeights, DraftLayout, DrafterCheckpoint, DrafterConfig,
    DrafterScales, DrafterWeights, LayerWeights, Linear, MarkovWeights, Mixer, Rope, Spec,
};
use wrinklefree::matrix::{FloatMatrix, FloatType, Matrix};

/// Number of layers.
const LAYERS: usize = 6;
/// Number of rows of a block: as many tokens are drafted.
const BLOCK: usize = 4;
/// Width of the Markov head.
const RANK: usize = 256;
/// Width of the conditioning on the signal-to-noise ratio, and of its features.
const CONDITIONING: (usize, usize) = (512, 128);

/// Storage of a synthetic drafter's matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrafterType {
    /// 16-bit floats.
    F16,
    /// int8 with a scale for each 32 columns.
    Q8_0,
    /// Four bits with a scale for each 32 columns.
    #[default]
    Q4_0,
}

impl DrafterType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4_0];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    fn matrix(self, rng: &mut Rng, rows: usize, cols: usize) -> Matrix {
        match self {
            Self::F16 => rng.halves(rows, cols),
            Self::Q8_0 => rng.int8(rows, cols, 32),
            Self::Q4_0 => rng.four_bits(rows, cols),
        }
    }
}

impl Synthetic {
    /// Returns true if the shape has a synthetic drafter.
    pub fn has_drafter(self) -> bool {
        !TABLE[self as usize].taps.is_empty()
    }

    /// Returns a random drafter for the model, the same on every call; `None` for shapes without one. It has
    /// the model's width, also between gate and up projection: so a drafter for the 27B takes the 0.6 GB in
    /// four bits that published ones take.
    pub fn drafter(self, dtype: DrafterType) -> Option<DrafterCheckpoint> {
        let Row { taps, .. } = TABLE[self as usize];
        let model = self.spec();
        let small = model.hidden_size < 1024;
        let spec = Spec {
            architecture: Architecture::Qwen3,
            activation: Activation::Silu,
            vocab_size: 0,
            intermediate_size: model.hidden_size,
            layers: LAYERS,
            heads: if small { 4 } else { 32 },
            kv_heads: if small { 2 } else { 8 },
            head_dim: if small { 64 } else { 128 },
            rope: Rope { theta: 1e7, scaling: None },
            rotary_dim: None,
            attention_gate: false,
            linear_attention: None,
            mixers: Vec::new(),
            ..model.clone()
        };
        let (hidden, vocab) = (spec.hidden_size, model.vocab_size);
        let mut rng = Rng(0xd5fa);
        let mut linear = |rows, cols| Linear::new(dtype.matrix(&mut rng, rows, cols), None);
        let (wide, features) = CONDITIONING;
        let log_snr = [linear(wide, features), linear(hidden, wide)];
        let weights = DrafterWeights {
            input: linear(hidden, taps.len().max(1) * hidden),
            hidden_norm: vec![1.0; hidden],
            layers: (0..LAYERS).map(|_| layer(&spec, &mut linear)).collect(),
            final_norm: vec![1.0; hidden],
            embed: None,
            mask_row: None,
            head: None,
            target_ids: None,
            markov: Some(MarkovWeights {
                previous: linear(vocab, RANK).weight,
                next: linear(vocab, RANK),
            }),
            confidence: Some(zeros(1, hidden + RANK)),
            log_snr: Some(log_snr),
        };
        let config = DrafterConfig {
            block: BLOCK,
            mask: vocab as u32 - 1,
            taps: taps.to_vec(),
            layout: DraftLayout::DSpark,
            layout_stated: true,
            causal: false,
            log_snr: Some((-6.0, 9.0)),
            windows: Vec::new(),
            scales: DrafterScales::default(),
        };
        let stored_types = BTreeMap::new();
        let drafter = DrafterCheckpoint { spec, config, weights, flushed: 0, stored_types };
        (!taps.is_empty()).then_some(drafter)
    }
}

fn layer(spec: &Spec, linear: &mut impl FnMut(usize, usize) -> Linear) -> LayerWeights {
    let (hidden, wide) = (spec.hidden_size, spec.intermediate_size);
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    LayerWeights {
        mixer_norm: vec![1.0; hidden],
        mixer: Mixer::Attention(Box::new(AttentionWeights {
            q: linear(q, hidden),
            k: linear(kv, hidden),
            v: linear(kv, hidden),
            q_norm: Some(vec![1.0; spec.head_dim]),
            k_norm: Some(vec![1.0; spec.head_dim]),
            sub_norm: None,
            o: linear(hidden, q),
            draft_adapter: None,
        })),
        ffn_norm: vec![1.0; hidden],
        gate: linear(wide, hidden),
        up: linear(wide, hidden),
        ffn_sub_norm: None,
        down: linear(hidden, wide),
    }
}

/// A matrix of zeros with a bias of zeros: confidences of one half.
fn zeros(rows: usize, cols: usize) -> Linear {
    let matrix =
        FloatMatrix::new(rows, cols, FloatType::F16, Bytes::from(vec![0; 2 * rows * cols]));
    let matrix = matrix.expect("as many bytes as the shape needs");
    Linear::new(Matrix::Float(matrix), Some(vec![0.0; rows]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drafter_fits_its_model_in_every_type() {
        for dtype in DrafterType::ALL {
            let drafter = Synthetic::TinyHybrid.drafter(dtype).expect("it has one");
            assert_eq!(drafter.weights.layers.len(), 6);
            let model = Synthetic::TinyHybrid.loaded().model;
            let with = model.with_drafter(drafter).expect("it fits");
            assert_eq!(with.draft_net().map(|net| net.longest), Some(4));
        }
        assert!(Synthetic::Bitnet2b.drafter(DrafterType::F16).is_none());
    }
}
