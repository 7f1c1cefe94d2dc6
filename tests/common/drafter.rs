//! Files of small random drafters.

use super::{
    Gguf, Hf, Rng, bf16_bytes, f32_bytes, meta_bool, meta_f32, meta_ints, meta_text, meta_u32,
};
use serde_json::json;
use std::collections::BTreeMap;

/// Sizes of a drafter and of its model.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub vocab: usize,
    pub hidden: usize,
}

const FF: usize = 40;
const HEADS: usize = 4;
const KV: usize = 2;
const DIM: usize = 8;
const RANK: usize = 6;
pub const BLOCK: usize = 5;

/// A tensor of a layer: its names in GGUF and in directories, and its shape.
fn layer(hidden: usize) -> [(&'static str, &'static str, Vec<usize>); 11] {
    let (q, kv) = (HEADS * DIM, KV * DIM);
    [
        ("attn_norm", "input_layernorm", vec![hidden]),
        ("ffn_norm", "post_attention_layernorm", vec![hidden]),
        ("attn_q_norm", "self_attn.q_norm", vec![DIM]),
        ("attn_k_norm", "self_attn.k_norm", vec![DIM]),
        ("attn_q", "self_attn.q_proj", vec![q, hidden]),
        ("attn_k", "self_attn.k_proj", vec![kv, hidden]),
        ("attn_v", "self_attn.v_proj", vec![kv, hidden]),
        ("attn_output", "self_attn.o_proj", vec![hidden, q]),
        ("ffn_gate", "mlp.gate_proj", vec![FF, hidden]),
        ("ffn_up", "mlp.up_proj", vec![FF, hidden]),
        ("ffn_down", "mlp.down_proj", vec![hidden, FF]),
    ]
}

/// The heads of DSpark: names in GGUF, in old files and in directories, and shapes.
fn heads(s: Sizes) -> [(&'static str, &'static str, &'static str, Vec<usize>); 8] {
    [
        (
            "markov_w1.weight",
            "dspark.markov_head_a.weight",
            "markov_head.markov_w1.weight",
            vec![s.vocab, RANK],
        ),
        (
            "markov_w2.weight",
            "dspark.markov_head_b.weight",
            "markov_head.markov_w2.weight",
            vec![s.vocab, RANK],
        ),
        (
            "conf_proj.weight",
            "dspark.confidence_head.weight",
            "confidence_head.proj.weight",
            vec![1, s.hidden + RANK],
        ),
        ("conf_proj.bias", "dspark.confidence_head.bias", "confidence_head.proj.bias", vec![1]),
        (
            "log_snr_fc1.weight",
            "dspark.log_snr_fc1.weight",
            "log_snr_embed.fc1.weight",
            vec![16, 128],
        ),
        ("log_snr_fc1.bias", "dspark.log_snr_fc1.bias", "log_snr_embed.fc1.bias", vec![16]),
        (
            "log_snr_fc2.weight",
            "dspark.log_snr_fc2.weight",
            "log_snr_embed.fc2.weight",
            vec![s.hidden, 16],
        ),
        ("log_snr_fc2.bias", "dspark.log_snr_fc2.bias", "log_snr_embed.fc2.bias", vec![s.hidden]),
    ]
}

/// A GGUF file of the architecture `dflash`, or of the older `dspark`, for a model of which the states after
/// these layers are read. With `all`, it has everything that DSpark may have.
pub fn gguf(arch: &str, s: Sizes, taps: &[usize], all: bool) -> Gguf {
    let mut g = Gguf { version: 3, meta: Vec::new(), tensors: Vec::new() };
    let (mut rng, old) = (Rng(41), arch == "dspark");
    let own =
        |name: &str| if old { format!("{arch}.{arch}.{name}") } else { format!("{arch}.{name}") };
    g.set("general.architecture", meta_text(arch));
    for (key, v) in [
        ("embedding_length", s.hidden),
        ("feed_forward_length", FF),
        ("block_count", 2),
        ("context_length", 256),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV),
        ("attention.key_length", DIM),
        ("attention.value_length", DIM),
    ] {
        g.set(&format!("{arch}.{key}"), meta_u32(v as u32));
    }
    g.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), meta_f32(1e-6));
    g.set(&format!("{arch}.rope.freq_base"), meta_f32(1e6));
    g.set(&own("block_size"), meta_u32(BLOCK as u32));
    g.set("tokenizer.ggml.mask_token_id", meta_u32(1));
    // The newer files name the layers whose inputs these states are.
    let listed: Vec<i32> = taps.iter().map(|&tap| tap as i32 + i32::from(!old)).collect();
    g.set(&own("target_layers"), meta_ints(&listed));
    let (fc, norm) = if old {
        ("dspark.fc.weight", "dspark.hidden_norm.weight")
    } else {
        ("fc.weight", "enc.output_norm.weight")
    };
    g.float(fc, &[s.hidden, taps.len() * s.hidden], &mut rng);
    g.float(norm, &[s.hidden], &mut rng);
    g.float("output_norm.weight", &[s.hidden], &mut rng);
    for i in 0..2 {
        for (name, _, shape) in layer(s.hidden) {
            g.float(&format!("blk.{i}.{name}.weight"), &shape, &mut rng);
        }
    }
    if all {
        g.set(&own("has_confidence_head"), meta_bool(true));
        g.set(&own("log_snr_conditioning"), meta_bool(true));
        g.set(&own("min_log_snr"), meta_f32(-6.0));
        g.set(&own("max_log_snr"), meta_f32(9.0));
        for (new, first, _, shape) in heads(s) {
            g.float(if old { first } else { new }, &shape, &mut rng);
        }
    }
    g
}

/// A directory of a class, with or without the prefix `model.`.
pub fn hf(class: &str, s: Sizes, taps: &[usize], all: bool, prefix: bool) -> Hf {
    let config = json!({
        "architectures": [class], "model_type": "qwen3", "vocab_size": s.vocab,
        "hidden_size": s.hidden, "intermediate_size": FF, "num_hidden_layers": 2,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": DIM,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "rope_theta": 1e6, "block_size": BLOCK,
        "dflash_config": {"target_layer_ids": taps, "mask_token_id": 1},
    });
    let mut hf = Hf { config, tensors: BTreeMap::new(), others: Vec::new() };
    let mut rng = Rng(41);
    let mut put = |name: String, shape: &[usize], rng: &mut Rng| {
        let values = rng.floats(shape.iter().product());
        let name = if prefix { format!("model.{name}") } else { name };
        match shape.len() {
            1 => hf.put(&name, "F32", shape, f32_bytes(&values)),
            _ => hf.put(&name, "BF16", shape, bf16_bytes(&values)),
        }
    };
    put("fc.weight".into(), &[s.hidden, taps.len() * s.hidden], &mut rng);
    put("hidden_norm.weight".into(), &[s.hidden], &mut rng);
    put("norm.weight".into(), &[s.hidden], &mut rng);
    for i in 0..2 {
        for (_, name, shape) in layer(s.hidden) {
            put(format!("layers.{i}.{name}.weight"), &shape, &mut rng);
        }
    }
    if all {
        for (_, _, name, shape) in heads(s) {
            put(name.into(), &shape, &mut rng);
        }
        for (key, value) in [
            ("enable_confidence_head", json!(true)),
            ("log_snr_conditioning", json!(true)),
            ("min_log_snr", json!(-6.0)),
            ("max_log_snr", json!(9.0)),
        ] {
            hf = hf.set(key, value);
        }
    }
    hf
}
