//! The embedded model with another chat template and other tokens.

use serde_json::{Value, json};
use std::path::Path;

/// Path of the embedded model.
pub const DEFAULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
const EMBEDDED: &[u8] = include_bytes!("../../../models/default.wf.safetensors");

/// Writes the embedded model with this template to `path`. `tokens` replace its last tokens.
pub fn write_with(path: &Path, template: &str, tokens: &[&str]) {
    let length = u64::from_le_bytes(*EMBEDDED.first_chunk().expect("a length")) as usize;
    let (header, data) = EMBEDDED[8..].split_at(length);
    let mut header: Value = serde_json::from_slice(header).expect("a header");
    let offsets = header["tokenizer.json"]["data_offsets"].clone();
    let [start, end] = [0, 1].map(|i| offsets[i].as_u64().expect("an offset") as usize);
    let tokenizer = with_tokens(serde_json::from_slice(&data[start..end]).expect("JSON"), tokens);
    // The tokenizer is the last tensor; only padding follows.
    assert!(data.len() - end < 64, "{} {end}", data.len());
    let tensors = header.as_object_mut().expect("tensors");
    tensors.retain(|_, tensor| tensor["data_offsets"][0].as_u64() != Some(end as u64));
    header["tokenizer.json"] = json!({"dtype": "U8", "shape": [tokenizer.len()],
        "data_offsets": [start, start + tokenizer.len()]});
    header["__metadata__"]["chat_template"] = template.into();
    write(path, &header, &[&data[..start], tokenizer.as_bytes()]);
}

/// Writes the embedded model to `path`, whose authors recommend this sampling.
pub fn write_stating(path: &Path, recommended: &Value) {
    let length = u64::from_le_bytes(*EMBEDDED.first_chunk().expect("a length")) as usize;
    let (header, data) = EMBEDDED[8..].split_at(length);
    let mut header: Value = serde_json::from_slice(header).expect("a header");
    let stated = header["__metadata__"]["generation"].as_str().expect("a text");
    let mut stated: Value = serde_json::from_str(stated).expect("JSON");
    let options = stated.as_object_mut().expect("an object");
    options.extend(recommended.as_object().expect("an object").clone());
    header["__metadata__"]["generation"] = stated.to_string().into();
    write(path, &header, &[data]);
}

/// Writes a file of a header and data.
fn write(path: &Path, header: &Value, data: &[&[u8]]) {
    let mut header = header.to_string();
    while !header.len().is_multiple_of(64) {
        header.push(' ');
    }
    let length = (header.len() as u64).to_le_bytes();
    let head = [&length[..], header.as_bytes()].concat();
    std::fs::write(path, [&[&head[..]], data].concat().concat()).expect("written");
}

/// Replaces the last tokens of a vocabulary, and the merges that make them.
fn with_tokens(mut tokenizer: Value, tokens: &[&str]) -> String {
    let vocab = tokenizer["model"]["vocab"].as_object_mut().expect("a vocabulary");
    let first = vocab.len() - tokens.len();
    let last = vocab.iter().filter(|(_, id)| id.as_u64() >= Some(first as u64));
    let dropped: Vec<String> = last.map(|(token, _)| token.clone()).collect();
    vocab.retain(|token, _| !dropped.contains(token));
    let added = tokens.iter().enumerate().map(|(i, token)| {
        vocab.insert((*token).into(), json!(first + i));
        json!({"id": first + i, "content": token, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": false})
    });
    let added: Vec<Value> = added.collect();
    tokenizer["added_tokens"].as_array_mut().expect("tokens").extend(added);
    let merges = tokenizer["model"]["merges"].as_array_mut().expect("merges");
    merges.retain(|merge| {
        let joined = match merge {
            Value::Array(pair) => pair.iter().filter_map(Value::as_str).collect(),
            pair => pair.as_str().expect("a pair").replace(' ', ""),
        };
        !dropped.contains(&joined)
    });
    tokenizer.to_string()
}
