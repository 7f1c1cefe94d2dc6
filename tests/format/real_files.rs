//! Oddities of files that people have: the right values, or a refusal that names what is wrong.

use crate::fixtures::{
    Gguf, GgufTensor, HIDDEN, Hf, Rng, Style, f32_bytes, file, list, meta_f32, meta_ints, meta_text,
};
use serde_json::{Value, json};
use wrinklefree::format::{
    Activation, Architecture, Checkpoint, File, LoadError, RopeScaling, Vocabulary, codec, load,
};
use wrinklefree::model::Model;
use wrinklefree::text::Tokenizer;

/// Everything of a checkpoint that depends on its weights and text.
fn contents(c: &Checkpoint) -> String {
    format!("{:?} {:?} {:?} {:?}", c.spec, c.weights, c.text, c.generation)
}

#[track_caller]
fn refused(files: Vec<File>, parts: &[&str]) {
    error_of(load(files), parts);
}

#[track_caller]
fn error_of(result: Result<Checkpoint, LoadError>, parts: &[&str]) {
    let error = result.map(|_| ()).expect_err("is refused").to_string();
    for part in parts {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

/// A model in parts: the first has the metadata, and tensors are dealt out.
fn split(model: &Gguf, count: usize) -> Vec<File> {
    (0..count)
        .map(|number| {
            let mut part = Gguf { version: 3, meta: Vec::new(), tensors: Vec::new() };
            if number == 0 {
                part.meta = model.meta.clone();
            }
            let tensors = model.tensors.iter().enumerate();
            part.tensors =
                tensors.filter(|(i, _)| i % count == number).map(|(_, t)| t.clone()).collect();
            part.set("split.no", (2, (number as u16).to_le_bytes().into()));
            part.set("split.count", (2, (count as u16).to_le_bytes().into()));
            part.set("split.tensors.count", (5, (model.tensors.len() as i32).to_le_bytes().into()));
            file(&format!("m-{:05}-of-{count:05}.gguf", number + 1), part.bytes())
        })
        .collect()
}

/// A vision encoder as it lies next to models.
fn mmproj() -> File {
    let mut g = Gguf { version: 3, meta: Vec::new(), tensors: Vec::new() };
    g.set("general.architecture", meta_text("clip"));
    g.float("v.patch_embd.weight", &[4, 4], &mut Rng(1));
    file("mmproj-f16.gguf", g.bytes())
}

#[test]
fn split_files_are_one_model_in_any_order() {
    let model = Gguf::q2();
    let want = contents(&model.load().unwrap());
    let mut parts = split(&model, 3);
    assert_eq!(contents(&load(parts.clone()).unwrap()), want);
    parts.reverse();
    parts.insert(1, mmproj());
    assert_eq!(contents(&load(parts.clone()).unwrap()), want, "next to a vision encoder");
    parts.remove(0);
    refused(parts.clone(), &["m-00001-of-00003.gguf", "part 3 of 3", "no such file"]);
    parts.truncate(2);
    refused(parts, &["m-00002-of-00003.gguf", "part 1 of 3"]);
    let mut twice = split(&model, 2);
    twice.push(twice[1].clone());
    refused(twice, &["part 3 of 2"].map(|_| "m-00001-of-00002.gguf"));
    refused(vec![mmproj()], &["mmproj-f16.gguf", "vision encoder"]);
}

#[test]
fn a_model_beside_its_vision_encoder() {
    let model = Gguf::q2();
    let files = vec![mmproj(), file("model.gguf", model.bytes())];
    assert_eq!(contents(&load(files).unwrap()), contents(&model.load().unwrap()));
}

#[test]
fn wide_floats_are_narrowed() {
    let mut model = Gguf::q2();
    let want = contents(&model.load().unwrap());
    for name in ["token_embd.weight", "output_norm.weight"] {
        let t = model.tensor(name);
        let wide = |b: &[u8]| f64::from(f32::from_le_bytes(b.try_into().unwrap())).to_le_bytes();
        t.bytes = t.bytes.chunks_exact(4).flat_map(wide).collect();
        t.kind = 28;
    }
    assert_eq!(contents(&model.load().unwrap()), want);
    model.tensor("output_norm.weight").bytes[..8].copy_from_slice(&1e300f64.to_le_bytes());
    let error = model.load().unwrap_err().to_string();
    assert!(error.contains("output_norm.weight") && error.contains("inf"), "{error}");
}

#[test]
fn types_of_other_programs_are_refused_by_name() {
    let with = |kind: u32, bytes_per_row: usize| {
        let mut model = Gguf::model("bitnet-b1.58", 256, 35, |rng, rows, cols| {
            codec::TQ2_0
                .encode(&rng.ternary(rows, cols, None))
                .unwrap_or_else(|| vec![0; rows * 66])
        });
        for t in model.tensors.iter_mut().filter(|t| t.kind == 35) {
            (t.kind, t.bytes) = (kind, vec![0; t.shape[0] * bytes_per_row]);
        }
        model
    };
    // TL2 shares its id with MXFP4, NVFP4 with others. Sizes tell them apart.
    for (kind, bytes, name) in [
        (42, 50, "STQ1_0 stores in 10752"),
        (43, 50, "STQ1_0 stores in 10752"),
        (38, 64, "TL1"),
        (39, 43, "TL2"),
        (36, 32, "I2_S"),
        (41, 40, "Q1_0 stores in 9216"),
        (40, 144, "type 40 (NVFP4) (a 4-bit type that is not supported)"),
        (40, 48, "early Q1_0 with groups of 32; download the current file"),
        (40, 77, "NVFP4 stores in 36864, early Q1_0 stores in 12288"),
        (16, 66, "codebook types are not supported; convert the original weights"),
        (29, 56, "IQ1_M) (codebook types are not supported"),
        (134, 52, "IQ1_BN"),
        (135, 64, "IQ2_BN"),
    ] {
        let error = with(kind, bytes).load().unwrap_err();
        assert_eq!(error.code(), "unsupported_type", "{kind}: {error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("blk.0."), "{kind}: {text}");
    }
}

#[test]
fn tokens_that_are_not_utf8() {
    let mut model = Gguf::q2();
    let tokens: Vec<Vec<u8>> =
        (0..20u8).map(|i| if i == 5 { vec![b't', 0xff] } else { format!("t{i}").into() }).collect();
    let text = |t: &Vec<u8>| [&(t.len() as u64).to_le_bytes()[..], t].concat();
    let bytes: Vec<u8> = tokens.iter().flat_map(text).collect();
    model.set("tokenizer.ggml.tokens", (9, list(8, 20, &bytes)));
    let Some(Vocabulary::Gguf(vocab)) = model.load().unwrap().text.vocabulary else { panic!() };
    assert_eq!(vocab.tokens[5], "t\u{fffd}");
    model.set("general.architecture", (8, text(&vec![0xff, 0xfe])));
    let error = model.load().unwrap_err().to_string();
    assert!(error.contains("general.architecture") && error.contains("UTF-8"), "{error}");
}

#[test]
fn what_downloads_leave_in_a_files_place() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n";
    let html = "\n<!DOCTYPE html>\n<html><title>Sign in</title></html>";
    for (content, says) in [(pointer, "Git LFS pointer"), (html, "HTML page"), ("", "empty file")] {
        refused(vec![file("model.gguf", content)], &["model.gguf", says]);
        let hf = Hf::new("llama", Style::Float);
        for name in ["config.json", "model.safetensors"] {
            let mut files = hf.files();
            files.retain(|f| f.name != name);
            files.push(file(name, content));
            refused(files, &[name, says]);
        }
        refused(hf.clone().with("tokenizer.json", content).files(), &["tokenizer.json", says]);
    }
}

#[test]
fn json_as_python_writes_it() {
    let hf = Hf::new("llama", Style::Float);
    let want = contents(&hf.load().unwrap());
    let with = |config: String| {
        let mut files = hf.files();
        files[0] = file("config.json", config);
        load(files)
    };
    let plain = hf.config.to_string();
    assert_eq!(contents(&with(format!("\u{feff}{plain}")).unwrap()), want, "byte order mark");
    let more = r#"{"router_jitter": NaN, "limit": [Infinity, -Infinity], "note": "a \"NaN\" \\", "#;
    assert_eq!(contents(&with(plain.replacen('{', more, 1)).unwrap()), want);
    let wrong = plain.replace("10000.0", "NaN");
    let error = with(wrong).expect_err("a field that is read").to_string();
    assert!(error.contains("config.json") && error.contains("NaN"), "{error}");
}

#[test]
fn special_tokens_of_older_directories() {
    let map = r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": "<pad>"}"#;
    let hf = Hf::new("llama", Style::Float).with("special_tokens_map.json", map);
    let special = |hf: &Hf| hf.load().unwrap().text.special;
    assert_eq!((&special(&hf)["bos_token"][..], &special(&hf)["eos_token"][..]), ("<s>", "</s>"));
    let hf = hf.with("tokenizer_config.json", r#"{"eos_token": "<e>", "pad_token": null}"#);
    let special = special(&hf);
    assert_eq!((&special["eos_token"][..], &special["pad_token"][..]), ("<e>", "<pad>"));
}

/// A field of a protocol buffer with bytes or a number.
fn field(number: u64, value: &Value) -> Vec<u8> {
    let varint = |mut n: u64| {
        let mut out = Vec::new();
        while n > 127 {
            out.push(n as u8 | 128);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    match value {
        Value::Number(n) if n.is_f64() => {
            let score = n.as_f64().unwrap() as f32;
            [varint(number << 3 | 5), score.to_le_bytes().into()].concat()
        }
        Value::Number(n) => [varint(number << 3), varint(n.as_i64().unwrap() as u64)].concat(),
        Value::String(text) => {
            [varint(number << 3 | 2), varint(text.len() as u64), text.clone().into()].concat()
        }
        Value::Array(fields) => {
            let inner: Vec<u8> =
                fields.iter().flat_map(|f| field(f[0].as_u64().unwrap(), &f[1])).collect();
            [varint(number << 3 | 2), varint(inner.len() as u64), inner].concat()
        }
        other => panic!("{other}"),
    }
}

/// A `tokenizer.model` with the pieces of a small Llama 2 vocabulary.
fn sentencepiece(kind: u64) -> Vec<u8> {
    let pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("<0x0A>", 0.0, 6),
        ("▁a", -1.0, 1),
        ("b", -3.0, 1),
        ("▁", -4.0, 1),
        ("a", -5.0, 1),
        ("▁ab", -2.0, 1),
    ];
    let mut out: Vec<u8> = pieces
        .into_iter()
        .flat_map(|(text, score, kind)| field(1, &json!([[1, text], [2, score], [3, kind]])))
        .collect();
    out.extend(field(2, &json!([[3, kind], [4, 9], [40, 0], [41, 1], [42, 2], [43, -1]])));
    out.extend(field(3, &json!([[1, "identity"], [3, 1]])));
    out
}

#[test]
fn a_directory_with_a_sentencepiece_model_alone() {
    let with = |model: Vec<u8>, others: &[(&str, &str)]| {
        let mut files = Hf::new("llama", Style::Float).files();
        files.push(file("tokenizer.model", model));
        files.extend(others.iter().map(|(name, text)| file(name, *text)));
        files
    };
    let tokenizer = |files| Tokenizer::new(&load(files).unwrap().text.vocabulary.unwrap()).unwrap();
    let t = tokenizer(with(sentencepiece(2), &[]));
    let ids = t.encode("ab a\n", true).unwrap();
    assert_eq!(ids, [1, 8, 4, 3], "BOS, `▁ab`, `▁a`, a line break as a byte");
    assert_eq!(t.decode(&ids), "ab a\n");
    assert!(t.is_special(2));

    let added = r#"{"<|im_end|>": 10, "<|im_start|>": 11}"#;
    let config = r#"{"add_bos_token": false, "added_tokens_decoder":
        {"0": {"content": "<unk>", "special": true}, "11": {"content": "<tool>", "special": false}}}"#;
    let others = [("added_tokens.json", added), ("tokenizer_config.json", config)];
    let t = tokenizer(with(sentencepiece(2), &others));
    assert_eq!(t.encode("ab<|im_end|>", true).unwrap(), [8, 10]);
    assert_eq!((t.id("<tool>"), t.is_special(11), t.vocab_size()), (Some(11), false, 12));

    refused(with(sentencepiece(1), &[]), &["tokenizer.model", "Unigram", "tokenizer.json"]);
    refused(with(b"\x0a\xff\xff".into(), &[]), &["tokenizer.model", "SentencePiece"]);
    let far = [("added_tokens.json", r#"{"x": 4000000000}"#)];
    refused(with(sentencepiece(2), &far), &["added_tokens.json", "4000000000"]);
    let json = r#"{"model": {"type": "BPE", "vocab": {"x": 0}, "merges": []}}"#;
    let both = with(b"nonsense".into(), &[("tokenizer.json", json)]);
    assert!(matches!(load(both).unwrap().text.vocabulary, Some(Vocabulary::Json(_))));
}

/// A directory in the layout of 1bitLLM/bitnet_b1_58: Llama's configuration, and two norms more.
fn one_bit() -> Hf {
    let mut hf = Hf::new("llama", Style::Master);
    for layer in 0..crate::fixtures::LAYERS {
        for (name, n) in
            [("self_attn.inner_attn_ln", 16), ("mlp.ffn_layernorm", crate::fixtures::FF)]
        {
            let bytes = f32_bytes(&Rng(5).floats(n));
            hf.put(&format!("model.layers.{layer}.{name}.weight"), "F32", &[n], bytes);
        }
    }
    hf.config.as_object_mut().unwrap().remove("quantization_config");
    hf.set("architectures", json!(["BitnetForCausalLM"]))
        .set("weight_bits", json!(1))
        .set("input_bits", json!(8))
}

#[test]
fn bitnet_as_1bitllm_stores_it() {
    let c = one_bit().load().unwrap();
    assert_eq!((c.spec.architecture, c.spec.activation), (Architecture::BitNet, Activation::Silu));
    assert_eq!(c.weights.layers[0].up.weight.kind(), "ternary");
    let mut hf = Hf::new("bitnet", Style::Master).set("hidden_act", json!("silu"));
    let stored: Vec<_> = one_bit().tensors.into_iter().collect();
    let usual = |name: &str| {
        name.replace("inner_attn_ln", "attn_sub_norm").replace("ffn_layernorm", "ffn_sub_norm")
    };
    hf.tensors = stored.into_iter().map(|(name, t)| (usual(&name), t)).collect();
    assert_eq!(contents(&c), contents(&hf.load().unwrap()), "another name for the same model");
    assert_eq!(c.spec.hidden_size, HIDDEN);
}

#[test]
fn bitnet_masters_become_ternary_without_a_quantization_config() {
    let hf = Hf::new("bitnet", Style::Master);
    let mut bare = hf.clone().set("architectures", json!(["BitNetForCausalLM"]));
    bare.config.as_object_mut().unwrap().remove("quantization_config");
    assert_eq!(contents(&bare.load().unwrap()), contents(&hf.load().unwrap()));
}

#[test]
fn every_type_of_a_file_loads() {
    let types: [(u32, usize, &str); 9] = [
        (3, 20, "f16"),
        (6, 22, "int8/g32"),
        (7, 24, "f16"),
        (10, 84, "f16"),
        (11, 110, "int6/g16"),
        (13, 176, "f16"),
        (20, 18, "int8/g32"),
        (23, 136, "int8/g32"),
        (39, 17, "int8/g32"),
    ];
    for (kind, bytes, stored) in types {
        let weights = if bytes > 24 { 256 } else { 32 };
        let model =
            Gguf::model("llama", 256, kind, |_, rows, cols| vec![0; rows * cols / weights * bytes]);
        let c = model.load().unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert_eq!(c.weights.layers[0].up.weight.kind(), stored, "{kind}");
    }
}

#[test]
fn families_that_are_not_supported_are_refused_with_what_to_do() {
    let moe = "mixture of experts of Hunyuan is not supported; Hy-MT2-1.8B and 7B are dense";
    let whole =
        "bidirectional over the whole sequence; this runtime computes block-causal models exactly";
    let canvas = "a canvas of random tokens with self-conditioning, not masks";
    for (arch, words) in [
        ("hunyuan-moe", moe),
        ("hy_v3", moe),
        ("hyv4", moe),
        ("hunyuan_vl", "the text models are `hunyuan-dense`"),
        ("minicpm3", "MLA"),
        ("llada", whole),
        ("dream", whole),
        ("llada-moe", whole),
        ("rnd1", whole),
        ("diffusion-gemma", canvas),
    ] {
        let mut gguf = Gguf::q2();
        gguf.set("general.architecture", meta_text(arch));
        error_of(gguf.load(), &[arch, words, "hunyuan-dense or minicpm"]);
    }
    let hf = |field: &str, value: Value| Hf::new("llama", Style::Float).set(field, value);
    error_of(hf("model_type", json!("hunyuan_v1_moe")).load(), &["hunyuan_v1_moe", moe]);
    for (kind, words) in [
        ("llada", whole),
        ("Dream", whole),
        ("llada_moe", whole),
        ("rnd1", whole),
        ("diffusion_gemma", canvas),
    ] {
        error_of(hf("model_type", json!(kind)).load(), &[kind, words]);
    }
    error_of(hf("model_type", json!("minicpm3")).load(), &["minicpm3", "MLA"]);
    let mlx = json!({"group_size": 128, "bits": 1});
    error_of(hf("quantization", mlx).load(), &["MLX in 1 bits", "use the GGUF file"]);
    let mut pickle = Hf::new("llama", Style::Float).files();
    pickle.retain(|file| file.name == "config.json");
    pickle.push(file("pytorch_model.bin", "PK"));
    error_of(load(pickle), &["pytorch_model.bin", "use the GGUF file of the same model"]);
}

/// A directory of a dense Hunyuan, whose norms of q and k have names of their own.
fn hunyuan() -> Hf {
    let mut hf = Hf::new("qwen3", Style::Float).set("model_type", json!("hunyuan_v1_dense"));
    hf.config["rope_scaling"] = json!({"type": "dynamic", "alpha": 1000.0, "factor": 1.0});
    let named =
        |name: String| name.replace("q_norm", "query_layernorm").replace("k_norm", "key_layernorm");
    hf.tensors = hf.tensors.into_iter().map(|(name, raw)| (named(name), raw)).collect();
    hf
}

#[test]
fn variants_of_hunyuan() {
    let base = hunyuan().load().unwrap().spec.rope.theta;
    assert!((base - 1e4 * 1000f64.powf(8.0 / 6.0)).abs() < 1e-6 * base, "{base}");
    error_of(hunyuan().set("use_cla", json!(true)).load(), &["`use_cla` false"]);
    error_of(hunyuan().set("num_experts", json!([1, 8])).load(), &["`num_experts` 8"]);
    hunyuan().set("num_experts", json!(1)).load().unwrap();
    let no_alpha = json!({"type": "dynamic", "factor": 1.0});
    error_of(hunyuan().set("rope_scaling", no_alpha).load(), &["`alpha`"]);
    let zero = json!({"type": "dynamic", "alpha": 0.0});
    error_of(hunyuan().set("rope_scaling", zero).load(), &["`alpha` above 0"]);
    let mut plain = hunyuan();
    plain
        .tensors
        .retain(|name, _| !name.contains("query_layernorm") && !name.contains("key_layernorm"));
    error_of(plain.load(), &["model.layers.0.self_attn.query_layernorm.weight"]);
    let plain = plain.set("use_qk_norm", json!(false)).load().unwrap();
    assert!(plain.weights.layers[0].mixer.attention().unwrap().q_norm.is_none());
    let older = hunyuan().set("head_dim", json!(null)).set("attention_head_dim", json!(8));
    assert_eq!(older.load().unwrap().spec.head_dim, 8);

    let gguf = || {
        Gguf::model("hunyuan-dense", 256, 43, |rng, rows, cols| {
            crate::fixtures::random_blocks(&codec::STQ1_0, rows * cols, rng, None)
        })
    };
    assert_eq!(gguf().load().unwrap().spec.rope.theta, 1e4, "scaled already");
    let mut unscaled = gguf();
    unscaled.set("hunyuan-dense.rope.scaling.alpha", meta_f32(1000.0));
    let (found, want) = (unscaled.load().unwrap().spec.rope.theta, 11_158_840.0);
    assert!((found - want).abs() < 5.0, "{found}");
    let mut vision = gguf();
    vision.set("hunyuan-dense.rope.dimension_sections", meta_ints(&[1, 2, 3]));
    error_of(vision.load(), &["dimension_sections", "the text models are `hunyuan-dense`"]);
}

/// The lists of LongRoPE for four pairs of columns.
fn long_rope(original: usize) -> Value {
    json!({"rope_type": "longrope", "long_factor": [1.0, 2.0, 4.0, 8.0], "short_factor": [1.0, 1.0, 1.5, 2.0],
        "original_max_position_embeddings": original})
}

#[test]
fn long_rope_is_decided_once() {
    for model_type in ["llama", "qwen3", "minicpm"] {
        let mut hf = Hf::new(model_type, Style::Float).set("rope_scaling", long_rope(16));
        for (field, value) in [("scale_emb", 12.0), ("scale_depth", 1.4), ("dim_model_base", 4.0)] {
            hf.config[field] = json!(value);
        }
        let c = hf.load().unwrap_or_else(|e| panic!("{model_type}: {e}"));
        let Some(RopeScaling::LongRope(lists)) = &c.spec.rope.scaling else { panic!("LongRoPE") };
        assert_eq!(
            (lists.original_context, lists.divisors(16)[3], lists.divisors(17)[3]),
            (16, 2.0, 8.0)
        );
        let m = (1.0 + 4f64.ln() / 16f64.ln()).sqrt();
        assert!((lists.attention_factor - m).abs() < 1e-12);
        if model_type == "minicpm" {
            let factors = c.spec.factors.unwrap();
            assert_eq!((factors.embedding, factors.logit_divisor), (12.0, 4.0));
            assert!((factors.residual - 1.4 / 2f32.sqrt()).abs() < 1e-6);
        }
        let model = Model::new(c.spec, c.weights).unwrap();
        assert_eq!(model.has_long_rope(), Some(true), "64 positions of its files");
        let model = model.with_context(16);
        assert_eq!(model.has_long_rope(), Some(false));
        assert_eq!(model.with_context(17).has_long_rope(), Some(true));
    }
    let missing = json!({"type": "su", "long_factor": [1.0, 2.0, 4.0, 8.0]});
    error_of(
        Hf::new("llama", Style::Float).set("rope_scaling", missing).load(),
        &["`short_factor`"],
    );
    let mut dynamic = Hf::new("minicpm", Style::Float);
    dynamic.config["rope_scaling"] = json!({"type": "dynamic", "factor": 4.0});
    error_of(dynamic.load(), &["`dynamic`"]);
    error_of(Hf::new("minicpm", Style::Float).load(), &["`scale_depth`"]);

    let mut gguf = Gguf::model("llama", 256, 35, |rng, rows, cols| {
        codec::TQ2_0.encode(&rng.ternary(rows, cols, Some(256))).unwrap()
    });
    gguf.set("llama.rope.scaling.type", meta_text("longrope"));
    error_of(gguf.load(), &["rope_factors_long.weight", "both lists"]);
    gguf.float("rope_factors_long.weight", &[64], &mut Rng(1));
    error_of(gguf.load(), &["rope_factors_short.weight", "both lists"]);
    gguf.float("rope_factors_short.weight", &[64], &mut Rng(2));
    error_of(gguf.load(), &["positive RoPE divisors"]);
    for list in ["long", "short"] {
        let t = gguf.tensor(&format!("rope_factors_{list}.weight"));
        t.bytes = 1.5f32.to_le_bytes().repeat(64);
    }
    let Some(RopeScaling::LongRope(lists)) = gguf.load().unwrap().spec.rope.scaling else {
        panic!()
    };
    assert_eq!((lists.original_context, lists.attention_factor), (64, 1.0), "the context's");
}

#[test]
fn a_number_means_what_its_bytes_say() {
    let model = |id, t: &codec::TernaryBlockFormat| {
        Gguf::model("qwen3", 256, id, |rng, rows, cols| {
            crate::fixtures::random_blocks(t, rows * cols, rng, None)
        })
    };
    for (id, t, kind) in [
        (41, codec::Q1_0, "ternary/one-bit/g128"),
        (42, codec::Q2_0, "ternary/g64"),
        (42, codec::PQ2_0, "ternary/g128"),
        (42, codec::STQ1_0, "ternary/g256"),
        (43, codec::STQ1_0, "ternary/g256"),
    ] {
        let mut file = model(id, &t);
        // Padding hides the layout of one row: other tensors decide.
        let row = crate::fixtures::random_blocks(&t, 256, &mut Rng(4), None);
        let tensor = GgufTensor {
            name: "token_embd.weight".into(),
            shape: vec![1, 256],
            kind: id,
            bytes: row,
        };
        *file.tensor("token_embd.weight") = tensor;
        let c = file.load().unwrap_or_else(|e| panic!("{id} {}: {e}", t.name));
        assert_eq!(c.weights.layers[1].down.weight.kind(), kind, "{id}");
        assert!(c.weights.embed.kind().starts_with("ternary"), "{id}");
    }
    error_of(model(41, &codec::STQ1_0).load(), &["type 41 (Q1_0)", "Q1_0 stores in 9216"]);
    error_of(model(43, &codec::Q1_0).load(), &["type 43 (STQ1_0)", "STQ1_0 stores in 10752"]);
}
