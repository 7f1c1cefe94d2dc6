//! A file with the keys and the vocabulary of the official GGUF of BitNet b1.58 2B-4T. Its weights are
//! small: after any text it says "Hi", and then it ends the turn.

use crate::fixtures::{
    Gguf, f32_bytes, list, meta_bool, meta_f32, meta_text, meta_texts, meta_u32,
};
use std::path::Path;
use wrinklefree::format::codec;
use wrinklefree::ternary::{Scales, TernaryMatrix};

const VOCAB: usize = 128_256;
const HIDDEN: usize = 128;
const EOT: usize = 128_009;
const HI: usize = 256;
/// Template of that file, which its converter wrote for every model.
const TEMPLATE: &str = "\
{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}\
{% if message['role'] == 'user' %}{{ 'Human: ' + message['content'] + '\\n\\nBITNETAssistant: ' + eos_token }}\
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}";

/// Writes the file. It has no `eot_token_id` and no `pre`.
pub fn write(path: &Path) {
    let zeros = |rows: usize, cols: usize| {
        let zeros = TernaryMatrix::pack(rows, cols, Scales::Tensor(1.0), |_, row| row.fill(1));
        codec::encode_i2s(&zeros.expect("a matrix")).expect("whole blocks")
    };
    let mut g = Gguf::model("bitnet-b1.58", HIDDEN, 36, |_, rows, cols| zeros(rows, cols));
    let table = g.tensor("token_embd.weight");
    (table.shape, table.kind, table.bytes) = (vec![VOCAB, HIDDEN], 1, embeddings());
    g.tensor("output_norm.weight").bytes = f32_bytes(&[1.0; HIDDEN]);
    let tokens = tokens();
    let types: Vec<u8> = (0..VOCAB as i32)
        .flat_map(|id| if id < 128_000 { 1i32 } else { 3 }.to_le_bytes())
        .collect();
    let keys = [
        ("general.name", meta_text("bitnet2b")),
        ("general.quantization_version", meta_u32(2)),
        ("general.file_type", meta_u32(40)),
        ("bitnet-b1.58.vocab_size", meta_u32(VOCAB as u32)),
        ("bitnet-b1.58.rope.dimension_count", meta_u32(HIDDEN as u32 / 2)),
        ("bitnet-b1.58.rope.freq_base", meta_f32(500_000.0)),
        ("tokenizer.ggml.model", meta_text("gpt2")),
        (
            "tokenizer.ggml.tokens",
            meta_texts(&tokens.iter().map(String::as_str).collect::<Vec<_>>()),
        ),
        ("tokenizer.ggml.token_type", (9, list(5, VOCAB, &types))),
        ("tokenizer.ggml.merges", meta_texts(&["H i"])),
        ("tokenizer.ggml.add_bos_token", meta_bool(true)),
        ("tokenizer.ggml.bos_token_id", meta_u32(128_000)),
        ("tokenizer.ggml.eos_token_id", meta_u32(128_001)),
        ("tokenizer.ggml.padding_token_id", meta_u32(128_001)),
        ("tokenizer.chat_template", meta_text(TEMPLATE)),
    ];
    for (key, value) in keys {
        g.set(key, value);
    }
    std::fs::write(path, g.bytes()).expect("written");
}

/// Logits are products with the last token's embedding. That of every other token points along the
/// first axis, as "Hi" does in part; the end of the turn is along the second, the other part of "Hi".
fn embeddings() -> Vec<u8> {
    let mut table = vec![0; 2 * VOCAB * HIDDEN];
    let mut set = |id: usize, first: f32, second: f32| {
        let values = [first, second].map(|value| half::f16::from_f32(value).to_le_bytes());
        table[2 * id * HIDDEN..][..4].copy_from_slice(&values.concat());
    };
    (0..VOCAB).for_each(|id| set(id, 0.125, 0.0));
    set(HI, 3.0, 3.0);
    set(EOT, 0.0, 20.0);
    table
}

fn tokens() -> Vec<String> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 0x100..;
    let bytes =
        (0..256).map(|byte| if printable(byte) { byte } else { others.next().expect("one") });
    let mut tokens: Vec<String> =
        bytes.map(|code| char::from_u32(code).expect("a character").into()).collect();
    tokens.push("Hi".into());
    tokens.extend((tokens.len()..VOCAB).map(|id| match id {
        128_000 => "<|begin_of_text|>".into(),
        128_001 => "<|end_of_text|>".into(),
        128_006 => "<|start_header_id|>".into(),
        128_007 => "<|end_header_id|>".into(),
        EOT => "<|eot_id|>".into(),
        128_002.. => format!("<|reserved_special_token_{}|>", id - 128_002),
        _ => format!("w{id}"),
    }));
    tokens
}
