//! Builds tiny valid model files, which tests can damage. Also has a random number generator.
#![allow(dead_code, missing_docs)]

#[path = "drafter.rs"]
pub mod drafter;
#[path = "hybrid.rs"]
pub mod hybrid;

use half::{bf16, f16};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use wrinklefree::format::{Checkpoint, File, Linear, LoadError, codec, load, write_packed};
use wrinklefree::matrix::{GroupScales, Matrix, Scales, SplitMatrix, TernaryMatrix};
use wrinklefree::ternary;

/// xorshift64*, which gives the same numbers on every machine.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    /// A number from −1 to 1.
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    pub fn codes(&mut self, n: usize, max: usize) -> Vec<u8> {
        (0..n).map(|_| self.below(max + 1) as u8).collect()
    }

    /// A random ternary matrix. Its scales are f16 in groups of `group`, or one bf16 value.
    pub fn ternary(&mut self, rows: usize, cols: usize, group: Option<usize>) -> TernaryMatrix {
        let codes = self.codes(rows * cols, 2);
        let scales = match group {
            None => Scales::Tensor(bf16::from_f32(0.5 + self.float().abs()).to_f32()),
            Some(size) => Scales::Groups(
                GroupScales::from_rows(rows, cols, size, |_, out| {
                    out.iter_mut().for_each(|s| *s = f16::from_f32(0.01 + self.float().abs()));
                })
                .unwrap(),
            ),
        };
        TernaryMatrix::pack(rows, cols, scales, |r, out| {
            out.copy_from_slice(&codes[r * cols..(r + 1) * cols]);
        })
        .unwrap()
    }
}

/// Blocks of `weights` weights from random bytes, with random scales or one for all.
pub fn random_blocks(
    t: &codec::TernaryBlockFormat,
    weights: usize,
    rng: &mut Rng,
    scale: Option<f32>,
) -> Vec<u8> {
    let mut bytes = vec![0; weights / t.weights * t.bytes];
    let at = if t.name == "Q1_0" || t.name.ends_with("Q2_0") && t.name != "TQ2_0" {
        0
    } else {
        t.bytes - 2
    };
    for block in bytes.chunks_exact_mut(t.bytes) {
        // Without the code 3 of two bits.
        block.fill_with(|| rng.next() as u8 & if t.name == "TQ2_0" { 0x55 } else { 0xff });
        let scale = f16::from_f32(scale.unwrap_or_else(|| 0.01 + rng.float().abs()));
        block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
    }
    bytes
}

/// A matrix of six-bit values, with int8 scales of 16 columns and f32 factors of the scales.
pub fn six_bits(rows: usize, cols: usize) -> Matrix {
    let value = |row: usize, column: usize| ((row * 29 + column * 13) % 64) as i8 - 32;
    let matrix = SplitMatrix::pack_six(
        (rows, cols, 16),
        |row, out| (0..).zip(out).for_each(|(column, v)| *v = value(row, column)),
        |row, parts, factors| {
            (0..).zip(parts).for_each(|(group, part)| *part = value(group, row));
            factors.fill(0.25 + row as f32);
        },
    );
    Matrix::Split(matrix.unwrap())
}

pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect()
}

pub fn file(name: &str, bytes: impl Into<Vec<u8>>) -> File {
    File { name: name.into(), bytes: bytes.into().into() }
}

/// A tensor of a safetensors file.
#[derive(Clone)]
pub struct Raw {
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

pub fn safetensors(tensors: &BTreeMap<String, Raw>) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, t) in tensors {
        let begin = data.len();
        data.extend_from_slice(&t.bytes);
        let entry =
            json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": [begin, data.len()]});
        header.insert(name.clone(), entry);
    }
    with_header(&Value::Object(header).to_string(), &data)
}

pub fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(data);
    out
}

/// Storage of a directory's linear layers.
#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    Packed,
    Master,
    Float,
}

pub const VOCAB: usize = 20;
pub const HIDDEN: usize = 16;
pub const FF: usize = 24;
pub const HEADS: usize = 2;
pub const KV: usize = 1;
pub const HEAD_DIM: usize = 8;
pub const LAYERS: usize = 2;

