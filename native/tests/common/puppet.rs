//! Puppets: tiny models that say a given text token by token, so that parsers and grammars are tested
//! through the whole server.
//!
//! Every piece of the text is a token. The head's row of a token is the embedding of the token before it,
//! and the layers add nothing, so the last token alone decides the next. Tokens that are not in the text
//! share one embedding, that of the beginning. Grammars still mask the logits: a puppet only says what it
//! may.

use crate::fixtures::{Hf, LAYERS, Rng, Style, bf16_bytes, f32_bytes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const HIDDEN: usize = 128;
const INNER: usize = 32;
const END: &str = "<|im_end|>";
/// Tokens of their own.
const MARKERS: [&str; 6] =
    ["<|im_start|>", END, "<think>", "</think>", "<tool_call>", "</tool_call>"];

/// Cuts a text into pieces that occur once each. The first of each marker is a piece.
pub fn pieces(text: &str) -> Vec<String> {
    (2..9).find_map(|size| cut(text, size)).unwrap_or_else(|| panic!("no pieces of {text}"))
}

fn cut(text: &str, size: usize) -> Option<Vec<String>> {
    let (mut pieces, mut rest) = (Vec::<String>::new(), text);
    while !rest.is_empty() {
        let used = |piece: &str| pieces.iter().any(|other| other == piece);
        let marker = MARKERS.iter().find(|marker| rest.starts_with(**marker) && !used(marker));
        let next = MARKERS.iter().filter(|marker| !used(marker)).filter_map(|m| rest.find(m)).min();
        let most = next.unwrap_or(rest.len());
        let ends = rest.char_indices().map(|(end, c)| end + c.len_utf8());
        let fits = |end: &usize| {
            let left = most - end;
            !used(&rest[..*end]) && (*end >= size.min(most)) && (left == 0 || left >= 2)
        };
        let end = match marker {
            Some(marker) => marker.len(),
            None => ends.take_while(|end| *end <= most).find(fits)?,
        };
        pieces.push(rest[..end].into());
        rest = &rest[end..];
    }
    Some(pieces)
}

/// The letter that stands for each byte in byte-level vocabularies.
fn letters() -> Vec<char> {
    let plain = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let code = |byte| if plain(byte) { byte } else { others.next().expect("one") };
    (0..256).map(code).map(|code| char::from_u32(code).expect("a letter")).collect()
}

/// Writes a model that says these pieces and ends.
pub fn write(folder: &Path, pieces: &[String], template: &str) {
    let letters = letters();
    let spelled = |text: &str| -> String { text.bytes().map(|b| letters[b as usize]).collect() };
    let mut vocab: BTreeMap<String, usize> =
        letters.iter().enumerate().map(|(id, letter)| (letter.to_string(), id)).collect();
    let added: Vec<(&str, usize)> = MARKERS.into_iter().zip(256..).collect();
    vocab.extend(added.iter().map(|(marker, id)| (marker.to_string(), *id)));
    let mut script = Vec::new();
    for piece in pieces {
        let name = if MARKERS.contains(&piece.as_str()) { piece.clone() } else { spelled(piece) };
        let new = vocab.len();
        script.push(*vocab.entry(name).or_insert(new));
    }
    let end = vocab[END];
    script.push(end);
    let size = vocab.len().next_multiple_of(32);
    vocab.extend((vocab.len()..size).map(|id| (format!("<unused{id}>"), id)));
    let (embedding, head) = matrices(&script, size);
    // The line breaks after the thinking are one token.
    let lines = spelled("\n\n");
    let pair = if vocab.contains_key(&lines) { vec![lines] } else { Vec::new() };
    let model = model(size, end, &embedding, &head);
    save(folder, model, tokenizer(&vocab, &added, &pair), template);
}

/// Writes a hybrid model with random weights and a token per byte, which says lower-case letters. A text
/// has one tokenization, so what a client sends back has the tokens that were generated.
pub fn write_hybrid(folder: &Path, template: &str) {
    hybrid_with(folder, template, &[]);
}

/// Writes the same model with tokens of two letters, which it never says. So what a client sends back has
/// other tokens than those that were generated.
pub fn write_speller(folder: &Path, template: &str) {
    let letters = || (b'a'..=b'z').map(char::from);
    let pairs: Vec<String> =
        letters().flat_map(|a| letters().map(move |b| format!("{a}{b}"))).collect();
    hybrid_with(folder, template, &pairs);
}

fn hybrid_with(folder: &Path, template: &str, pairs: &[String]) {
    let letters = letters();
    let mut vocab: BTreeMap<String, usize> =
        letters.iter().enumerate().map(|(id, letter)| (letter.to_string(), id)).collect();
    let added: Vec<(&str, usize)> = MARKERS.into_iter().zip(256..).collect();
    vocab.extend(added.iter().map(|(marker, id)| (marker.to_string(), *id)));
    vocab.extend(pairs.iter().cloned().zip(vocab.len()..));
    let size = (vocab.len() + 1).next_multiple_of(32);
    vocab.extend((vocab.len()..size).map(|id| (format!("<unused{id}>"), id)));
    save(folder, hybrid(size, vocab[END]), tokenizer(&vocab, &added, pairs), template);
}

fn save(folder: &Path, model: Hf, tokenizer: Value, template: &str) {
    let files = model.with("chat_template.jinja", template).files();
    files.iter().for_each(|file| {
        std::fs::write(folder.join(&file.name), file.bytes.whole()).expect("written");
    });
    let names =
        [("tokenizer.json", tokenizer), ("tokenizer_config.json", json!({"eos_token": END}))];
    for (name, value) in names {
        std::fs::write(folder.join(name), value.to_string()).expect("written");
    }
}

/// Returns a model of the shape of Qwen3.5 without tensors: three layers of linear attention and one of
/// attention.
fn hybrid_shape(size: usize, end: usize) -> Hf {
    let mut hf = Hf::new("qwen3", Style::Float);
    hf.tensors.clear();
    for (key, value) in [
        ("architectures", json!(["Qwen3_5ForCausalLM"])),
        ("model_type", json!("qwen3_5_text")),
        ("vocab_size", json!(size)),
        ("hidden_size", json!(HIDDEN)),
        ("intermediate_size", json!(256)),
        ("num_hidden_layers", json!(4)),
        ("num_attention_heads", json!(4)),
        ("num_key_value_heads", json!(2)),
        ("head_dim", json!(32)),
        ("max_position_embeddings", json!(32768)),
        ("bos_token_id", Value::Null),
        ("eos_token_id", json!(end)),
        (
            "layer_types",
            json!(["linear_attention", "linear_attention", "linear_attention", "full_attention"]),
        ),
        ("full_attention_interval", json!(4)),
        ("linear_conv_kernel_dim", json!(4)),
        ("linear_key_head_dim", json!(32)),
        ("linear_value_head_dim", json!(32)),
        ("linear_num_key_heads", json!(2)),
        ("linear_num_value_heads", json!(4)),
        ("attn_output_gate", json!(true)),
        (
            "rope_parameters",
            json!({"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                "mrope_section": [2, 1, 1], "mrope_interleaved": true}),
        ),
    ] {
        hf = hf.set(key, value);
    }
    hf
}

fn hybrid(size: usize, end: usize) -> Hf {
    let (mut rng, mut hf) = (Rng(5), hybrid_shape(size, end));
    let mut fill = |hf: &mut Hf, name: String, shape: &[usize], scale: f32| {
        let count = shape.iter().product();
        let values: Vec<f32> = rng.floats(count).iter().map(|x| x * scale).collect();
        hf.put(&name, "BF16", shape, bf16_bytes(&values));
    };
    fill(&mut hf, "model.embed_tokens.weight".into(), &[size, HIDDEN], 1.7);
    let mut head = vec![0.0; size * HIDDEN];
    let said = usize::from(b'a') * HIDDEN..(usize::from(b'z') + 1) * HIDDEN;
    head[said.clone()].copy_from_slice(&Rng(6).floats(said.len()));
    hf.put("lm_head.weight", "BF16", &[size, HIDDEN], bf16_bytes(&head));
    for layer in 0..4 {
        let parts: &[(&str, &[usize])] = if layer == 3 {
            &[
                ("self_attn.q_proj.weight", &[256, HIDDEN]),
                ("self_attn.k_proj.weight", &[64, HIDDEN]),
                ("self_attn.v_proj.weight", &[64, HIDDEN]),
                ("self_attn.o_proj.weight", &[HIDDEN, 128]),
                ("self_attn.q_norm.weight", &[32]),
                ("self_attn.k_norm.weight", &[32]),
            ]
        } else {
            &[
                ("linear_attn.in_proj_qkv.weight", &[256, HIDDEN]),
                ("linear_attn.in_proj_z.weight", &[128, HIDDEN]),
                ("linear_attn.in_proj_a.weight", &[4, HIDDEN]),
                ("linear_attn.in_proj_b.weight", &[4, HIDDEN]),
                ("linear_attn.conv1d.weight", &[256, 1, 4]),
                ("linear_attn.out_proj.weight", &[HIDDEN, 128]),
                ("linear_attn.norm.weight", &[32]),
                ("linear_attn.A_log", &[4]),
                ("linear_attn.dt_bias", &[4]),
            ]
        };
        let others: [(&str, &[usize]); 5] = [
            ("input_layernorm.weight", &[HIDDEN]),
            ("post_attention_layernorm.weight", &[HIDDEN]),
            ("mlp.gate_proj.weight", &[256, HIDDEN]),
            ("mlp.up_proj.weight", &[256, HIDDEN]),
            ("mlp.down_proj.weight", &[HIDDEN, 256]),
        ];
        for (part, shape) in others.iter().chain(parts) {
            fill(&mut hf, format!("model.layers.{layer}.{part}"), shape, 0.17);
        }
    }
    fill(&mut hf, "model.norm.weight".into(), &[HIDDEN], 0.1);
    hf
}

/// Returns the embeddings and the head.
fn matrices(script: &[usize], size: usize) -> (Vec<f32>, Vec<f32>) {
    let mut rng = Rng(7);
    let mut vector = || -> Vec<f32> { rng.floats(HIDDEN).iter().map(|x| x * 1.7).collect() };
    let begin = vector();
    let mut embedding: Vec<Vec<f32>> = (0..size).map(|_| vector()).collect();
    for (id, row) in embedding.iter_mut().enumerate() {
        if !script.contains(&id) {
            row.iter_mut().zip(&begin).for_each(|(x, b)| *x = b + 0.05 * *x);
        }
    }
    let mut head = vec![vec![0.0; HIDDEN]; size];
    let before = std::iter::once(&begin).chain(script.iter().map(|&id| &embedding[id]));
    let end = script.last().copied();
    for (before, next) in before.zip(script.iter().copied().chain(end)) {
        head[next].iter_mut().zip(before).for_each(|(x, e)| *x += e / 16.0);
    }
    (embedding.concat(), head.concat())
}

fn model(size: usize, end: usize, embedding: &[f32], head: &[f32]) -> Hf {
    let mut hf = Hf::new("qwen3", Style::Float);
    for (key, value) in [
        ("vocab_size", size),
        ("hidden_size", HIDDEN),
        ("intermediate_size", INNER),
        ("head_dim", 32),
        ("max_position_embeddings", 8192),
        ("bos_token_id", end),
        ("eos_token_id", end),
    ] {
        hf = hf.set(key, json!(value));
    }
    for (name, matrix) in [("model.embed_tokens", embedding), ("lm_head", head)] {
        hf.put(&format!("{name}.weight"), "BF16", &[size, HIDDEN], bf16_bytes(matrix));
    }
    hf.put("model.norm.weight", "F32", &[HIDDEN], f32_bytes(&[4.0; HIDDEN]));
    for layer in 0..LAYERS {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            hf.put(&name(norm), "F32", &[HIDDEN], f32_bytes(&[1.0; HIDDEN]));
        }
        for norm in ["self_attn.q_norm", "self_attn.k_norm"] {
            hf.put(&name(norm), "F32", &[32], f32_bytes(&[1.0; 32]));
        }
        for (part, rows, columns) in [
            ("self_attn.q_proj", 64, HIDDEN),
            ("self_attn.k_proj", 32, HIDDEN),
            ("self_attn.v_proj", 32, HIDDEN),
            ("self_attn.o_proj", HIDDEN, 64),
            ("mlp.gate_proj", INNER, HIDDEN),
            ("mlp.up_proj", INNER, HIDDEN),
            ("mlp.down_proj", HIDDEN, INNER),
        ] {
            hf.put(&name(part), "BF16", &[rows, columns], vec![0; 2 * rows * columns]);
        }
    }
    hf
}

/// Returns a tokenizer that merges these pairs of letters.
fn tokenizer(vocab: &BTreeMap<String, usize>, added: &[(&str, usize)], pairs: &[String]) -> Value {
    let split = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": true});
    let merge = |pair: &String| {
        let (first, second) = pair.split_at(pair.chars().next().map_or(0, char::len_utf8));
        format!("{first} {second}")
    };
    let merges: Vec<String> = pairs.iter().map(merge).collect();
    let added: Vec<Value> = added
        .iter()
        .map(|(name, id)| {
            json!({"id": id, "content": name, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": name.starts_with("<|")})
        })
        .collect();
    json!({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "post_processor": null, "added_tokens": added, "pre_tokenizer": split, "decoder": split,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges}})
}
