//! Loading every family, style and container: the contents of the files are in the checkpoint.

use crate::fixtures::{
    FF, Gguf, HEAD_DIM, HEADS, HIDDEN, Hf, LAYERS, Raw, Rng, Style, VOCAB, bf16_bytes, f32_bytes,
    file,
};
use serde_json::json;
use std::collections::BTreeMap;
use wrinklefree::format::{
    Activation, Activations, Architecture, Checkpoint, HeadType, LayerWeights, Linear, RopeScaling,
    Vocabulary, YarnScaling, codec, load, write_packed,
};
use wrinklefree::matrix::{Int8Matrix, Matrix, Scales, SplitMatrix};
use wrinklefree::ternary::Layout;

const FAMILIES: [(&str, Architecture); 4] = [
    ("bitnet", Architecture::BitNet),
    ("llama", Architecture::Llama),
    ("qwen2", Architecture::Qwen2),
    ("qwen3", Architecture::Qwen3),
];

fn q(layer: &LayerWeights) -> &Linear {
    &layer.mixer.attention().expect("attention").q
}

fn scale(l: &Linear) -> f32 {
    match &l.weight {
        Matrix::Ternary(m) => match m.scales() {
            Scales::Tensor(s) => *s,
            Scales::Groups(_) => panic!("group scales"),
        },
        other => panic!("{}", other.kind()),
    }
}

#[track_caller]
fn same(a: &Checkpoint, b: &Checkpoint) {
    assert_eq!(a.spec, b.spec);
    assert_eq!(a.generation, b.generation);
    assert_eq!(a.dlm, b.dlm);
    assert_eq!(a.text.chat_template, b.text.chat_template);
    assert_eq!(a.text.special, b.text.special);
    // Debug prints every byte of every tensor.
    assert!(format!("{:?}", a.weights) == format!("{:?}", b.weights), "weights differ");
}

fn through_packed(c: &Checkpoint) -> (Checkpoint, Vec<u8>) {
    let tokenizer = match &c.text.vocabulary {
        Some(Vocabulary::Json(text)) => Some(&text[..]),
        _ => None,
    };
    let mut out = Vec::new();
    write_packed(c, tokenizer, &mut out).unwrap();
    (load(vec![file("model.packed", out.clone())]).unwrap_or_else(|e| panic!("{e}")), out)
}

#[test]
fn families_and_styles_load_and_survive_packing() {
    for (name, architecture) in FAMILIES {
        for style in [Style::Packed, Style::Master, Style::Float] {
            let c = Hf::new(name, style).load().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(c.spec.architecture, architecture);
            assert_eq!(c.weights.layers.len(), LAYERS);
            let layer = &c.weights.layers[1];
            // BitNet is ternary, whether or not its configuration says so.
            let float = style == Style::Float && name != "bitnet";
            let kind = if float { "bf16" } else { "ternary" };
            assert_eq!((q(layer).weight.kind().as_str(), layer.down.weight.cols()), (kind, FF));
            assert_eq!(q(layer).bias.is_some(), name == "qwen2");
            assert_eq!(layer.mixer.output().bias, None);
            assert_eq!(layer.ffn_sub_norm.is_some(), name == "bitnet");
            let k_norm = &layer.mixer.attention().unwrap().k_norm;
            assert_eq!(k_norm.as_ref().map(Vec::len), (name == "qwen3").then_some(HEAD_DIM));
            assert_eq!(c.weights.embed.kind(), "bf16");
            assert_eq!(c.weights.head.as_ref().unwrap().weight.kind(), "bf16");
            assert_eq!((c.generation.bos, &c.generation.eos[..]), (Some(1), &[2, 3][..]));
            same(&c, &through_packed(&c).0);
        }
    }
}

