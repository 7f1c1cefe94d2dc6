//! Damaged and hostile files give an error that names the fault. They cause no panic, and no
//! allocation out of proportion to the file's size.

use crate::counting::{HELD, PEAK};
use crate::fixtures::{
    Gguf, GgufTensor, Hf, Rng, Style, f32_bytes, file, hybrid, list, meta_f32, meta_text, meta_u32,
    packed_bytes, with_header,
};
use serde_json::{Value, json};
use wrinklefree::format::{Checkpoint, File, LoadError, load};
use wrinklefree::ternary;

/// Bytes that messages, maps and the padding of tiny matrices may take, and bytes per byte of a file: a
/// JSON list of numbers or names grows when it is read.
const SLACK: usize = 256 << 10;
const PER_BYTE: usize = 16;

/// Loads files, and checks the peak of allocated memory.
fn bounded(files: &[File]) -> Result<Checkpoint, LoadError> {
    let size: usize = files.iter().map(|f| f.bytes.len()).sum();
    let before = HELD.get();
    PEAK.set(before);
    let result = load(files.to_vec());
    let used = PEAK.get() - before;
    assert!(used <= SLACK + PER_BYTE * size, "{used} bytes for files of {size}");
    result
}

/// Expects an error whose message contains all words.
#[track_caller]
fn refused(files: &[File], words: &[&str]) -> LoadError {
    let error = match bounded(files) {
        Err(error) => error,
        Ok(_) => panic!("this must not load"),
    };
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    assert!(!error.code().is_empty());
    error
}

fn gguf_file(bytes: Vec<u8>) -> Vec<File> {
    vec![file("model.gguf", bytes)]
}

