//! Small hybrid models (`qwen35`), also with rotated weights.

use super::{
    FF, Gguf, HEAD_DIM, HEADS, HIDDEN, Hf, KV, Rng, VOCAB, bf16_bytes, meta_f32, meta_ints,
    meta_text, meta_texts, meta_u32,
};
use serde_json::json;
use std::collections::BTreeMap;
use wrinklefree::format::write_packed;

pub const HEAD: &str = "output.weight";
pub const Q: &str = "blk.3.attn_q.weight";
pub const OUT: &str = "blk.0.ssm_out.weight";
pub const DOWN: &str = "blk.1.ffn_down.weight";

/// A key of the declaration of rotated weights.
pub fn key(name: &str) -> String {
    format!("prism.hadamard.{name}")
}

/// Signs of a width in these tests.
pub fn signs(width: usize) -> Vec<i32> {
    (0..width).map(|i| if i % 3 == 1 { -1 } else { 1 }).collect()
}

/// A file of version 1 with explicit signs: widths of 16, 24 and 32, blocks of 8.
pub fn rotated() -> Gguf {
    let mut g = Gguf::qwen35();
    declare(&mut g, &[16, 24, 32], &[HEAD, Q, OUT, DOWN]);
    g
}

pub fn declare(g: &mut Gguf, widths: &[usize], names: &[&str]) {
    g.set(&key("version"), meta_u32(1));
    g.set(&key("block_size"), meta_u32(8));
    g.set(&key("transform"), meta_text("normalized-sylvester-walsh-hadamard"));
    g.set(&key("axis"), meta_text("input-last-dimension"));
    g.set(&key("sign_mode"), meta_text("explicit"));
    g.set(&key("weight_names"), meta_texts(names));
    let as_ints: Vec<i32> = widths.iter().map(|&w| w as i32).collect();
    g.set(&key("sign_widths"), meta_ints(&as_ints));
    let values: Vec<i32> = widths.iter().flat_map(|&w| signs(w)).collect();
    g.set(&key("sign_values"), meta_ints(&values));
}

/// A packed file of the same model.
pub fn packed() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_packed(&rotated().load().unwrap(), None, &mut bytes).unwrap();
    bytes
}