#[test]
fn sub_norms_stand_in_every_family() {
    for name in ["llama", "qwen2", "qwen3"] {
        let mut hf = Hf::new(name, Style::Packed);
        for layer in 0..LAYERS {
            for (norm, len) in
                [("self_attn.attn_sub_norm", HEADS * HEAD_DIM), ("mlp.ffn_sub_norm", FF)]
            {
                let values = Rng(7 + layer as u64).floats(len);
                let name = format!("model.layers.{layer}.{norm}.weight");
                hf.put(&name, "F32", &[len], f32_bytes(&values));
            }
        }
        let stated = json!({"stages": ["distill", "diffuse"], "activation_sparsity": "topk:0.7"});
        hf = hf.set("wrinklefree_training", stated);
        let c = hf.load().unwrap_or_else(|e| panic!("{name}: {e}"));
        let layer = &c.weights.layers[1];
        let attention = layer.mixer.attention().unwrap();
        assert_eq!(layer.ffn_sub_norm.as_ref().map(Vec::len), Some(FF), "{name}");
        assert_eq!(attention.sub_norm.as_ref().map(Vec::len), Some(HEADS * HEAD_DIM));
        assert_eq!(attention.q_norm.is_some(), name == "qwen3");
        let training = c.training.as_ref().unwrap();
        assert_eq!(training.stages, ["distill", "diffuse"]);
        assert_eq!(training.activation_sparsity.as_deref(), Some("topk:0.7"));
        let packed = through_packed(&c).0;
        assert_eq!(packed.training, c.training);
        same(&c, &packed);

        let lost = "model.layers.1.mlp.ffn_sub_norm.weight";
        hf.tensors.remove(lost);
        assert!(hf.load().unwrap_err().to_string().contains(lost), "all layers have them, or none");
    }
}

#[test]
fn blocks_are_stated_in_every_family() {
    for (name, _) in FAMILIES {
        let with = |fields: &[(&str, u32)]| {
            let hf = Hf::new(name, Style::Packed);
            let hf = fields.iter().fold(hf, |hf, (key, value)| hf.set(key, json!(value)));
            hf.load().unwrap_or_else(|e| panic!("{name}: {e}")).dlm
        };
        assert_eq!(with(&[("block_size", 8)]), None, "without a mask it may be a context length");
        let dlm = with(&[("block_size", 8), ("mask_token_id", 4)]).unwrap();
        assert_eq!((dlm.bd_size, dlm.mask_token_id), (8, Some(4)), "{name}");
        assert_eq!((dlm.logit_shift, dlm.logit_shift_assumed), (1, true));
        let dlm = with(&[("block_size", 8), ("mask_token_id", 4), ("logit_shift", 0)]).unwrap();
        assert_eq!((dlm.logit_shift, dlm.logit_shift_assumed), (0, false));
    }
}

#[test]
fn packed_scales_multiply_or_divide() {
    let mut hf = Hf::new("bitnet", Style::Packed);
    let name = "model.layers.0.self_attn.q_proj.weight_scale";
    hf.put(name, "BF16", &[1], bf16_bytes(&[4.0]));
    for (class, want) in [(None, 0.25), (Some("bitlinear"), 0.25), (Some("autobitlinear"), 4.0)] {
        hf.config["quantization_config"] = json!({"quant_method": "bitnet", "linear_class": class});
        let c = hf.load().unwrap();
        assert_eq!(scale(q(&c.weights.layers[0])), want, "{class:?}");
        assert_eq!(q(&c.weights.layers[0]).activations, Activations::Int8);
    }
    // Encoding gives the same bytes.
    let c = hf.load().unwrap();
    let Matrix::Ternary(m) = &q(&c.weights.layers[0]).weight else { panic!("ternary") };
    let raw = &hf.tensors["model.layers.0.self_attn.q_proj.weight"];
    assert_eq!(codec::encode_hf_packed(m).unwrap(), raw.bytes);
}

#[test]
fn modules_may_be_left_in_floats() {
    let quant = json!({"quant_method": "bitnet", "modules_to_not_convert": ["lm_head", "up_proj", "model.layers.1"]});
    let c = Hf::new("llama", Style::Master).set("quantization_config", quant).load().unwrap();
    let kinds = |i: usize| {
        let l = &c.weights.layers[i];
        [q(l), &l.gate, &l.up].map(|l| l.weight.kind())
    };
    assert_eq!(kinds(0), ["ternary", "ternary", "bf16"]);
    assert_eq!(kinds(1), ["bf16", "bf16", "bf16"]);
}

