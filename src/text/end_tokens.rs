//! Tokens that end a text or a turn.
//!
//! The files of a model name some of them, often too few: a GGUF file may name the end of a text and
//! leave out the end of a turn, which a chat then never sees. So tokens with the names below end a text
//! too, as in llama.cpp.

use super::{TextError, Tokenizer};
use serde::Serialize;

/// Names of the tokens that end a text or a turn wherever a vocabulary has them.
const NAMES: [&str; 23] = [
    "<|eot_id|>",            // Llama 3, BitNet b1.58 2B-4T, Falcon-E
    "<|eom_id|>",            // Llama 3.1: a message that calls a tool
    "<|end_of_text|>",       // Llama 3, Granite
    "<|im_end|>",            // ChatML: Qwen, Fast-dLLM, SDAR, SmolLM2, Ternary-Bonsai
    "<|endoftext|>",         // GPT-2, Qwen, Falcon 3
    "<|end|>",               // Phi 3
    "<|return|>",            // gpt-oss
    "<|call|>",              // gpt-oss: a message that calls a tool
    "<|calls|>",             // Solar Open: a message that calls tools
    "<|flush|>",             // Solar Open
    "<end_of_turn>",         // Gemma
    "<turn|>",               // Gemma 4
    "<|eot|>",               // Llama 4
    "<|eom|>",               // Llama 4
    "<EOT>",                 // DeepSeek Coder
    "_<EOT>",                // OLMo, MiniCPM
    "[EOT]",                 // Kimi K2
    "[EOS]",                 // Kimi K2
    "<end_of_utterance>",    // SmolVLM
    "<｜end▁of▁sentence｜>", // DeepSeek
    "<|fim_pad|>",           // Qwen Coder: after a text that was filled in
    "<|repo_name|>",         // Qwen Coder: begins another repository
    "<|file_sep|>",          // Qwen Coder: begins another file
];

/// Names that end a text only as special tokens: elsewhere they are markup.
const SPECIAL_NAMES: [&str; 2] = ["</s>", "<eos>"];

/// The reason that makes a token end a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model's files say so (`eos_token_id` and its like).
    Stated,
    /// Its name is known.
    Named,
    /// The user asked for it.
    Asked,
}

/// A token that ends a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndToken {
    /// Its id.
    pub id: u32,
    /// Its name; `None` if the model has no tokenizer, or no token with this id.
    pub token: Option<String>,
    /// The reason that makes it end a text.
    pub reason: EndReason,
}

/// Returns the tokens that end a text: those that the model's files state, those that the user asked
/// for by name or id, and those with a known name.
///
/// # Errors
/// When no token has a name or id that the user asked for.
///
/// ```
/// use wrinklefree::text::{EndReason, Tokenizer, end_tokens};
///
/// let json = r#"{"model": {"type": "BPE", "vocab": {"<e>": 0, "<|eot_id|>": 1, "x": 2}, "merges": []}}"#;
/// let tokenizer = Tokenizer::from_json(json.as_bytes())?;
/// let ends = end_tokens(Some(&tokenizer), &[0], &["x".into()])?;
/// let reasons: Vec<_> = ends.iter().map(|end| (end.id, end.reason)).collect();
/// assert_eq!(reasons, [(0, EndReason::Stated), (2, EndReason::Asked), (1, EndReason::Named)]);
/// # Ok::<(), wrinklefree::text::TextError>(())
/// ```
pub fn end_tokens(
    tokenizer: Option<&Tokenizer>,
    stated: &[u32],
    asked: &[String],
) -> Result<Vec<EndToken>, TextError> {
    let mut ends: Vec<EndToken> = Vec::new();
    let mut add = |id: u32, reason: EndReason| {
        if !ends.iter().any(|end| end.id == id) {
            let token = tokenizer.and_then(|tokenizer| tokenizer.token(id));
            ends.push(EndToken { id, token, reason });
        }
    };
    stated.iter().for_each(|&id| add(id, EndReason::Stated));
    for token in asked {
        add(find(tokenizer, token)?, EndReason::Asked);
    }
    if let Some(tokenizer) = tokenizer {
        named(tokenizer).for_each(|id| add(id, EndReason::Named));
    }
    Ok(ends)
}

/// Ids of tokens with known names.
fn named(tokenizer: &Tokenizer) -> impl Iterator<Item = u32> {
    let has = |name: &str| tokenizer.id(name).is_some();
    // There each part of an answer ends with `<|end|>`: only the last one is followed by `<|return|>`.
    let parts = has("<|return|>") && has("<|call|>");
    let names = NAMES.into_iter().filter(move |name| !(parts && *name == "<|end|>"));
    let special = SPECIAL_NAMES
        .into_iter()
        .filter_map(|name| tokenizer.id(name).filter(|&id| tokenizer.is_special(id)));
    names.filter_map(|name| tokenizer.id(name)).chain(special)
}

/// Finds the token that a user named.
fn find(tokenizer: Option<&Tokenizer>, token: &str) -> Result<u32, TextError> {
    let vocab = tokenizer.map_or(usize::MAX, Tokenizer::vocab_size);
    let by_id = || token.parse::<u32>().ok().filter(|&id| (id as usize) < vocab);
    let found = tokenizer.and_then(|tokenizer| tokenizer.id(token)).or_else(by_id);
    found.ok_or_else(|| TextError::UnknownToken { token: token.into() })
}

/// Describes the tokens that end a text, for a log line.
#[must_use]
pub fn describe_end_tokens(ends: &[EndToken]) -> String {
    if ends.is_empty() {
        return "no token ends a text: the model's files name none".into();
    }
    let reason = |reason| match reason {
        EndReason::Stated => "in the model's files",
        EndReason::Named => "known by its name",
        EndReason::Asked => "asked for",
    };
    let describe = |end: &EndToken| {
        let name = end.token.as_deref().unwrap_or("token");
        format!("{name} ({}, {})", end.id, reason(end.reason))
    };
    let ends: Vec<String> = ends.iter().map(describe).collect();
    format!("a text ends at {}", ends.join(", "))
}