/// Name, a valid file, length of its header, and a function that makes the loader's input.
type Container = (&'static str, Vec<u8>, usize, fn(Vec<u8>) -> Vec<File>);

fn containers() -> Vec<Container> {
    fn weights(bytes: Vec<u8>) -> Vec<File> {
        let hf = Hf::new("bitnet", Style::Packed);
        vec![file("config.json", hf.config.to_string()), file("model.safetensors", bytes)]
    }
    fn packed(bytes: Vec<u8>) -> Vec<File> {
        vec![file("model.packed", bytes)]
    }
    let header = |b: &[u8]| 8 + u64::from_le_bytes(b[..8].try_into().unwrap()) as usize;
    let hf = crate::fixtures::safetensors(&Hf::new("bitnet", Style::Packed).tensors);
    let ours = packed_bytes(ternary::Layout::TwoBit, None);
    let tight = packed_bytes(ternary::Layout::Tight, None);
    let planes = crate::fixtures::six_bits(crate::fixtures::VOCAB, crate::fixtures::HIDDEN);
    let planes = packed_bytes(ternary::Layout::TwoBit, Some(planes));
    let (q2, rotated, packed_rotated) = (Gguf::q2(), hybrid::rotated(), hybrid::packed());
    vec![
        ("safetensors", hf.clone(), header(&hf), weights as fn(Vec<u8>) -> Vec<File>),
        ("packed", ours.clone(), header(&ours), packed),
        ("packed, tight", tight.clone(), header(&tight), packed),
        ("packed, planes", planes.clone(), header(&planes), packed),
        ("gguf", q2.bytes(), q2.parts().0.len(), gguf_file),
        ("gguf, hybrid and rotated", rotated.bytes(), rotated.parts().0.len(), gguf_file),
        ("packed, hybrid and rotated", packed_rotated.clone(), header(&packed_rotated), packed),
    ]
}

#[test]
fn valid_files_load() {
    for (name, bytes, _, files) in containers() {
        bounded(&files(bytes)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn truncated_at_every_byte_of_the_header() {
    for (name, bytes, header, files) in containers() {
        for n in 0..header {
            let error = refused(&files(bytes[..n].to_vec()), &["expected", "found"]);
            assert!(!error.file().is_empty(), "{name} at {n}");
            assert!(!error.to_string().contains("bytes of  at"), "{name} at {n}: {error}");
        }
        // Also in the data.
        for n in (header..bytes.len()).step_by(97) {
            refused(&files(bytes[..n].to_vec()), &["expected", "found"]);
        }
    }
}

#[test]
fn flipped_bytes_are_errors_or_models_but_never_panics() {
    let mut rng = Rng(99);
    for (name, bytes, header, files) in containers() {
        let mut refused = 0;
        for round in 0..4000 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + round % 4 {
                // Mostly in the header, where most bytes have a meaning.
                let reach = if round % 8 == 7 { damaged.len() } else { header };
                let at = rng.below(reach);
                damaged[at] = match round % 3 {
                    0 => damaged[at] ^ 1 << rng.below(8),
                    1 => rng.next() as u8,
                    _ => [0, 0xff, 0x7f, 0x80, b'"', b'9', b'{', b'['][rng.below(8)],
                };
            }
            refused += usize::from(bounded(&files(damaged)).is_err());
        }
        assert!(refused > 2000, "{name}: only {refused} of 4000 were refused");
    }
}

#[test]
fn huge_counts_allocate_nothing() {
    let huge = 1u64 << 60;
    let with = |at: usize, value: u64| {
        let mut bytes = Gguf::q2().bytes();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        gguf_file(bytes)
    };
    refused(&with(8, huge), &["model.gguf"]);
    refused(&with(16, huge), &["model.gguf"]);
    refused(&with(24, huge), &["metadata key 0", "1152921504606846976"]);
    for kind in [0, 4, 8, 9, 10, 12] {
        let mut g = Gguf::q2();
        let mut bytes = list(kind, 0, &[0; 40]);
        bytes[4..12].copy_from_slice(&huge.to_le_bytes());
        g.set("tokenizer.ggml.tokens", (9, bytes));
        refused(&gguf_file(g.bytes()), &["model.gguf"]);
    }
    let mut g = Gguf::q2();
    g.tensor("blk.0.attn_q.weight").shape = vec![1 << 40, 1 << 40];
    refused(&gguf_file(g.bytes()), &["blk.0.attn_q.weight"]);
    for n in [huge, u64::MAX, (100 << 20) + 1] {
        let mut bytes = n.to_le_bytes().to_vec();
        bytes.extend(b"{}");
        let hf = Hf::new("bitnet", Style::Packed);
        let config = file("config.json", hf.config.to_string());
        refused(&[config, file("model.safetensors", bytes)], &["model.safetensors", "header"]);
    }
    for field in ["hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads"] {
        let hf = Hf::new("bitnet", Style::Packed).set(field, json!(huge));
        refused(&hf.files(), &["config.json", "from 1 to"]);
    }
}

#[test]
fn layers_of_hybrids_are_counted_before_they_are_listed() {
    for layers in [4097, u32::MAX] {
        let mut g = Gguf::qwen35();
        g.set("qwen35.block_count", meta_u32(layers));
        refused(&gguf_file(g.bytes()), &["layer count from 1 to 4096", &layers.to_string()]);
        let hf = Hf::qwen35(false).set("num_hidden_layers", json!(layers));
        refused(&hf.files(), &["layer count from 1 to 4096", &layers.to_string()]);
    }
}

#[test]
fn nested_arrays_end() {
    let mut value = list(0, 1, &[0]);
    for _ in 0..10_000 {
        value = list(9, 1, &value);
    }
    let mut g = Gguf::q2();
    g.set("deep", (9, value));
    refused(&gguf_file(g.bytes()), &["deep", "nested arrays"]);
    let hf = Hf::new("bitnet", Style::Packed);
    let deep = "[".repeat(100_000);
    refused(&hf.clone().with("generation_config.json", &deep).files(), &["generation_config.json"]);
}

#[test]
fn safetensors_with_wrong_headers() {
    let hf = Hf::new("bitnet", Style::Packed);
    let config = || file("config.json", hf.config.to_string());
    let lie = |edit: &dyn Fn(&mut Value), words: &[&str]| {
        let bytes = crate::fixtures::safetensors(&hf.tensors);
        let n = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header: Value = serde_json::from_slice(&bytes[8..n]).unwrap();
        edit(&mut header);
        let bytes = with_header(&header.to_string(), &bytes[n..]);
        refused(&[config(), file("model.safetensors", bytes)], words)
    };
    const NORM: &str = "model.norm.weight";
    lie(&|h| h[NORM]["shape"] = json!([17]), &["model.safetensors", NORM, "[17]"]);
    lie(&|h| h[NORM]["shape"] = json!([4, 4]), &[NORM, "[16]", "[4, 4]"]);
    lie(&|h| h[NORM]["shape"] = json!([1u64 << 60, 16]), &[NORM]);
    lie(&|h| h[NORM]["shape"] = json!(vec![1; 20]), &["20 dimensions"]);
    lie(&|h| h[NORM]["dtype"] = json!("F8_E4M3"), &[NORM, "F8_E4M3"]);
    lie(&|h| h[NORM]["data_offsets"] = json!([1u64 << 60, (1u64 << 60) + 64]), &[NORM, "inside"]);
    lie(&|h| h[NORM]["data_offsets"] = json!([64, 0]), &[NORM]);
    lie(&|h| h[NORM]["data_offsets"] = h["lm_head.weight"]["data_offsets"].clone(), &["ends at"]);
    lie(&|h| drop(h.as_object_mut().unwrap().remove(NORM)), &[NORM, "other tensors"]);
    lie(&|h| h["model.layers.7.extra"] = h[NORM].take(), &["expected"]);
    let twice = r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
    refused(&[config(), file("m.safetensors", with_header(twice, &[]))], &["`a`", "once"]);
}

#[test]
fn numbers_that_are_not_finite() {
    for (dtype, bytes) in [
        ("F32", f32_bytes(&[f32::NAN])),
        ("F32", f32_bytes(&[f32::INFINITY])),
        ("F32", f32_bytes(&[0.0])),
    ] {
        let mut hf = Hf::new("bitnet", Style::Packed);
        let name = "model.layers.1.mlp.up_proj.weight_scale";
        hf.put(name, dtype, &[1], bytes);
        assert_eq!(refused(&hf.files(), &[name, "finite"]).code(), "not_finite");
    }
    let mut hf = Hf::new("bitnet", Style::Master);
    let name = "model.layers.1.mlp.up_proj.weight";
    let raw = hf.tensors.get_mut(name).unwrap();
    raw.bytes[10..12].copy_from_slice(&[0xc0, 0x7f]);
    refused(&hf.files(), &[name, "finite"]);
    let mut hf = Hf::new("bitnet", Style::Packed);
    hf.put("model.norm.weight", "F32", &[16], f32_bytes(&[f32::NAN; 16]));
    refused(&hf.files(), &["model.norm.weight", "NaN"]);
    let mut g = Gguf::q2();
    g.tensor("blk.1.ffn_up.weight").bytes[..2].copy_from_slice(&[0, 0x7c]);
    refused(&gguf_file(g.bytes()), &["blk.1.ffn_up.weight", "finite"]);
}

#[test]
fn gguf_with_wrong_headers() {
    let lie = |edit: &dyn Fn(&mut Gguf), words: &[&str]| {
        let mut g = Gguf::q2();
        edit(&mut g);
        refused(&gguf_file(g.bytes()), words)
    };
    const Q: &str = "blk.0.attn_q.weight";
    lie(&|g| g.version = 1, &["version 1"]);
    lie(&|g| g.version = 3 << 24, &["big-endian"]);
    lie(&|g| g.tensor(Q).kind = 16, &[Q, "type 16 (IQ2_XXS)"]);
    lie(&|g| g.tensor(Q).kind = 39, &[Q, "MXFP4"]);
    lie(&|g| g.tensor(Q).kind = 77_777, &[Q, "77777 (unknown)"]);
    lie(&|g| g.tensor(Q).kind = 36, &[Q, "I2_S"]);
    lie(&|g| g.tensor(Q).shape = vec![64, 65], &[Q]);
    lie(&|g| g.tensor("blk.1.ffn_down.weight").bytes.truncate(1000), &["blk.1.ffn_down.weight"]);
    lie(&|g| g.tensor(Q).shape = vec![32, 64], &[Q]);
    lie(&|g| g.tensor("output_norm.weight").shape = vec![8, 8], &["output_norm.weight", "[64]"]);
    lie(&|g| g.tensors.retain(|t| t.name != Q), &[Q, "other tensors"]);
    lie(&|g| g.tensor("output_norm.weight").name = Q.into(), &[Q, "once"]);
    lie(&|g| g.set("qwen3.block_count", meta_u32(1)), &["blk.1", "ignored"]);
    lie(&|g| g.set("qwen3.block_count", meta_text("two")), &["qwen3.block_count", "two"]);
    lie(&|g| g.set("general.alignment", meta_u32(33)), &["general.alignment", "33"]);
    lie(&|g| g.set("general.alignment", meta_u32(0)), &["general.alignment"]);
    lie(&|g| g.set("general.architecture", meta_text("mamba")), &["mamba", "qwen3"]);
    lie(&|g| g.meta.retain(|(k, _)| k != "qwen3.embedding_length"), &["qwen3.embedding_length"]);
    lie(&|g| g.set("qwen3.rope.scaling.type", meta_text("dynamic")), &["dynamic", "yarn"]);
    lie(
        &|g| g.set("qwen3.rope.scaling.type", meta_text("longrope")),
        &["rope_factors_long.weight"],
    );
    let yarn = |g: &mut Gguf, key: &str, value: f32| {
        g.set("qwen3.rope.scaling.type", meta_text("yarn"));
        g.set("qwen3.rope.scaling.factor", meta_f32(2.0));
        g.set(&format!("qwen3.rope.scaling.{key}"), meta_f32(value));
    };
    lie(&|g| g.set("qwen3.rope.scaling.type", meta_text("yarn")), &["qwen3.rope.scaling.factor"]);
    lie(&|g| yarn(g, "factor", -2.0), &["RoPE scaling by positive factors"]);
    lie(&|g| yarn(g, "yarn_beta_fast", 0.5), &["RoPE scaling", "beta_fast: 0.5"]);
    lie(&|g| yarn(g, "yarn_log_multiplier", 0.1), &["yarn_log_multiplier", "0.1"]);
    lie(&|g| yarn(g, "factor", f32::INFINITY), &["context length"]);
    let both = |g: &mut Gguf| {
        g.set("qwen3.rope.scaling.factor", meta_f32(2.0));
        let bytes = f32_bytes(&[2.0; 16]);
        let (name, shape, kind) = ("rope_freqs.weight".into(), vec![16], Gguf::F32);
        g.tensors.push(GgufTensor { name, shape, kind, bytes });
    };
    lie(&both, &["rope_freqs.weight", "not by two"]);
    lie(&|g| g.set("qwen3.expert_count", meta_u32(8)), &["expert_count"]);
    lie(&|g| g.set("qwen3.rope.freq_base", meta_f32(f32::NAN)), &["RoPE base"]);
    lie(&|g| g.set("split.count", meta_u32(3)), &["part 2 of 3", "no such file"]);
    lie(&|g| g.set("split.no", meta_u32(1)), &["split.no", "below"]);
    lie(&|g| g.set("general.architecture", meta_text("clip")), &["language model", "mmproj"]);
    lie(&|g| g.float("rope_freqs.weight", &[16], &mut Rng(3)), &["rope_freqs.weight", "positive"]);
    lie(&|g| g.meta.push(g.meta[3].clone()), &["once", "twice"]);
}

#[test]
fn configurations_that_are_not_supported() {
    let refuse = |key: &str, value: Value, words: &[&str]| {
        refused(&Hf::new("llama", Style::Packed).set(key, value).files(), words)
    };
    let error = refuse("model_type", json!("gpt2"), &["config.json", "gpt2", "bitnet", "qwen3"]);
    assert_eq!(error.code(), "unsupported_architecture");
    refuse("model_type", json!(null), &["model_type"]);
    let classifier = json!(["Qwen3ForSequenceClassification"]);
    refuse("architectures", classifier, &["config.json", "Qwen3ForSequenceClassification"]);
    refuse("hidden_act", json!("gelu"), &["gelu", "relu2"]);
    refuse("num_key_value_heads", json!(3), &["divide"]);
    refuse("head_dim", json!(7), &["even"]);
    refuse("num_attention_heads", json!(0), &["head count"]);
    refuse("rms_norm_eps", json!("x"), &["config.json", "line"]);
    refuse("rms_norm_eps", json!(-1.0), &["norm"]);
    refuse("rope_theta", json!(0.0), &["RoPE base"]);
    refuse("rope_scaling", json!({"type": "dynamic", "factor": 4.0}), &["dynamic", "yarn"]);
    refuse("rope_scaling", json!({"type": "longrope", "factor": 4.0}), &["long_factor"]);
    refuse("rope_scaling", json!({"type": "linear"}), &["factor"]);
    refuse("rope_scaling", json!({"type": "yarn", "factor": -4.0}), &["positive factors"]);
    refuse("rope_scaling", json!({"type": "yarn", "factor": 1e300}), &["context length"]);
    let none = json!({"type": "yarn", "original_max_position_embeddings": 0});
    refuse("rope_scaling", none, &["positive factors"]);
    refuse("rope_scaling", json!({"rope_type": "llama3"}), &["factor"]);
    refuse("partial_rotary_factor", json!(0.5), &["0.5"]);
    refuse("sliding_window", json!(4096), &["sliding window of 4096"]);
    let windowed = Hf::new("qwen2", Style::Float).set("use_sliding_window", json!(true));
    refused(&windowed.set("sliding_window", json!(64)).files(), &["sliding window of 64"]);
    refuse("layer_types", json!(["full_attention", "sliding_attention"]), &["sliding_attention"]);
    refuse("attention_bias", json!(true), &["q_proj.bias"]);
    refuse("vocab_size", json!(21), &["embed_tokens.weight", "[21, 16]", "[20, 16]"]);
    refuse("bd_size", json!(0), &["block size"]);
    refuse("quantization_config", json!({"quant_method": "gptq"}), &["gptq"]);
    let norm = json!({"quant_method": "bitnet", "use_rms_norm": true});
    refuse("quantization_config", norm, &["use_rms_norm"]);
    let mut hf = Hf::new("llama", Style::Packed);
    hf.put("model.layers.0.mlp.up_proj.bias", "F32", &[24], f32_bytes(&[0.0; 24]));
    refused(&hf.files(), &["up_proj.bias", "no bias"]);
    let mut hf = Hf::new("llama", Style::Packed);
    hf.tensors.remove("model.layers.0.mlp.up_proj.weight_scale");
    refused(&hf.files(), &["up_proj.weight_scale"]);
}

#[test]
fn directories_without_a_model() {
    refused(&[], &["no files", "config.json"]);
    refused(&[file("README.md", "hello")], &["README.md", "config.json", ".gguf"]);
    let hf = Hf::new("bitnet", Style::Packed);
    let config = file("config.json", hf.config.to_string());
    refused(std::slice::from_ref(&config), &["no weights", "model.safetensors"]);
    let shards = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#;
    let index = file("model.safetensors.index.json", shards);
    refused(&[config, index], &["model-00001-of-00002.safetensors"]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    refused(&hf.clone().with("generation_config.json", pointer).files(), &["LFS"]);
    let gguf = || file("a.gguf", Gguf::q2().bytes());
    refused(&[gguf(), gguf()], &["one GGUF model"]);
    refused(&[file("empty.gguf", "")], &["empty.gguf"]);
}

/// Writes valid files as seeds of the fuzzers.
#[test]
#[ignore = "writes tests/fuzz/corpus"]
fn seeds() {
    let root = format!("{}/tests/fuzz/corpus", env!("CARGO_MANIFEST_DIR"));
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let folder = format!("{root}/{target}");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(format!("{folder}/{name}"), bytes).unwrap();
    };
    for (name, bytes, _, _) in containers() {
        put(name, "valid", &bytes);
    }
    for arch in ["llama", "bitnet-b1.58", "qwen2", "qwen3"] {
        let mut g = Gguf::model(arch, 64, 42, |rng, rows, cols| {
            wrinklefree::format::codec::Q2_0.encode(&rng.ternary(rows, cols, Some(64))).unwrap()
        });
        g.set("general.name", meta_text("seed"));
        put("gguf", arch, &g.bytes());
    }
    put("gguf", "tiny", &std::fs::read(format!("{root}/../../golden/gguf/tiny.gguf")).unwrap());
    let texts = [
        Hf::new("bitnet", Style::Packed).config.to_string(),
        r#"{"eos_token_id": [1, 2], "temperature": 0.6, "top_p": 0.9, "top_k": 20}"#.into(),
        r#"{"chat_template": [{"name": "default", "template": "x"}], "bos_token": {"content": "b"}}"#.into(),
        r#"{"bd_size": 32, "mask_token_id": 0, "ar_path": true, "clean_attention": "causal"}"#.into(),
        r#"{"weight_map": {"lm_head.weight": "model.safetensors"}}"#.into(),
        "{{ messages }}".into(),
    ];
    for (n, text) in texts.iter().enumerate() {
        let bytes: Vec<u8> = std::iter::once(n as u8).chain(text.bytes()).collect();
        put("hf", &format!("file{n}"), &bytes);
    }
}

#[test]
fn strings_that_are_cut_short_are_named() {
    let bytes = Gguf::q2().bytes();
    let end_of =
        |text: &[u8]| bytes.windows(text.len()).position(|part| part == text).unwrap() + text.len();
    let cut = |end: usize, words: &[&str]| refused(&gguf_file(bytes[..end].to_vec()), words);
    cut(end_of(b"general.arch"), &["20 bytes of metadata key 0 at 32", "12 bytes until the end"]);
    let key = end_of(b"general.architecture");
    cut(key + 2, &["4 bytes of the type of `general.architecture`"]);
    cut(key + 8, &["8 bytes of the length of a string in `general.architecture`"]);
    cut(key + 14, &["5 bytes of a string in `general.architecture`", "found 2 bytes"]);
    cut(end_of(b"blk.0.attn_q"), &["bytes of the name of tensor"]);
    cut(end_of(b"blk.0.attn_q.weight"), &["the number of dimensions of `blk.0.attn_q.weight`"]);
    // A download whose rest is zeros.
    let zeros = [&bytes[..24], &[0; 64]].concat();
    refused(&gguf_file(zeros), &["metadata key 0", "an empty string", "download"]);
}