impl Gguf {
    /// A small hybrid model in floats: three layers of linear attention, one of softmax attention.
    pub fn qwen35() -> Self {
        let mut g = Self { version: 3, meta: Vec::new(), tensors: Vec::new() };
        let mut rng = Rng(13);
        g.set("general.architecture", meta_text("qwen35"));
        for (key, v) in [
            ("embedding_length", HIDDEN),
            ("feed_forward_length", 2 * HIDDEN),
            ("block_count", 4),
            ("context_length", 64),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", KV),
            ("attention.key_length", HEAD_DIM),
            ("attention.value_length", HEAD_DIM),
            ("rope.dimension_count", HEAD_DIM / 2),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 4),
            ("ssm.group_count", 2),
            ("ssm.time_step_rank", 6),
            ("ssm.inner_size", 24),
        ] {
            g.set(&format!("qwen35.{key}"), meta_u32(v as u32));
        }
        g.set("qwen35.attention.layer_norm_rms_epsilon", meta_f32(1e-6));
        g.set("qwen35.rope.freq_base", meta_f32(1e7));
        g.set("qwen35.rope.dimension_sections", meta_ints(&[1, 1, 0, 0]));
        g.float("token_embd.weight", &[VOCAB, HIDDEN], &mut rng);
        g.float("output.weight", &[VOCAB, HIDDEN], &mut rng);
        g.float("output_norm.weight", &[HIDDEN], &mut rng);
        for i in 0..4 {
            g.qwen35_block(i, i == 3, &mut rng);
        }
        g
    }

    /// Adds a block for multi-token prediction after four layers, which has everything of its own if `own`
    /// is true.
    pub fn with_mtp(mut self, own: bool) -> Self {
        let mut rng = Rng(23);
        self.set("qwen35.block_count", meta_u32(5));
        self.set("qwen35.nextn_predict_layers", meta_u32(1));
        self.qwen35_block(4, true, &mut rng);
        self.float("blk.4.nextn.eh_proj.weight", &[HIDDEN, 2 * HIDDEN], &mut rng);
        self.float("blk.4.nextn.enorm.weight", &[HIDDEN], &mut rng);
        self.float("blk.4.nextn.hnorm.weight", &[HIDDEN], &mut rng);
        if own {
            self.float("blk.4.nextn.shared_head_norm.weight", &[HIDDEN], &mut rng);
            self.float("blk.4.nextn.embed_tokens.weight", &[VOCAB, HIDDEN], &mut rng);
            self.float("blk.4.nextn.shared_head_head.weight", &[VOCAB, HIDDEN], &mut rng);
        }
        self
    }

    /// Adds a block of a hybrid model.
    pub fn qwen35_block(&mut self, i: usize, attends: bool, rng: &mut Rng) {
        let (q, kv, ff) = (HEADS * HEAD_DIM, KV * HEAD_DIM, 2 * HIDDEN);
        let mixer: &[(&str, &[usize])] = if attends {
            &[
                ("attn_q.weight", &[2 * q, HIDDEN]),
                ("attn_k.weight", &[kv, HIDDEN]),
                ("attn_v.weight", &[kv, HIDDEN]),
                ("attn_output.weight", &[HIDDEN, q]),
                ("attn_q_norm.weight", &[HEAD_DIM]),
                ("attn_k_norm.weight", &[HEAD_DIM]),
            ]
        } else {
            &[
                ("attn_qkv.weight", &[40, HIDDEN]),
                ("attn_gate.weight", &[24, HIDDEN]),
                ("ssm_alpha.weight", &[6, HIDDEN]),
                ("ssm_beta.weight", &[6, HIDDEN]),
                ("ssm_conv1d.weight", &[40, 4]),
                ("ssm_a", &[6]),
                ("ssm_dt.bias", &[6]),
                ("ssm_norm.weight", &[4]),
                ("ssm_out.weight", &[HIDDEN, 24]),
            ]
        };
        let both: [(&str, &[usize]); 5] = [
            ("attn_norm.weight", &[HIDDEN]),
            ("post_attention_norm.weight", &[HIDDEN]),
            ("ffn_gate.weight", &[ff, HIDDEN]),
            ("ffn_up.weight", &[ff, HIDDEN]),
            ("ffn_down.weight", &[HIDDEN, ff]),
        ];
        for (name, shape) in mixer.iter().chain(&both) {
            self.float(&format!("blk.{i}.{name}"), shape, rng);
        }
    }
}

impl Hf {
    /// Adds a block for multi-token prediction.
    pub fn with_mtp(mut self) -> Self {
        let (mut rng, q, kv) = (Rng(29), HEADS * HEAD_DIM, KV * HEAD_DIM);
        let tensors: [(&str, &[usize]); 15] = [
            ("fc", &[HIDDEN, 2 * HIDDEN]),
            ("pre_fc_norm_embedding", &[HIDDEN]),
            ("pre_fc_norm_hidden", &[HIDDEN]),
            ("norm", &[HIDDEN]),
            ("layers.0.input_layernorm", &[HIDDEN]),
            ("layers.0.post_attention_layernorm", &[HIDDEN]),
            ("layers.0.self_attn.q_proj", &[2 * q, HIDDEN]),
            ("layers.0.self_attn.k_proj", &[kv, HIDDEN]),
            ("layers.0.self_attn.v_proj", &[kv, HIDDEN]),
            ("layers.0.self_attn.o_proj", &[HIDDEN, q]),
            ("layers.0.self_attn.q_norm", &[HEAD_DIM]),
            ("layers.0.self_attn.k_norm", &[HEAD_DIM]),
            ("layers.0.mlp.gate_proj", &[FF, HIDDEN]),
            ("layers.0.mlp.up_proj", &[FF, HIDDEN]),
            ("layers.0.mlp.down_proj", &[HIDDEN, FF]),
        ];
        for (name, shape) in tensors {
            let bytes = bf16_bytes(&rng.floats(shape.iter().product()));
            self.put(&format!("mtp.{name}.weight"), "BF16", shape, bytes);
        }
        self
    }

