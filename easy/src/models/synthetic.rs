//! Random weights in the exact shapes of known models: speed without a download.

mod drafter;
mod hybrid;
mod low_bit;

pub use drafter::DrafterType;

use super::Loaded;
use bytes::Bytes;
use half::f16;
use std::time::Instant;
use wrinklefree::format::{
    Activation, Activations, Architecture, AttentionWeights, DlmConfig, GenerationDefaults,
    LayerWeights, Linear, Mixer, Rope, Spec, Weights,
};
use wrinklefree::matrix::{
    FloatMatrix, FloatType, GroupScales, Int8Matrix, Matrix, Packing, Scales, SplitMatrix,
    SplitParts, TernaryMatrix,
};
use wrinklefree::mem::WeightVec;
use wrinklefree::model::Model;

/// Columns that share a scale in Ternary-Bonsai models.
const GROUP: usize = 128;
/// Rows of a panel of the packed layouts.
const PANEL: usize = 16;

/// Shapes that can be benched without a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synthetic {
    /// BitNet b1.58 2B-4T with an int8 head.
    Bitnet2b,
    /// Ternary-Bonsai 1.7B: Qwen3 with ternary embeddings and a scale per 128 weights.
    Bonsai1_7b,
    /// A small BitNet.
    Tiny,
    /// Ternary-Bonsai-2 2B: linear attention in three of four layers, rotated weights, tied.
    Bonsai2_2b,
    /// Ternary-Bonsai-2 4B.
    Bonsai2_4b,
    /// Ternary-Bonsai-2 9B, whose head is its own.
    Bonsai2_9b,
    /// Ternary-Bonsai-2 27B, whose head is its own.
    Bonsai2_27b,
    /// A small hybrid, as Ternary-Bonsai-2.
    TinyHybrid,
    /// One-bit Bonsai 8B: Qwen3 with signs and a scale for each 128 of them.
    Bonsai1_8b,
    /// Hy-MT2 1.8B: a dense Hunyuan in 1.25 bits, with a tied head of six bits.
    HyMt2_1_8b,
    /// BitCPM 8B: a ternary MiniCPM4 with a head of six bits.
    BitCpm8b,
    /// Nemotron-Labs-Diffusion 3B in four bits, with a head of six bits.
    Nemotron3b,
}

/// A row of the table of shapes.
struct Row {
    shape: Synthetic,
    /// Name on the command line.
    name: &'static str,
    /// A line about the shape.
    about: &'static str,
    /// Layers whose hidden states its drafter reads; empty if it has none.
    taps: &'static [usize],
}

const fn row(shape: Synthetic, name: &'static str, about: &'static str) -> Row {
    Row { shape, name, about, taps: &[] }
}

impl Row {
    /// The row with a drafter that reads the hidden states after these layers.
    const fn drafted(self, taps: &'static [usize]) -> Self {
        Self { taps, ..self }
    }
}

/// All shapes, in the order of [`Synthetic`].
const TABLE: [Row; 12] = [
    row(Synthetic::Bitnet2b, "bitnet-2b", "BitNet b1.58 2B-4T with an int8 head"),
    row(
        Synthetic::Bonsai1_7b,
        "bonsai-1.7b",
        "Ternary-Bonsai 1.7B: Qwen3 with ternary embeddings and a scale per 128 weights",
    ),
    row(Synthetic::Tiny, "tiny", "A small BitNet"),
    row(
        Synthetic::Bonsai2_2b,
        "bonsai2-2b",
        "Ternary-Bonsai-2 2B: linear attention, rotated weights, tied head",
    )
    .drafted(&[1, 6, 11, 16, 21]),
    row(Synthetic::Bonsai2_4b, "bonsai2-4b", "Ternary-Bonsai-2 4B").drafted(&[1, 8, 15, 22, 29]),
    row(Synthetic::Bonsai2_9b, "bonsai2-9b", "Ternary-Bonsai-2 9B").drafted(&[1, 8, 15, 22, 29]),
    row(Synthetic::Bonsai2_27b, "bonsai2-27b", "Ternary-Bonsai-2 27B")
        .drafted(&[1, 16, 31, 46, 61]),
    row(
        Synthetic::TinyHybrid,
        "tiny-hybrid",
        "A small model with linear attention and rotated weights",
    )
    .drafted(&[0, 2]),
    row(
        Synthetic::Bonsai1_8b,
        "bonsai1-8b",
        "One-bit Bonsai 8B: Qwen3 with signs and a scale per 128 of them",
    ),
    row(
        Synthetic::HyMt2_1_8b,
        "hymt2-1.8b",
        "Hy-MT2 1.8B in 1.25 bits, with a tied head of six bits",
    ),
    row(Synthetic::BitCpm8b, "bitcpm-8b", "BitCPM 8B: a ternary MiniCPM4 with a head of six bits"),
    row(
        Synthetic::Nemotron3b,
        "nemotron-3b",
        "Nemotron-Labs-Diffusion 3B in four bits, with a head of six bits",
    ),
];