#[test]
fn configuration_forms() {
    let rope = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
    let old = Hf::new("llama", Style::Packed).set("rope_scaling", rope.clone()).load().unwrap();
    let mut new = rope;
    new["rope_theta"] = json!(10000.0);
    let new =
        Hf::new("llama", Style::Packed).set("rope_parameters", new).set("rope_theta", json!(null));
    let new = new.load().unwrap();
    assert_eq!(old.spec, new.spec);
    let Some(RopeScaling::Llama3(scaling)) = &old.spec.rope.scaling else { panic!("llama3") };
    assert_eq!(scaling.original_context, 8192);
    let yarn = json!({"type": "yarn", "factor": 4.0});
    let yarn = Hf::new("llama", Style::Packed).set("rope_scaling", yarn).load().unwrap().spec;
    assert_eq!(yarn.rope.scaling, Some(RopeScaling::Yarn(YarnScaling::new(4.0, 64))));
    assert_eq!((yarn.original_context(), yarn.context_length), (64, 256), "stretched");
    let given = json!({"rope_type": "yarn", "original_max_position_embeddings": 16,
        "attention_factor": 1.5, "truncate": false});
    let given = Hf::new("llama", Style::Packed).set("rope_scaling", given).load().unwrap().spec;
    let want = YarnScaling { attention_factor: 1.5, truncate: false, ..YarnScaling::new(4.0, 16) };
    assert_eq!(
        given.rope.scaling,
        Some(RopeScaling::Yarn(want)),
        "the factor is the lengths' ratio"
    );
    assert_eq!(given.context_length, 64);
    let linear = json!({"type": "linear", "factor": 2.0});
    let linear = Hf::new("llama", Style::Packed).set("rope_scaling", linear).load().unwrap().spec;
    assert_eq!((linear.rope.scaling, linear.context_length), (Some(RopeScaling::Linear(2.0)), 64));
    let plain = Hf::new("qwen2", Style::Float).set("rope_scaling", json!({"rope_type": "default"}));
    assert_eq!(plain.load().unwrap().spec.rope.scaling, None);
    let windowed = Hf::new("qwen2", Style::Float)
        .set("use_sliding_window", json!(false))
        .set("sliding_window", json!(4096));
    windowed.load().unwrap();
    Hf::new("qwen3", Style::Float).set("sliding_window", json!(4096)).load().unwrap();
    let derived = Hf::new("llama", Style::Packed).set("head_dim", json!(null)).load().unwrap();
    assert_eq!(derived.spec.head_dim, HEAD_DIM);
    let fast = Hf::new("qwen2", Style::Float).set("model_type", json!("Fast_dLLM_Qwen"));
    let fast = fast.set("bd_size", json!(8)).set("mask_token_id", json!(4)).load().unwrap();
    let dlm = fast.dlm.unwrap();
    assert_eq!((dlm.bd_size, dlm.mask_token_id, dlm.logit_shift), (8, Some(4), 1));
    let sdar = Hf::new("qwen3", Style::Float).set("model_type", json!("sdar"));
    let sdar = sdar.set("block_size", json!(4)).load().unwrap();
    assert_eq!(sdar.dlm.unwrap().logit_shift, 0);
}

#[test]
fn tied_heads() {
    let tied = Hf::new("bitnet", Style::Packed).set("tie_word_embeddings", json!(true));
    assert!(tied.load().unwrap().weights.head.is_none());
    let mut silent = tied.set("tie_word_embeddings", json!(null));
    assert!(silent.load().unwrap().weights.head.is_some());
    silent.tensors.remove("lm_head.weight");
    let c = silent.load().unwrap();
    assert!(c.weights.head.is_none());
    same(&c, &through_packed(&c).0);
}