    /// A small hybrid model in bf16: three layers of linear attention, one of softmax attention. Wrapped,
    /// it is the text model of a model of several modalities.
    pub fn qwen35(wrapped: bool) -> Self {
        let mut rng = Rng(17);
        let text = json!({
            "model_type": "qwen3_5_text", "vocab_size": VOCAB, "hidden_size": HIDDEN,
            "intermediate_size": FF, "num_hidden_layers": 4, "num_attention_heads": HEADS,
            "num_key_value_heads": KV, "head_dim": HEAD_DIM, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-6, "hidden_act": "silu", "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 4, "linear_value_head_dim": 2, "linear_num_key_heads": 2,
            "linear_num_value_heads": 6, "tie_word_embeddings": false, "eos_token_id": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
                "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0], "mrope_interleaved": true},
        });
        let config = if wrapped {
            json!({"model_type": "qwen3_5", "text_config": text, "vision_config": {}})
        } else {
            text
        };
        let mut hf = Self { config, tensors: BTreeMap::new(), others: Vec::new() };
        let root = if wrapped { "model.language_model" } else { "model" };
        let mut put = |name: &str, shape: &[usize]| {
            let bytes = bf16_bytes(&rng.floats(shape.iter().product()));
            hf.put(name, "BF16", shape, bytes);
        };
        put("lm_head.weight", &[VOCAB, HIDDEN]);
        put(&format!("{root}.embed_tokens.weight"), &[VOCAB, HIDDEN]);
        put(&format!("{root}.norm.weight"), &[HIDDEN]);
        let (q, kv) = (HEADS * HEAD_DIM, KV * HEAD_DIM);
        for i in 0..4 {
            let mixer: &[(&str, &[usize])] = match i {
                3 => &[
                    ("self_attn.q_proj.weight", &[2 * q, HIDDEN]),
                    ("self_attn.k_proj.weight", &[kv, HIDDEN]),
                    ("self_attn.v_proj.weight", &[kv, HIDDEN]),
                    ("self_attn.o_proj.weight", &[HIDDEN, q]),
                    ("self_attn.q_norm.weight", &[HEAD_DIM]),
                    ("self_attn.k_norm.weight", &[HEAD_DIM]),
                ],
                _ => &[
                    ("linear_attn.in_proj_qkv.weight", &[28, HIDDEN]),
                    ("linear_attn.in_proj_z.weight", &[12, HIDDEN]),
                    ("linear_attn.in_proj_a.weight", &[6, HIDDEN]),
                    ("linear_attn.in_proj_b.weight", &[6, HIDDEN]),
                    ("linear_attn.conv1d.weight", &[28, 1, 4]),
                    ("linear_attn.A_log", &[6]),
                    ("linear_attn.dt_bias", &[6]),
                    ("linear_attn.norm.weight", &[2]),
                    ("linear_attn.out_proj.weight", &[HIDDEN, 12]),
                ],
            };
            let both: [(&str, &[usize]); 5] = [
                ("input_layernorm.weight", &[HIDDEN]),
                ("post_attention_layernorm.weight", &[HIDDEN]),
                ("mlp.gate_proj.weight", &[FF, HIDDEN]),
                ("mlp.up_proj.weight", &[FF, HIDDEN]),
                ("mlp.down_proj.weight", &[HIDDEN, FF]),
            ];
            for (name, shape) in mixer.iter().chain(&both) {
                put(&format!("{root}.layers.{i}.{name}"), shape);
            }
        }
        hf
    }
}
