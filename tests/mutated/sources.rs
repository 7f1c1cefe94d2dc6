//! Valid files: every format, architecture and block type.

use crate::fixtures::{Gguf, HIDDEN, Hf, Style, VOCAB, hybrid, meta_text, packed_bytes, six_bits};
use crate::mutate::Source;
use serde_json::json;
use wrinklefree::format::{LoadOptions, codec, load_with, write_packed};
use wrinklefree::loader::WeightLoader;
use wrinklefree::ternary::Layout;

/// Block types of GGUF: id, columns of a block, bytes of a block.
const BLOCKS: [(u32, usize, usize); 16] = [
    (0, 1, 4),
    (1, 1, 2),
    (30, 1, 2),
    (2, 32, 18),
    (8, 32, 34),
    (12, 256, 144),
    (14, 256, 210),
    (34, 256, 54),
    (35, 256, 66),
    (42, 64, 18),
    (42, 128, 34),
    (41, 128, 18),
    (42, 256, 42),
    (43, 256, 42),
    (142, 128, 34),
    (143, 128, 28),
];

/// Returns a name and a source of each kind.
pub fn all() -> Vec<(String, Source)> {
    let mut all = directories();
    all.extend(ggufs());
    all.extend(packed());
    all
}

fn directories() -> Vec<(String, Source)> {
    let mut all = Vec::new();
    for architecture in ["bitnet", "llama", "qwen2", "qwen3", "Fast_dLLM_Qwen", "sdar"] {
        for (style, name) in
            [(Style::Packed, "packed"), (Style::Master, "master"), (Style::Float, "float")]
        {
            let base = match architecture {
                "Fast_dLLM_Qwen" => "qwen2",
                "sdar" => "qwen3",
                other => other,
            };
            let mut hf = Hf::new(base, style).set("model_type", json!(architecture));
            if base != architecture {
                hf = hf.set("bd_size", json!(8)).set("mask_token_id", json!(4));
            }
            let hf =
                hf.with("generation_config.json", r#"{"temperature": 0.6, "eos_token_id": 2}"#);
            all.push((format!("directory, {architecture}, {name}"), Source::Directory(hf)));
        }
    }
    all.push(("directory, qwen3_5".into(), Source::Directory(Hf::qwen35(false))));
    all.push(("directory, qwen3_5, mtp".into(), Source::Directory(Hf::qwen35(false).with_mtp())));
    all.push(("directory, qwen3_5 wrapped".into(), Source::Directory(Hf::qwen35(true))));
    all
}

fn ggufs() -> Vec<(String, Source)> {
    let mut all = Vec::new();
    for architecture in ["llama", "bitnet-b1.58", "qwen2", "qwen3", "hunyuan-dense", "minicpm"] {
        for (kind, cols, bytes) in BLOCKS {
            let hidden = cols.max(64);
            let group = (!architecture.starts_with("bitnet")).then_some(cols);
            let file = Gguf::model(architecture, hidden, kind, |rng, rows, width| {
                match ternary(kind, cols) {
                    Some(codec) => codec.encode(&rng.ternary(rows, width, group)).expect("it fits"),
                    // Bytes without the high bits of an exponent: every scale is a finite number.
                    None => {
                        (0..rows * width / cols * bytes).map(|_| rng.next() as u8 & 0x3B).collect()
                    }
                }
            });
            all.push((format!("GGUF, {architecture}, type {kind}"), Source::Gguf(file)));
        }
    }
    let mut named = Gguf::q2();
    named.set("general.name", meta_text("small"));
    all.push(("GGUF with a vocabulary".into(), Source::Gguf(named)));
    all.push(("GGUF, qwen35".into(), Source::Gguf(Gguf::qwen35())));
    all.push(("GGUF, qwen35, mtp".into(), Source::Gguf(Gguf::qwen35().with_mtp(true))));
    all.push(("GGUF, qwen35, rotated".into(), Source::Gguf(hybrid::rotated())));
    all
}

/// The ternary format of an id and a block's columns.
fn ternary(kind: u32, cols: usize) -> Option<&'static codec::TernaryBlockFormat> {
    match (kind, cols) {
        (34, _) => Some(&codec::TQ1_0),
        (35, _) => Some(&codec::TQ2_0),
        (42, 64) => Some(&codec::Q2_0),
        (42, 128) | (142, _) => Some(&codec::PQ2_0),
        (143, _) => Some(&codec::PTQ1_0),
        _ => None,
    }
}

fn packed() -> Vec<(String, Source)> {
    let planes = six_bits(VOCAB, HIDDEN);
    let files = [
        ("two bits", packed_bytes(Layout::TwoBit, None)),
        ("tight", packed_bytes(Layout::Tight, None)),
        ("planes", packed_bytes(Layout::TwoBit, Some(planes))),
        ("tight groups", tight_groups()),
        ("qwen35, rotated", hybrid::packed()),
        ("qwen35, mtp", drafting()),
    ];
    files.map(|(name, bytes)| (format!("packed, {name}"), Source::Packed(bytes))).into()
}

/// A model with a block for multi-token prediction.
fn drafting() -> Vec<u8> {
    let files = Source::Gguf(Gguf::qwen35().with_mtp(true)).files();
    let model = load_with(files, LoadOptions { mtp: true }, &mut WeightLoader::alone());
    let mut bytes = Vec::new();
    write_packed(&model.expect("valid"), None, &mut bytes).expect("a vector takes everything");
    bytes
}

/// Matrices in the tight layout with group scales.
fn tight_groups() -> Vec<u8> {
    let mut model = Gguf::q2().load().expect("valid");
    model.weights.set_layout(Layout::Tight);
    let mut bytes = Vec::new();
    write_packed(&model, None, &mut bytes).expect("a vector takes everything");
    bytes
}
