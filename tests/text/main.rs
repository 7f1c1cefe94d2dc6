//! Compares tokenizers, detokenizing and chat templates with the Python originals, on real
//! vocabularies. `tests/golden/text.py` writes the golden files.

mod allowance;
mod control;
mod detokenize;
mod end_tokens;
mod gguf;
mod hostile;
mod ids;
mod message_ends;
mod npm;
mod public_templates;
mod template;
mod template_panics;

/// Reads a file of `tests/golden`.
fn golden(name: &str) -> serde_json::Value {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}
