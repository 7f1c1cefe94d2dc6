//! Random models of given shapes, for benches and tests that need a model but no meaning.
#![allow(dead_code, reason = "every bench and test uses its own part")]

use wrinklefree::format::{
    Activation, Activations, Architecture, AttentionWeights, LayerWeights, Linear, Mixer, Rope,
    Spec, Weights,
};
use wrinklefree::matrix::{Int8Matrix, Matrix, Scales, SplitMatrix, TernaryMatrix};
use wrinklefree::mem::WeightVec;
use wrinklefree::model::Model;
use wrinklefree::ternary::PANEL_ROWS;

/// A fast generator of noise.
pub struct Noise(pub u64);

impl Noise {
    /// The next 64 bits (xorshift).
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number in −1..1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// A random ternary matrix with one scale.
pub fn ternary(rows: usize, cols: usize, noise: &mut Noise) -> TernaryMatrix {
    let bytes = TernaryMatrix::code_bytes(rows, cols).unwrap();
    let mut codes = WeightVec::<u64>::zeroed(bytes / 8);
    for word in codes.iter_mut() {
        // Two random bits a code, never both set: codes 0, 1, 2.
        let bits = noise.bits();
        *word = bits & !((bits & 0x5555_5555_5555_5555) << 1);
    }
    let scale = 1.2 / (cols as f32).sqrt();
    TernaryMatrix::from_panels(rows, cols, codes.into_bytes(), Scales::Tensor(scale)).unwrap()
}

/// A random int8 matrix with a scale per row.
pub fn int8(rows: usize, cols: usize, noise: &mut Noise) -> Int8Matrix {
    let mut values = WeightVec::<u64>::zeroed(Int8Matrix::value_bytes(rows, cols).unwrap() / 8);
    values.fill_with(|| noise.bits());
    let mut scales = WeightVec::<f32>::zeroed(rows.next_multiple_of(PANEL_ROWS));
    scales.fill(0.01 / (cols as f32).sqrt());
    let (values, scales) = (values.into_bytes(), scales.into_bytes());
    Int8Matrix::from_panels(rows, cols, cols, values, scales).unwrap()
}

/// A random matrix of six bits with a scale for each 16 columns, as Q6_K has it.
pub fn six_bits(rows: usize, cols: usize, noise: &mut Noise) -> SplitMatrix {
    let values = |_, out: &mut [i8]| out.fill_with(|| noise.bits() as i8 >> 2);
    SplitMatrix::pack_six((rows, cols, 16), values, |row, parts, factors| {
        parts.fill(row as i8);
        factors.fill(0.01 / (cols as f32).sqrt());
    })
    .unwrap()
}

/// A model small enough to run thousands of times; the larger `decided`, the surer its logits.
pub fn small_model(vocab_size: usize, seed: u64, decided: f32) -> Model {
    let spec = Spec {
        architecture: Architecture::BitNet,
        vocab_size,
        hidden_size: 64,
        intermediate_size: 96,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        context_length: 256,
        norm_eps: 1e-5,
        activation: Activation::Relu2,
        rope: Rope { theta: 1e4, scaling: None },
        rotary_dim: None,
        attention_gate: false,
        linear_attention: None,
        mixers: Vec::new(),
        factors: None,
        mtp_layers: 0,
    };
    let mut weights = bitnet(&spec, seed);
    weights.final_norm.iter_mut().for_each(|w| *w *= decided);
    Model::new(spec, weights).unwrap()
}

/// A shape with nothing that is a multiple of anything.
pub fn odd() -> Spec {
    Spec {
        architecture: Architecture::BitNet,
        vocab_size: 131,
        hidden_size: 90,
        intermediate_size: 151,
        layers: 3,
        heads: 6,
        kv_heads: 2,
        head_dim: 14,
        context_length: 256,
        norm_eps: 1e-5,
        activation: Activation::Relu2,
        rope: Rope { theta: 1e4, scaling: None },
        rotary_dim: None,
        attention_gate: false,
        linear_attention: None,
        mixers: Vec::new(),
        factors: None,
        mtp_layers: 0,
    }
}

/// The shape of BitNet b1.58 2B-4T.
pub fn bitnet_2b() -> Spec {
    Spec {
        architecture: Architecture::BitNet,
        vocab_size: 128_256,
        hidden_size: 2560,
        intermediate_size: 6912,
        layers: 30,
        heads: 20,
        kv_heads: 5,
        head_dim: 128,
        context_length: 4096,
        norm_eps: 1e-5,
        activation: Activation::Relu2,
        rope: Rope { theta: 5e5, scaling: None },
        rotary_dim: None,
        attention_gate: false,
        linear_attention: None,
        mixers: Vec::new(),
        factors: None,
        mtp_layers: 0,
    }
}

/// Random weights of a BitNet shape, with an int8 embedding that is also the head.
pub fn bitnet(spec: &Spec, seed: u64) -> Weights {
    let mut noise = Noise(seed);
    let linear = |rows, cols, noise: &mut Noise| Linear {
        weight: Matrix::Ternary(ternary(rows, cols, noise)),
        bias: None,
        activations: Activations::Int8,
        rotation: None,
    };
    let (d, f) = (spec.hidden_size, spec.intermediate_size);
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    let layers = (0..spec.layers).map(|_| LayerWeights {
        mixer_norm: vec![1.0; d],
        mixer: Mixer::Attention(Box::new(AttentionWeights {
            q: linear(q, d, &mut noise),
            k: linear(kv, d, &mut noise),
            v: linear(kv, d, &mut noise),
            q_norm: None,
            k_norm: None,
            sub_norm: Some(vec![1.0; q]),
            o: linear(d, q, &mut noise),
            draft_adapter: None,
        })),
        ffn_norm: vec![1.0; d],
        gate: linear(f, d, &mut noise),
        up: linear(f, d, &mut noise),
        ffn_sub_norm: Some(vec![1.0; f]),
        down: linear(d, f, &mut noise),
    });
    let layers = layers.collect();
    let embed = Matrix::Int8(int8(spec.vocab_size, d, &mut noise));
    Weights { embed, embed_rotation: None, head: None, final_norm: vec![1.0; d], layers, mtp: None }
}