/// A Hugging Face directory.
#[derive(Clone)]
pub struct Hf {
    pub config: Value,
    pub tensors: BTreeMap<String, Raw>,
    pub others: Vec<File>,
}

impl Hf {
    pub fn new(model_type: &str, style: Style) -> Self {
        let mut rng = Rng(7);
        let mut config = json!({
            "model_type": model_type,
            "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": FF,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV,
            "head_dim": HEAD_DIM, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
            "hidden_act": if model_type == "bitnet" { "relu2" } else { "silu" },
            "rope_theta": 10000.0, "tie_word_embeddings": false,
            "bos_token_id": 1, "eos_token_id": [2, 3],
        });
        if style != Style::Float {
            config["quantization_config"] = json!({"quant_method": "bitnet"});
        }
        let mut hf = Self { config, tensors: BTreeMap::new(), others: Vec::new() };
        for name in ["model.embed_tokens", "lm_head"] {
            let bytes = bf16_bytes(&rng.floats(VOCAB * HIDDEN));
            hf.put(&format!("{name}.weight"), "BF16", &[VOCAB, HIDDEN], bytes);
        }
        hf.norm("model.norm", HIDDEN, &mut rng);
        for i in 0..LAYERS {
            let l = format!("model.layers.{i}");
            hf.norm(&format!("{l}.input_layernorm"), HIDDEN, &mut rng);
            hf.norm(&format!("{l}.post_attention_layernorm"), HIDDEN, &mut rng);
            if model_type == "bitnet" {
                hf.norm(&format!("{l}.self_attn.attn_sub_norm"), HEADS * HEAD_DIM, &mut rng);
                hf.norm(&format!("{l}.mlp.ffn_sub_norm"), FF, &mut rng);
            }
            if model_type == "qwen3" {
                hf.norm(&format!("{l}.self_attn.q_norm"), HEAD_DIM, &mut rng);
                hf.norm(&format!("{l}.self_attn.k_norm"), HEAD_DIM, &mut rng);
            }
            for (name, rows, cols) in [
                ("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN),
                ("self_attn.k_proj", KV * HEAD_DIM, HIDDEN),
                ("self_attn.v_proj", KV * HEAD_DIM, HIDDEN),
                ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
                ("mlp.gate_proj", FF, HIDDEN),
                ("mlp.up_proj", FF, HIDDEN),
                ("mlp.down_proj", HIDDEN, FF),
            ] {
                let name = format!("{l}.{name}");
                hf.linear(&name, rows, cols, style, &mut rng);
                if model_type == "qwen2"
                    && ["q_proj", "k_proj", "v_proj"].iter().any(|p| name.ends_with(p))
                {
                    let bytes = f32_bytes(&rng.floats(rows));
                    hf.put(&format!("{name}.bias"), "F32", &[rows], bytes);
                }
            }
        }
        hf
    }

    fn linear(&mut self, name: &str, rows: usize, cols: usize, style: Style, rng: &mut Rng) {
        let weight = format!("{name}.weight");
        if style == Style::Packed {
            let bytes = codec::encode_hf_packed(&rng.ternary(rows, cols, None)).unwrap();
            self.put(&weight, "U8", &[rows / 4, cols], bytes);
            let scale = bf16_bytes(&[0.5 + rng.float().abs()]);
            self.put(&format!("{name}.weight_scale"), "BF16", &[1], scale);
        } else {
            let bytes = bf16_bytes(&rng.floats(rows * cols));
            self.put(&weight, "BF16", &[rows, cols], bytes);
        }
    }

    fn norm(&mut self, name: &str, n: usize, rng: &mut Rng) {
        let bytes = f32_bytes(&rng.floats(n));
        self.put(&format!("{name}.weight"), "F32", &[n], bytes);
    }

    pub fn put(&mut self, name: &str, dtype: &'static str, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.insert(name.into(), Raw { dtype, shape: shape.into(), bytes });
    }

    pub fn with(mut self, name: &str, text: &str) -> Self {
        self.others.push(file(name, text));
        self
    }

    /// Sets a field of config.json.
    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    pub fn files(&self) -> Vec<File> {
        let mut files = vec![
            file("config.json", self.config.to_string()),
            file("model.safetensors", safetensors(&self.tensors)),
        ];
        files.extend(self.others.iter().cloned());
        files
    }

    pub fn load(&self) -> Result<Checkpoint, LoadError> {
        load(self.files())
    }
}

/// A metadata value of a GGUF file: its type id and bytes.
pub fn meta_u32(v: u32) -> (u32, Vec<u8>) {
    (4, v.to_le_bytes().to_vec())
}

pub fn meta_f32(v: f32) -> (u32, Vec<u8>) {
    (6, v.to_le_bytes().to_vec())
}

pub fn meta_text(v: &str) -> (u32, Vec<u8>) {
    (8, text(v))
}

pub fn meta_texts(v: &[&str]) -> (u32, Vec<u8>) {
    (9, list(8, v.len(), &v.iter().flat_map(|t| text(t)).collect::<Vec<u8>>()))
}

pub fn meta_ints(v: &[i32]) -> (u32, Vec<u8>) {
    let bytes: Vec<u8> = v.iter().flat_map(|v| v.to_le_bytes()).collect();
    (9, list(5, v.len(), &bytes))
}

pub fn meta_bool(v: bool) -> (u32, Vec<u8>) {
    (7, vec![v.into()])
}

pub fn meta_bools(v: &[bool]) -> (u32, Vec<u8>) {
    let bytes: Vec<u8> = v.iter().map(|&v| v.into()).collect();
    (9, list(7, v.len(), &bytes))
}

pub fn list(kind: u32, count: usize, elements: &[u8]) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend((count as u64).to_le_bytes());
    out.extend_from_slice(elements);
    out
}

