//! Hybrid models (`qwen35`) from directories, GGUF and packed files: shapes, forms of the weights, and
//! what is ignored or refused.

use crate::fixtures::{
    Gguf, HEAD_DIM, HIDDEN, Hf, Rng, VOCAB, file, list, meta_bool, meta_f32, meta_text, meta_u32,
};
use serde_json::json;
use wrinklefree::format::{
    Architecture, Checkpoint, LinearAttention, LinearAttentionWeights, LoadError, Mixer, MixerKind,
    ValueOrder, load, write_packed,
};

const LINEAR: MixerKind = MixerKind::Linear;
const FULL: MixerKind = MixerKind::Attention;

fn linear(c: &Checkpoint, layer: usize) -> &LinearAttentionWeights {
    match &c.weights.layers[layer].mixer {
        Mixer::Linear(w) => w,
        Mixer::Attention(_) => panic!("layer {layer} attends"),
    }
}

fn bf16(hf: &Hf, name: &str) -> Vec<f32> {
    let of = |b: &[u8]| half::bf16::from_le_bytes([b[0], b[1]]).to_f32();
    hf.tensors[name].bytes.chunks(2).map(of).collect()
}

fn f32s(g: &mut Gguf, name: &str) -> Vec<f32> {
    let of = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
    g.tensor(name).bytes.chunks(4).map(of).collect()
}

/// The checkpoint, written as a packed file and read again.
fn packed(c: &Checkpoint) -> Checkpoint {
    let mut bytes = Vec::new();
    write_packed(c, None, &mut bytes).unwrap();
    let again = load(vec![file("model.wf.safetensors", bytes)]).unwrap();
    assert_eq!(again.spec, c.spec);
    // Debug prints every byte of every tensor.
    assert!(format!("{:?}", again.weights) == format!("{:?}", c.weights), "weights differ");
    again
}