impl Synthetic {
    /// All shapes.
    pub const ALL: &[Self] = &{
        let mut all = [Self::Tiny; TABLE.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = TABLE[i].shape;
            i += 1;
        }
        all
    };

    /// Returns the shape of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|shape| shape.name() == name)
    }

    /// Returns a line about the shape.
    pub fn describe(self) -> &'static str {
        TABLE[self as usize].about
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].name
    }

    /// The shape.
    fn spec(self) -> Spec {
        if let Some(shape) = hybrid::Shape::of(self) {
            return shape.spec();
        }
        if let Some(shape) = low_bit::Shape::of(self) {
            return shape.spec();
        }
        let rope = |theta| Rope { theta, scaling: None };
        let bitnet = Spec {
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
            rope: rope(5e5),
            rotary_dim: None,
            attention_gate: false,
            linear_attention: None,
            mixers: Vec::new(),
            factors: None,
            mtp_layers: 0,
        };
        match self {
            Self::Bitnet2b => bitnet,
            Self::Bonsai1_7b => Spec {
                architecture: Architecture::Qwen3,
                vocab_size: 151_936,
                hidden_size: 2048,
                intermediate_size: 6144,
                layers: 28,
                heads: 16,
                kv_heads: 8,
                head_dim: 128,
                context_length: 32_768,
                norm_eps: 1e-6,
                activation: Activation::Silu,
                rope: rope(1e6),
                ..bitnet
            },
            _ => Spec {
                vocab_size: 32_000,
                hidden_size: 512,
                intermediate_size: 1536,
                layers: 8,
                heads: 8,
                kv_heads: 8,
                head_dim: 64,
                rope: rope(1e4),
                ..bitnet
            },
        }
    }

    /// Parameters of block diffusion: as if trained for both paths, in blocks of 32, with the last token
    /// for MASK. `None` for models that are published without.
    fn dlm(self, spec: &Spec) -> Option<DlmConfig> {
        let nemotron = self == Self::Nemotron3b;
        let causal = hybrid::Shape::of(self).is_some() || low_bit::Shape::of(self).is_some();
        (nemotron || !causal).then(|| DlmConfig {
            bd_size: 32,
            mask_token_id: Some(spec.vocab_size as u32 - 1),
            ar_path: true,
            clean_attention: "causal".into(),
            logit_shift: u8::from(!nemotron),
            logit_shift_assumed: false,
            blocks_from_prompt: nemotron,
            threshold_inclusive: nemotron,
        })
    }

    /// A model of that shape with random weights, the same on every call.
    pub fn loaded(self) -> Loaded {
        let begin = Instant::now();
        let spec = self.spec();
        let dlm = self.dlm(&spec);
        let model = Model::new(spec, self.weights()).expect("shapes fit");
        Loaded {
            name: format!("{} (synthetic)", self.name()),
            model,
            tokenizer: None,
            template: None,
            defaults: GenerationDefaults::default(),
            end_tokens: Vec::new(),
            dlm,
            time: begin.elapsed(),
            warnings: Vec::new(),
        }
    }

    /// Weights of that shape, the same on every call.
    fn weights(self) -> Weights {
        let mut rng = Rng(0x5eed);
        if let Some(shape) = hybrid::Shape::of(self) {
            return shape.weights(&mut rng);
        }
        if let Some(shape) = low_bit::Shape::of(self) {
            return shape.weights(&mut rng);
        }
        let spec = self.spec();
        let embed = match self {
            Self::Bonsai1_7b => rng.ternary(spec.vocab_size, spec.hidden_size, true),
            _ => rng.int8(spec.vocab_size, spec.hidden_size, spec.hidden_size),
        };
        let layers = (0..spec.layers).map(|_| self.layer(&spec, &mut rng)).collect();
        let final_norm = vec![1.0; spec.hidden_size];
        Weights { embed, embed_rotation: None, head: None, final_norm, layers, mtp: None }
    }

    fn layer(self, spec: &Spec, rng: &mut Rng) -> LayerWeights {
        let bonsai = self == Self::Bonsai1_7b;
        let activations = if bonsai { Activations::Int16 } else { Activations::Int8 };
        let mut linear = |rows, cols| Linear {
            weight: rng.ternary(rows, cols, bonsai),
            bias: None,
            activations,
            rotation: None,
        };
        let ones = |n: usize| vec![1.0; n];
        let (hidden, wide) = (spec.hidden_size, spec.intermediate_size);
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        LayerWeights {
            mixer_norm: ones(hidden),
            mixer: Mixer::Attention(Box::new(AttentionWeights {
                q: linear(q, hidden),
                k: linear(kv, hidden),
                v: linear(kv, hidden),
                q_norm: bonsai.then(|| ones(spec.head_dim)),
                k_norm: bonsai.then(|| ones(spec.head_dim)),
                sub_norm: (!bonsai).then(|| ones(q)),
                o: linear(hidden, q),
                draft_adapter: None,
            })),
            ffn_norm: ones(hidden),
            gate: linear(wide, hidden),
            up: linear(wide, hidden),
            ffn_sub_norm: (!bonsai).then(|| ones(wide)),
            down: linear(hidden, wide),
        }
    }
}