#[test]
fn text_files() {
    let config = r#"{"bos_token": "<b>", "eos_token": {"content": "<e>"}, "unk_token": null,
        "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}"#;
    let hf = Hf::new("bitnet", Style::Packed)
        .with("tokenizer_config.json", config)
        .with("tokenizer.json", "{}")
        .with("generation_config.json", r#"{"eos_token_id": 9, "temperature": 0.5, "top_k": 7}"#)
        .with(
            "dlm_config.json",
            r#"{"bd_size": 4, "mask_token_id": 0, "clean_attention": "causal"}"#,
        );
    let c = hf.load().unwrap();
    assert_eq!(c.text.chat_template.as_deref(), Some("D"));
    assert_eq!(c.text.tool_template.as_deref(), Some("T"));
    assert_eq!(
        (&c.text.special["bos_token"][..], &c.text.special["eos_token"][..]),
        ("<b>", "<e>")
    );
    assert_eq!(c.text.special.len(), 2);
    assert_eq!(
        (c.generation.bos, &c.generation.eos[..], c.generation.top_k),
        (Some(1), &[9][..], Some(7))
    );
    let dlm = c.dlm.as_ref().unwrap();
    assert_eq!((dlm.bd_size, dlm.clean_attention.as_str(), dlm.logit_shift), (4, "causal", 1));
    let (again, bytes) = through_packed(&c);
    same(&c, &again);
    assert!(matches!(&again.text.vocabulary, Some(Vocabulary::Json(t)) if &t[..] == b"{}"));
    let jinja = hf.with("chat_template.jinja", "J").load().unwrap();
    assert_eq!(jinja.text.chat_template.as_deref(), Some("J"));
    // Any safetensors reader can open a packed file.
    let parsed = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(parsed.tensor("layers.0.q").unwrap().shape(), [1, 1, 64]);
}

#[test]
fn sampling_defaults_are_read_as_by_transformers() {
    for (json, temperature, top_k) in [
        (r#"{"temperature": 0.6, "top_k": -1}"#, None, Some(0)),
        (r#"{"do_sample": false, "temperature": 5.0}"#, Some(0.0), None),
        (r#"{"do_sample": true}"#, Some(1.0), None),
        (r#"{"do_sample": true, "temperature": 0.6, "top_k": 50}"#, Some(0.6), Some(50)),
    ] {
        let c = Hf::new("bitnet", Style::Packed).with("generation_config.json", json).load();
        let g = c.unwrap().generation;
        assert_eq!((g.temperature, g.top_k), (temperature, top_k), "{json}");
    }
}

#[test]
fn the_tight_layout_survives_packing_and_takes_a_sixth_less() {
    let plain = Hf::new("bitnet", Style::Packed).load().unwrap();
    let mut tight = plain.clone();
    tight.weights.set_layout(Layout::Tight);
    let (mut loaded, _) = through_packed(&tight);
    same(&loaded, &tight);
    let layer = &loaded.weights.layers[0];
    assert_eq!(layer.down.weight.kind(), "ternary/tight");
    assert_eq!(layer.down.weight.bytes(), HIDDEN.div_ceil(16) * FF.div_ceil(12) * 40);
    loaded.weights.set_layout(Layout::TwoBit);
    same(&loaded, &plain);
}

#[test]
fn groups_survive_packing_in_the_tight_layout() {
    let plain = Gguf::q2().load().unwrap();
    let mut tight = plain.clone();
    tight.weights.set_layout(Layout::Tight);
    let (mut loaded, bytes) = through_packed(&tight);
    same(&loaded, &tight);
    assert_eq!(loaded.weights.layers[0].down.weight.kind(), "ternary/tight/g64");
    // Programs that do not know such matrices refuse the version.
    assert!(String::from_utf8_lossy(&bytes[..4096]).contains(r#""version":"5""#));
    loaded.weights.set_layout(Layout::TwoBit);
    same(&loaded, &plain);
}

/// The version in the metadata of a packed file.
fn version(bytes: &[u8]) -> char {
    let head = String::from_utf8_lossy(&bytes[..4096]);
    let (_, rest) = head.split_once(r#""version":""#).expect("a version");
    rest.chars().next().unwrap()
}

#[test]
fn signs_take_one_bit_in_memory_and_survive_packing() {
    let gguf = Gguf::model("qwen3", 256, 41, |rng, rows, cols| {
        crate::fixtures::random_blocks(&codec::Q1_0, rows * cols, rng, None)
    });
    let single = gguf.load().unwrap();
    let down = |c: &Checkpoint| c.weights.layers[0].down.weight.kind();
    assert_eq!(down(&single), "ternary/one-bit/g128");
    let (mut loaded, bytes) = through_packed(&single);
    same(&loaded, &single);
    // Programs that do not know such matrices refuse the version.
    assert_eq!(version(&bytes), '7');

    let mut plain = single.clone();
    plain.weights.set_layout(Layout::TwoBit);
    assert_eq!(down(&plain), "ternary/g128");
    // Older programs read a file in two bits.
    let (mut again, bytes) = through_packed(&plain);
    assert_eq!(version(&bytes), '2');
    loaded.weights.set_layout(Layout::TwoBit);
    same(&loaded, &plain);
    again.weights.set_layout(Layout::Tight);
    assert_eq!(down(&again), "ternary/tight/g128");
    again.weights.set_layout(Layout::OneBit);
    same(&again, &single);
}

#[test]
fn planes_survive_packing() {
    let mut c = Hf::new("bitnet", Style::Packed).load().unwrap();
    let head = crate::fixtures::six_bits(VOCAB, HIDDEN);
    let Matrix::Split(six) = &head else { panic!("planes") };
    // Eight bits in planes, with a scale for each row.
    let eight = Int8Matrix::pack(FF, HIDDEN, HIDDEN, |row, values, scales| {
        (0..).zip(values).for_each(|(column, v)| *v = (row * 31 + column * 17) as i8);
        scales.fill(row as f32);
    });
    let four = SplitMatrix::pack_four(
        (FF, HIDDEN, 16),
        |row, out| (-8..).zip(out).for_each(|(v, out)| *out = v ^ (row % 2) as i8),
        |row, out| out.fill(row as f32),
    );
    let layer = &mut c.weights.layers[0];
    layer.gate.weight = Matrix::Split(SplitMatrix::new(&eight.unwrap()));
    layer.up.weight = Matrix::Split(four.unwrap());
    let kinds = [&layer.gate, &layer.up].map(|l| l.weight.kind());
    assert_eq!((kinds, head.kind()), (["int8/4+4".into(), "int4".into()], "int6".into()));
    assert_eq!(six.parts().factors.len(), VOCAB.div_ceil(16) * 64);
    c.weights.head = Some(Linear::new(head, None));
    same(&c, &through_packed(&c).0);
}

#[test]
fn packed_files_are_views_on_cache_lines() {
    let c = Gguf::q2().load().unwrap();
    let mut out = Vec::new();
    write_packed(&c, None, &mut out).unwrap();
    let mut aligned = wrinklefree::mem::AlignedVec::<u8>::zeroed(out.len());
    aligned.copy_from_slice(&out);
    let bytes = aligned.into_bytes();
    let inside = bytes.as_ptr_range();
    let c = load(vec![wrinklefree::format::File { name: "m".into(), bytes: bytes.clone().into() }])
        .unwrap();
    let mut last = inside.start;
    for layer in &c.weights.layers {
        for l in layer.linears() {
            let Matrix::Ternary(m) = &l.weight else { panic!("ternary") };
            let at = m.codes().as_ptr();
            assert!(inside.contains(&at) && at > last, "a view, in the order of the forward pass");
            assert!((at as usize).is_multiple_of(64));
            let Scales::Groups(g) = m.scales() else { panic!("groups") };
            assert!(
                inside.contains(&g.bytes().as_ptr())
                    && (g.bytes().as_ptr() as usize).is_multiple_of(64)
            );
            last = at;
        }
    }
}

#[test]
fn shards_are_found_by_their_index() {
    let hf = Hf::new("qwen3", Style::Float);
    let (mut one, mut two, mut map) = (BTreeMap::new(), BTreeMap::new(), serde_json::Map::new());
    for (i, (name, raw)) in hf.tensors.iter().enumerate() {
        let (part, shard) = if i % 2 == 0 { ("1", &mut one) } else { ("2", &mut two) };
        shard.insert(name.clone(), Raw { ..raw.clone() });
        map.insert(name.clone(), format!("part{part}.safetensors").into());
    }
    let files = [
        hf.files().remove(0),
        file("part1.safetensors", crate::fixtures::safetensors(&one)),
        file("part2.safetensors", crate::fixtures::safetensors(&two)),
        file("model.safetensors.index.json", json!({"weight_map": map}).to_string()),
    ];
    same(&load(files.to_vec()).unwrap(), &hf.load().unwrap());
    let error = load(files[..2].to_vec()).unwrap_err();
    assert_eq!(error.code(), "missing");
}

#[test]
fn heads_change_precision() {
    let untied = Hf::new("bitnet", Style::Packed).load().unwrap();
    let mut row = [0f32; HIDDEN];
    let mut converted = [0f32; HIDDEN];
    for (head, kind, tolerance) in [(HeadType::F16, "f16", 1e-3), (HeadType::Q8, "int8", 1e-2)] {
        let c = untied.clone().with_head(head).unwrap();
        assert_eq!(c.weights.embed, untied.weights.embed);
        let new = c.weights.head.as_ref().unwrap();
        assert_eq!(new.weight.kind(), kind);
        for r in 0..VOCAB {
            untied.weights.head.as_ref().unwrap().weight.row_f32(r, &mut row);
            new.weight.row_f32(r, &mut converted);
            assert!(row.iter().zip(&converted).all(|(a, b)| (a - b).abs() < tolerance));
        }
        same(&c, &through_packed(&c).0);
        let mut tied = untied.clone();
        tied.weights.head = None;
        assert_eq!(tied.with_head(head).unwrap().weights.embed.kind(), kind);
    }
    // Heads of GGUF files have a scale per 16 columns, which must become one per row.
    let grouped = Int8Matrix::pack(VOCAB, 32, 16, |_, values, scales| {
        values.iter_mut().zip(-16..).for_each(|(value, x)| *value = x);
        scales.copy_from_slice(&[1.0, 2.0]);
    });
    let mut c = untied.clone();
    c.weights.head.as_mut().unwrap().weight = Matrix::Int8(grouped.unwrap());
    let c = c.with_head(HeadType::Q8).unwrap();
    let Matrix::Int8(head) = &c.weights.head.as_ref().unwrap().weight else { panic!("int8") };
    assert_eq!(head.view().groups(), 1);
    let mut row = [0f32; 32];
    head.row_f32(3, &mut row);
    for (i, w) in row.iter().enumerate() {
        let before = (i as f32 - 16.0) * (1 + i / 16) as f32;
        assert!((w - before).abs() <= 30.0 / 254.0 + 1e-3, "{i}: {w}, not {before}");
    }

    let mut hf = Hf::new("bitnet", Style::Packed);
    hf.put("lm_head.weight", "F32", &[VOCAB, HIDDEN], f32_bytes(&[1e6; VOCAB * HIDDEN]));
    let error = hf.load().unwrap().with_head(HeadType::F16).unwrap_err();
    assert!(error.to_string().contains("1000000"), "{error}");
}

#[test]
fn gguf_families() {
    let encode = |rng: &mut Rng, rows, cols| {
        codec::PTQ1_0.encode(&rng.ternary(rows, cols, Some(128))).unwrap()
    };
    for (arch, family, activation) in [
        ("bitnet", Architecture::BitNet, Activation::Silu),
        ("bitnet-b1.58", Architecture::BitNet, Activation::Relu2),
        ("bitnet-25", Architecture::BitNet, Activation::Relu2),
        ("llama", Architecture::Llama, Activation::Silu),
        ("qwen2", Architecture::Qwen2, Activation::Silu),
        ("qwen3", Architecture::Qwen3, Activation::Silu),
        ("hunyuan-dense", Architecture::HunyuanDense, Activation::Silu),
        ("minicpm", Architecture::MiniCpm, Activation::Silu),
    ] {
        let mut g = Gguf::model(arch, 128, 143, encode);
        g.float("blk.0.attn_q.bias", &[128], &mut Rng(3));
        let c = g.load().unwrap_or_else(|e| panic!("{arch}: {e}"));
        assert_eq!((c.spec.architecture, c.spec.activation), (family, activation), "{arch}");
        assert_eq!(c.weights.layers[0].up.weight.kind(), "ternary/g128");
        assert_eq!(c.weights.layers[0].up.activations, Activations::Int16);
        let stored = &g.tensor("blk.0.attn_q.bias").bytes;
        let second = f32::from_le_bytes(stored[4..8].try_into().unwrap());
        let found = q(&c.weights.layers[0]).bias.as_ref().unwrap();
        // Converters interleave rows in some families: there it is half a head further down.
        assert_eq!(
            found[if ["llama", "minicpm"].contains(&arch) { 32 } else { 1 }],
            second,
            "{arch}"
        );
        same(&c, &through_packed(&c).0);
    }
}

#[test]
fn the_size_decides_between_formats_of_one_id() {
    let model = |kind: u32, t: codec::TernaryBlockFormat, hidden| {
        Gguf::model("qwen3", hidden, kind, |rng, rows, cols| {
            t.encode(&rng.ternary(rows, cols, Some(t.weights))).unwrap()
        })
    };
    for (kind, t, want) in [
        (42, codec::Q2_0, "ternary/g64"),
        (42, codec::PQ2_0, "ternary/g128"),
        (142, codec::PQ2_0, "ternary/g128"),
    ] {
        let c = model(kind, t, 256).load().unwrap_or_else(|e| panic!("{want}: {e}"));
        assert_eq!(c.weights.layers[1].down.weight.kind(), want);
    }
    let i2s = Gguf::model("bitnet-b1.58", 128, 36, |rng, rows, cols| {
        codec::encode_i2s(&rng.ternary(rows, cols, None)).unwrap()
    });
    let c = i2s.load().unwrap();
    assert_eq!(q(&c.weights.layers[0]).weight.kind(), "ternary");
    // The size of IQ4_NL_4_4, which had the same id in the past.
    let other = Gguf::model("llama", 128, 36, |_, rows, cols| vec![0; rows * cols / 32 * 18]);
    let error = other.load().unwrap_err().to_string();
    assert!(error.contains("IQ4_NL_4_4") && error.contains("I2_S"), "{error}");
    // Readers of I2_S disagree on this code.
    let third = Gguf::model("llama", 128, 36, |_, rows, cols| vec![0xff; rows * cols / 4 + 32]);
    assert!(third.load().unwrap_err().to_string().contains("code 3"));
}

#[test]
fn factors_beside_ternary_matrices_are_applied() {
    let mut g = Gguf::model("bitnet", 128, 36, |rng, rows, cols| {
        codec::encode_i2s(&rng.ternary(rows, cols, None)).unwrap()
    });
    let before = scale(&g.load().unwrap().weights.layers[0].up);
    g.tensors.push(crate::fixtures::GgufTensor {
        name: "blk.0.ffn_up.scale".into(),
        shape: vec![1],
        kind: Gguf::F32,
        bytes: f32_bytes(&[2.0]),
    });
    assert_eq!(scale(&g.load().unwrap().weights.layers[0].up), 2.0 * before);
}

#[test]
fn bitnet_files_that_were_not_ternarized_are_refused() {
    let model = |group| {
        Gguf::model("bitnet-b1.58", 256, 35, move |rng, rows, cols| {
            codec::TQ2_0.encode(&rng.ternary(rows, cols, group)).unwrap()
        })
    };
    model(None).load().unwrap();
    let error = model(Some(256)).load().unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_q.weight") && error.contains("ternarized"), "{error}");
}