#[track_caller]
fn refused(result: Result<Checkpoint, LoadError>, words: &[&str]) {
    let text = match result {
        Err(error) => error.to_string(),
        Ok(_) => panic!("this must not load"),
    };
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

#[test]
fn directories_flat_and_wrapped() {
    for (wrapped, root) in [(false, "model"), (true, "model.language_model")] {
        let mut hf = Hf::qwen35(wrapped);
        for name in ["mtp.fc.weight", "model.visual.blocks.0.attn.qkv.weight"] {
            hf.put(name, "BF16", &[1], vec![0, 0]);
        }
        let c = hf.load().unwrap();
        packed(&c);
        assert_eq!(c.spec.architecture, Architecture::Qwen35);
        assert_eq!(c.spec.mixers, [LINEAR, LINEAR, LINEAR, FULL]);
        assert_eq!((c.spec.rotary_dim(), c.spec.attention_gate), (HEAD_DIM / 2, true));
        let shape = LinearAttention {
            key_heads: 2,
            value_heads: 6,
            key_dim: 4,
            value_dim: 2,
            conv_kernel: 4,
            value_order: ValueOrder::Grouped,
            output_grouped: false,
        };
        assert_eq!(c.spec.linear_attention, Some(shape));
        assert_eq!((&c.generation.eos[..], c.weights.head.is_some()), (&[2][..], true));
        let stored = |name: &str| bf16(&hf, &format!("{root}.layers.1.{name}"));
        let plus_one = |name: &str| stored(name).iter().map(|w| 1.0 + w).collect::<Vec<f32>>();
        let (layer, w) = (&c.weights.layers[1], linear(&c, 1));
        assert_eq!(layer.mixer_norm, plus_one("input_layernorm.weight"));
        assert_eq!(layer.ffn_norm, plus_one("post_attention_layernorm.weight"));
        assert_eq!(
            w.norm,
            stored("linear_attn.norm.weight"),
            "the one norm that is no distance from 1"
        );
        assert_eq!(
            (&w.conv, &w.dt_bias),
            (&stored("linear_attn.conv1d.weight"), &stored("linear_attn.dt_bias"))
        );
        for (a, log) in w.a.iter().zip(stored("linear_attn.A_log")) {
            assert!((a + log.exp()).abs() < 1e-6, "−exp(A_log)");
        }
        assert_eq!((w.alpha.weight.rows(), w.beta.weight.rows(), w.z.weight.rows()), (6, 6, 12));
        let full = c.weights.layers[3].mixer.attention().unwrap();
        let q_norm = bf16(&hf, &format!("{root}.layers.3.self_attn.q_norm.weight"));
        assert_eq!(full.q_norm.as_ref().unwrap()[0], 1.0 + q_norm[0]);
    }
}

#[test]
fn tied_by_either_flag() {
    let head = "lm_head.weight";
    let flat = |tied| Hf::qwen35(false).set("tie_word_embeddings", json!(tied));
    assert!(flat(true).load().unwrap().weights.head.is_none());
    assert!(flat(false).load().unwrap().weights.head.is_some());
    for (outer, inner, stored, separate) in [
        (json!(true), json!(false), true, false),
        (json!(true), json!(null), false, false),
        (json!(null), json!(true), false, false),
        (json!(false), json!(true), false, false),
        (json!(false), json!(true), true, true),
        (json!(false), json!(false), true, true),
        (json!(null), json!(null), true, true),
        (json!(null), json!(null), false, false),
    ] {
        let mut hf = Hf::qwen35(true).set("tie_word_embeddings", outer.clone());
        hf.config["text_config"]["tie_word_embeddings"] = inner.clone();
        if !stored {
            hf.tensors.remove(head);
        }
        let c = hf.load().unwrap_or_else(|e| panic!("{outer} {inner}: {e}"));
        assert_eq!(c.weights.head.is_some(), separate, "{outer} {inner}, stored {stored}");
    }
    let mut lost = flat(false);
    lost.tensors.remove(head);
    refused(lost.load(), &["lm_head.weight"]);
}

#[test]
fn forms_of_the_configuration() {
    let mut hf = Hf::qwen35(false);
    let types = |names: [&str; 4]| json!(names.map(|n| format!("{n}_attention")));
    let mixers = |hf: &Hf| hf.load().map(|c| c.spec.mixers);
    hf.config["layer_types"] = types(["linear", "linear", "linear", "full"]);
    hf.config["full_attention_interval"] = json!(2);
    assert_eq!(mixers(&hf).unwrap(), [LINEAR, LINEAR, LINEAR, FULL], "the list wins");
    hf.config["layer_types"] = types(["linear", "linear", "linear", "sliding"]);
    refused(hf.load(), &["layer_types", "sliding_attention"]);
    hf.config["layer_types"] = json!(["full_attention"]);
    refused(hf.load(), &["4 layers", "found 1"]);
    hf.config["layer_types"] = json!(null);
    refused(hf.load(), &["layers.1.self_attn"]);
    hf.config["full_attention_interval"] = json!(0);
    refused(hf.load(), &["full_attention_interval"]);
    hf.config["full_attention_interval"] = json!(4);
    hf.config["rope_parameters"]["partial_rotary_factor"] = json!(null);
    assert_eq!(hf.load().unwrap().spec.rotary_dim(), HEAD_DIM / 4, "a quarter by default");
    hf.config["rope_parameters"]["partial_rotary_factor"] = json!(0.4);
    refused(hf.load(), &["RoPE over an even part"]);
    hf.config["rope_parameters"]["partial_rotary_factor"] = json!(1.0);
    assert_eq!(hf.load().unwrap().spec.rotary_dim, None);
    for (field, value, words) in [
        ("attn_output_gate", json!(false), "attn_output_gate"),
        ("linear_num_key_heads", json!(null), "linear_num_key_heads"),
        ("linear_num_key_heads", json!(4), "multiple of 4 value heads"),
        ("linear_num_key_heads", json!(0), "key head count"),
        ("linear_conv_kernel_dim", json!(9), "from 1 to 8"),
        ("linear_value_head_dim", json!(1 << 20), "width of values"),
        ("model_type", json!("qwen3_5_moe_text"), "qwen3_5_moe_text"),
    ] {
        refused(Hf::qwen35(false).set(field, value).load(), &[words]);
    }
    Hf::qwen35(false).set("model_type", json!("qwen3_5")).load().unwrap();
    let mut bare = Hf::qwen35(true);
    bare.config["text_config"] = json!(null);
    refused(bare.load(), &["text_config"]);
    let mut extra = Hf::qwen35(false);
    extra.put("model.layers.0.linear_attn.in_proj_qkv.bias", "BF16", &[28], vec![0; 56]);
    refused(extra.load(), &["in_proj_qkv.bias"]);
}

#[test]
fn gguf_shapes_and_forms() {
    let mut g = Gguf::qwen35();
    let c = g.load().unwrap();
    packed(&c);
    assert_eq!(c.spec.mixers, [LINEAR, LINEAR, LINEAR, FULL]);
    assert_eq!((c.spec.rotary_dim(), c.spec.vocab_size), (HEAD_DIM / 2, VOCAB));
    let shape = c.spec.linear_attention.as_ref().unwrap();
    assert_eq!((shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim), (2, 6, 4, 4));
    assert_eq!(shape.value_order, ValueOrder::Tiled);
    let w = linear(&c, 2);
    for (name, found) in [
        ("ssm_a", &w.a),
        ("ssm_dt.bias", &w.dt_bias),
        ("ssm_norm.weight", &w.norm),
        ("ssm_conv1d.weight", &w.conv),
        ("attn_norm.weight", &c.weights.layers[2].mixer_norm),
        ("post_attention_norm.weight", &c.weights.layers[2].ffn_norm),
    ] {
        assert_eq!(&f32s(&mut g, &format!("blk.2.{name}")), found, "{name} as it is stored");
    }
    assert_eq!(
        (c.generation.temperature, c.generation.top_p, c.generation.top_k),
        (Some(1.0), Some(0.95), Some(20))
    );
}

#[test]
fn gguf_layers_by_list_and_by_interval() {
    let layers = |flags: &[bool]| {
        let mut g = Gguf::qwen35();
        let bytes: Vec<u8> = flags.iter().map(|&f| f.into()).collect();
        g.set("qwen35.attention.recurrent_layers", (9, list(7, flags.len(), &bytes)));
        g.set("qwen35.full_attention_interval", meta_u32(2));
        g.load()
    };
    assert_eq!(
        layers(&[true, true, true, false]).unwrap().spec.mixers,
        [LINEAR, LINEAR, LINEAR, FULL]
    );
    refused(layers(&[true, true, false]), &["qwen35.attention.recurrent_layers", "4 layers"]);
    refused(layers(&[true, true, false, false]), &["blk.2.attn_qkv.weight", "[48, 16]"]);
    let key = |key: &str, value: (u32, Vec<u8>)| {
        let mut g = Gguf::qwen35();
        g.set(&format!("qwen35.{key}"), value);
        g.load()
    };
    key("full_attention_interval", meta_u32(4)).unwrap();
    refused(key("full_attention_interval", meta_u32(0)), &["qwen35.full_attention_interval"]);
    refused(key("attention.recurrent_layers", meta_bool(true)), &["recurrent_layers", "list"]);
    refused(key("ssm.inner_size", meta_u32(25)), &["qwen35.ssm.inner_size", "25"]);
    refused(key("ssm.time_step_rank", meta_u32(0)), &["qwen35.ssm.inner_size"]);
    refused(key("ssm.group_count", meta_u32(4)), &["multiple of 4 value heads"]);
    refused(key("ssm.conv_kernel", meta_u32(16)), &["from 1 to 8"]);
    refused(key("ssm.state_size", meta_u32(8)), &["blk.0.attn_qkv.weight"]);
    refused(key("rope.dimension_count", meta_u32(16)), &["RoPE over an even part of 8"]);
    refused(key("rope.dimension_count", meta_u32(3)), &["RoPE over an even part of 8"]);
    refused(key("expert_count", meta_u32(8)), &["qwen35.expert_count"]);
    let mut without = Gguf::qwen35();
    without.meta.retain(|(k, _)| k != "qwen35.ssm.group_count");
    refused(without.load(), &["qwen35.ssm.group_count"]);
    let mut moe = Gguf::qwen35();
    moe.set("general.architecture", meta_text("qwen35moe"));
    refused(moe.load(), &["qwen35moe", "qwen35"]);
}

#[test]
fn drafting_blocks_are_no_layers() {
    let mut g = Gguf::qwen35();
    let plain = g.load().unwrap();
    g.set("qwen35.block_count", meta_u32(6));
    g.set("qwen35.nextn_predict_layers", meta_u32(2));
    for block in [4, 5] {
        g.qwen35_block(block, true, &mut Rng(3));
        g.float(&format!("blk.{block}.nextn.eh_proj.weight"), &[HIDDEN, 2 * HIDDEN], &mut Rng(5));
    }
    let c = g.load().unwrap();
    assert_eq!(c.spec, plain.spec);
    assert!(format!("{:?}", c.weights) == format!("{:?}", plain.weights));
    g.set("qwen35.nextn_predict_layers", meta_u32(1));
    refused(g.load(), &["blk.4"]);
}

#[test]
fn files_state_sampling() {
    let mut g = Gguf::qwen35();
    g.set("general.sampling.temp", meta_f32(0.5));
    g.set("general.sampling.top_p", meta_f32(0.75));
    g.set("general.sampling.top_k", (5, (-1i32).to_le_bytes().into()));
    g.set("general.sampling.penalty_repeat", meta_f32(1.25));
    let found = g.load().unwrap().generation;
    assert_eq!((found.temperature, found.top_p, found.top_k), (Some(0.5), Some(0.75), Some(0)));
    assert_eq!(found.repetition_penalty, Some(1.25));
}