/// Weights that a ternary matrix has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codes {
    /// −1, 0, 0 and +1 with equal chance.
    Ternary,
    /// −1 and +1.
    Signs,
}

impl Codes {
    /// The codes of a word of random bits.
    fn of(self, word: u64) -> u64 {
        match self {
            Self::Ternary => {
                let threes = word & (word >> 1) & 0x5555_5555_5555_5555;
                word ^ (threes << 1) // the code 3 becomes 1
            }
            Self::Signs => word & 0xaaaa_aaaa_aaaa_aaaa, // 0 and 2
        }
    }
}

/// SplitMix64: a few instructions per eight bytes.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fill(&mut self, bytes: usize, word: impl Fn(u64) -> u64) -> Bytes {
        let mut words = WeightVec::<u64>::zeroed(bytes.div_ceil(size_of::<u64>()));
        for w in words.iter_mut() {
            *w = word(self.next());
        }
        words.into_bytes().slice(..bytes)
    }

    /// Ternary weights with one scale or groups of [`GROUP`], scaled to keep the size of their inputs.
    fn ternary(&mut self, rows: usize, cols: usize, grouped: bool) -> Matrix {
        if grouped {
            self.grouped(rows, cols, GROUP, Codes::Ternary)
        } else {
            let scales = Scales::Tensor((2.0 / cols as f32).sqrt());
            self.coded(rows, cols, Codes::Ternary, scales)
        }
    }

    /// Weights with a scale for each `group` columns.
    fn grouped(&mut self, rows: usize, cols: usize, group: usize, codes: Codes) -> Matrix {
        let variance = if codes == Codes::Signs { 1.0 } else { 2.0 };
        let scale = f16::from_f32((variance / cols as f32).sqrt()).to_le_bytes();
        let values = Bytes::from(scale.repeat(rows * cols / group));
        let groups = GroupScales::from_panels(rows, cols, group, values);
        let scales = Scales::Groups(groups.expect("as many scales as groups"));
        self.coded(rows, cols, codes, scales)
    }

    fn coded(&mut self, rows: usize, cols: usize, codes: Codes, scales: Scales) -> Matrix {
        // Panels without padding: random bytes need no repair at the edges.
        assert!(rows.is_multiple_of(PANEL) && cols.is_multiple_of(GROUP));
        let bytes = TernaryMatrix::code_bytes(rows, cols).expect("a known shape");
        let codes = self.fill(bytes, |word| codes.of(word));
        let matrix = TernaryMatrix::from_panels(rows, cols, codes, scales);
        Matrix::Ternary(matrix.expect("as many bytes as the shape needs"))
    }

    /// Values of six bits in planes, with the scales of Q6_K.
    fn six_bits(&mut self, rows: usize, cols: usize) -> Matrix {
        assert!(rows.is_multiple_of(PANEL) && cols.is_multiple_of(256));
        let count = rows * cols;
        let factor = (1.0 / 32.0 / 64.0 / (cols as f32).sqrt()).to_le_bytes();
        let parts = SplitParts {
            packing: Packing::Six,
            high: self.fill(count / 2, |word| word),
            low: self.fill(count / 4, |word| word),
            scales: self.fill(count / 16, |word| word & 0x3f3f_3f3f_3f3f_3f3f),
            factors: Bytes::from(factor.repeat(count / 256)),
        };
        let matrix = SplitMatrix::from_parts((rows, cols, 16), parts);
        Matrix::Split(matrix.expect("as many bytes as the shape needs"))
    }

    /// Values of four bits with a scale for each 32 columns, as Q4_0 becomes.
    fn four_bits(&mut self, rows: usize, cols: usize) -> Matrix {
        assert!(rows.is_multiple_of(PANEL) && cols.is_multiple_of(32));
        let count = rows * cols;
        let scale = (1.0 / 64.0 / (cols as f32).sqrt()).to_le_bytes();
        let parts = SplitParts {
            packing: Packing::Upper,
            high: self.fill(count / 2, |word| word),
            low: Bytes::new(),
            scales: Bytes::from(scale.repeat(count / 32)),
            factors: Bytes::new(),
        };
        let matrix = SplitMatrix::from_parts((rows, cols, 32), parts);
        Matrix::Split(matrix.expect("as many bytes as the shape needs"))
    }

    /// 16-bit floats of a size up to 2.
    fn halves(&mut self, rows: usize, cols: usize) -> Matrix {
        // Sign and fraction are random, the exponent is that of 2⁻⁷ to 1.
        let data =
            self.fill(2 * rows * cols, |word| word & 0x9fff_9fff_9fff_9fff | 0x2000_2000_2000_2000);
        let matrix = FloatMatrix::new(rows, cols, FloatType::F16, data);
        Matrix::Float(matrix.expect("as many bytes as the shape needs"))
    }

    /// Values in −64..64 with a scale for each `group` columns of a row.
    fn int8(&mut self, rows: usize, cols: usize, group: usize) -> Matrix {
        assert!(rows.is_multiple_of(PANEL) && cols.is_multiple_of(GROUP));
        let bytes = Int8Matrix::value_bytes(rows, cols).expect("a known shape");
        let values = self.fill(bytes, |word| {
            let low = word & 0x3f3f_3f3f_3f3f_3f3f;
            let negative = (word >> 6) & 0x0101_0101_0101_0101;
            low | (negative * 0xc0) // the sign fills the upper two bits
        });
        let scale = (1.0 / 64.0 / (cols as f32).sqrt()).to_le_bytes();
        let scales = Bytes::from(scale.repeat(rows * (cols / group)));
        let matrix = Int8Matrix::from_panels(rows, cols, group, values, scales);
        Matrix::Int8(matrix.expect("as many bytes as the shape needs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_shape_at_its_place() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.shape as usize, i, "{}", row.name);
            assert_eq!(Synthetic::parse(row.name), Some(row.shape));
        }
    }

    #[test]
    fn codes_are_ternary() {
        let Matrix::Ternary(m) = Rng(1).ternary(32, 256, true) else { panic!("ternary") };
        let mut seen = [0usize; 4];
        let mut row = vec![0; 256];
        for r in 0..32 {
            m.unpack_row(r, &mut row);
            row.iter().for_each(|&c| seen[usize::from(c)] += 1);
        }
        assert_eq!(seen[3], 0);
        assert!(seen[..3].iter().all(|&n| n > 1500), "{seen:?}");
    }

    #[test]
    fn bytes_spread_over_both_signs() {
        let Matrix::Int8(m) = Rng(1).int8(16, 1024, 1024) else { panic!("int8") };
        let mut row = vec![0; 1024];
        m.unpack_row(3, &mut row);
        assert!(row.iter().all(|&v| (-64..64).contains(&v)));
        let sum: i32 = row.iter().map(|&v| i32::from(v)).sum();
        assert!(sum.abs() < 5000, "{sum}");
    }

    #[test]
    fn tiny_has_every_tensor() {
        let groups = crate::models::weight_sizes::groups(&Synthetic::Tiny.weights());
        let layer = 4 * 512 * 512 + 3 * 512 * 1536 + 3 * 512 + 1536;
        let parameters: u64 = groups.iter().map(|g| g.parameters).sum();
        assert_eq!(parameters, 32_000 * 512 + 8 * layer + 512);
    }
}