fn text(v: &str) -> Vec<u8> {
    let mut out = (v.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(v.as_bytes());
    out
}

/// A tensor of a GGUF file; its shape has the outermost dimension first.
#[derive(Clone)]
pub struct GgufTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub kind: u32,
    pub bytes: Vec<u8>,
}

/// A GGUF file.
#[derive(Clone)]
pub struct Gguf {
    pub version: u32,
    pub meta: Vec<(String, (u32, Vec<u8>))>,
    pub tensors: Vec<GgufTensor>,
}

impl Gguf {
    pub const F32: u32 = 0;
    const ALIGN: usize = 32;

    /// A model whose linear layers are random ternary matrices, written by `encode` as type `kind`.
    pub fn model(
        arch: &str,
        hidden: usize,
        kind: u32,
        mut encode: impl FnMut(&mut Rng, usize, usize) -> Vec<u8>,
    ) -> Self {
        let (heads, head_dim, layers) = (2, hidden / 2, 2);
        let mut g = Self { version: 3, meta: Vec::new(), tensors: Vec::new() };
        let mut rng = Rng(11);
        g.set("general.architecture", meta_text(arch));
        for (key, v) in [
            ("embedding_length", hidden),
            ("feed_forward_length", hidden),
            ("block_count", layers),
            ("context_length", 64),
            ("attention.head_count", heads),
            ("attention.head_count_kv", 1),
        ] {
            g.set(&format!("{arch}.{key}"), meta_u32(v as u32));
        }
        g.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), meta_f32(1e-5));
        g.set(&format!("{arch}.rope.freq_base"), meta_f32(10_000.0));
        g.float("token_embd.weight", &[VOCAB, hidden], &mut rng);
        g.float("output_norm.weight", &[hidden], &mut rng);
        let bitnet = arch.starts_with("bitnet");
        for i in 0..layers {
            let mut norms = vec![("attn_norm", hidden), ("ffn_norm", hidden)];
            if bitnet {
                norms.extend([("attn_sub_norm", hidden), ("ffn_sub_norm", hidden)]);
            }
            if ["qwen3", "hunyuan-dense"].contains(&arch) {
                norms.extend([("attn_q_norm", head_dim), ("attn_k_norm", head_dim)]);
            }
            for (name, n) in norms {
                g.float(&format!("blk.{i}.{name}.weight"), &[n], &mut rng);
            }
            for (name, rows) in [
                ("attn_q", hidden),
                ("attn_k", head_dim),
                ("attn_v", head_dim),
                ("attn_output", hidden),
                ("ffn_gate", hidden),
                ("ffn_up", hidden),
                ("ffn_down", hidden),
            ] {
                let bytes = encode(&mut rng, rows, hidden);
                let name = format!("blk.{i}.{name}.weight");
                g.tensors.push(GgufTensor { name, shape: vec![rows, hidden], kind, bytes });
            }
        }
        g
    }

    /// A small model in Q2_0 blocks of 64, with a vocabulary.
    pub fn q2() -> Self {
        let mut g = Self::model("qwen3", 64, 42, |rng, rows, cols| {
            codec::Q2_0.encode(&rng.ternary(rows, cols, Some(64))).unwrap()
        });
        let tokens: Vec<String> = (0..VOCAB).map(|i| format!("t{i}")).collect();
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        g.set("tokenizer.ggml.model", meta_text("gpt2"));
        g.set("tokenizer.ggml.tokens", meta_texts(&tokens));
        g.set("tokenizer.ggml.merges", meta_texts(&["a b", "b c"]));
        g.set("tokenizer.ggml.token_type", (9, list(5, VOCAB, &[1, 0, 0, 0].repeat(VOCAB))));
        g.set("tokenizer.ggml.eos_token_id", meta_u32(2));
        g.set("tokenizer.ggml.eot_token_id", meta_u32(3));
        g.set("tokenizer.chat_template", meta_text("{{ messages }}"));
        g
    }

    pub fn float(&mut self, name: &str, shape: &[usize], rng: &mut Rng) {
        let bytes = f32_bytes(&rng.floats(shape.iter().product()));
        self.tensors.push(GgufTensor {
            name: name.into(),
            shape: shape.into(),
            kind: Self::F32,
            bytes,
        });
    }

    pub fn set(&mut self, key: &str, value: (u32, Vec<u8>)) {
        self.meta.retain(|(k, _)| k != key);
        self.meta.push((key.into(), value));
    }

    pub fn tensor(&mut self, name: &str) -> &mut GgufTensor {
        self.tensors.iter_mut().find(|t| t.name == name).expect("a tensor of that name")
    }

    /// Header and data.
    pub fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        let mut head = b"GGUF".to_vec();
        head.extend(self.version.to_le_bytes());
        head.extend((self.tensors.len() as u64).to_le_bytes());
        head.extend((self.meta.len() as u64).to_le_bytes());
        for (key, (kind, bytes)) in &self.meta {
            head.extend(text(key));
            head.extend(kind.to_le_bytes());
            head.extend_from_slice(bytes);
        }
        let mut data = Vec::new();
        for t in &self.tensors {
            head.extend(text(&t.name));
            head.extend((t.shape.len() as u32).to_le_bytes());
            for d in t.shape.iter().rev() {
                head.extend((*d as u64).to_le_bytes());
            }
            head.extend(t.kind.to_le_bytes());
            head.extend((data.len() as u64).to_le_bytes());
            data.extend_from_slice(&t.bytes);
            data.resize(data.len().next_multiple_of(Self::ALIGN), 0);
        }
        head.resize(head.len().next_multiple_of(Self::ALIGN), 0);
        (head, data)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (mut head, data) = self.parts();
        head.extend(data);
        head
    }

    pub fn load(&self) -> Result<Checkpoint, LoadError> {
        load(vec![file("model.gguf", self.bytes())])
    }
}

/// A packed file of a small model, in a layout and with a head, if any.
pub fn packed_bytes(layout: ternary::Layout, head: Option<Matrix>) -> Vec<u8> {
    let mut model = Hf::new("bitnet", Style::Packed).set("bd_size", json!(8)).load().unwrap();
    let grouped = Gguf::q2().load().unwrap();
    model.text.chat_template = Some("{{ messages }}".into());
    model.weights.head = head.map(|weight| Linear::new(weight, None));
    model.weights.set_layout(layout);
    model.generation = grouped.generation;
    let mut out = Vec::new();
    write_packed(&model, Some(b"{\"tokenizer\": 1}"), &mut out).unwrap();
    out
}
