//! How the byte-level tokenizers that GGUF files name cut a text into words before merging.
//!
//! A GGUF file holds only the name (`tokenizer.ggml.pre`); what it means is written in the
//! `tokenizer.json` that the file was converted from. A wrong guess gives plausible text from a
//! confused model, so a name that is not in this table is an error.

use super::TextError;
use crate::format::GgufVocab;
use serde_json::{Value, json};

/// A byte-level tokenizer less its vocabulary.
pub(super) struct Recipe {
    /// Unicode normal form C first.
    pub(super) nfc: bool,
    /// A word that is a token is that token, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// BOS is put in front where the file does not say.
    pub(super) add_bos: bool,
    /// How to cut; `ByteLevel` comes after it.
    cut: Cut,
}

/// Ways of cutting.
#[derive(Clone, Copy)]
enum Cut {
    /// By an expression that matches whole words.
    Words(&'static str),
    /// As GPT-2, whose expression is part of `ByteLevel`.
    Gpt2,
    /// Digits one by one, then as GPT-2.
    DigitsGpt2,
    /// Punctuation, then as GPT-2, then digits in threes.
    Falcon,
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Names, and: NFC, ignore_merges, add_bos, cut.
type Row = (&'static [&'static str], bool, bool, bool, Cut);

const TABLE: &[Row] = &[
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon_e", "falcon-h1", "pixtral", "lfm2"],
        false,
        true,
        true,
        Cut::Words(LLAMA3),
    ),
    (&["qwen2", "deepseek-r1-qwen", "megrez"], true, false, false, Cut::Words(QWEN2)),
    (&["qwen35"], true, false, false, Cut::Words(QWEN35)),
    (&["tekken"], false, true, true, Cut::Words(TEKKEN)),
    (&["gpt-2", "phi-2"], false, false, false, Cut::Gpt2),
    (&["olmo"], true, false, false, Cut::Gpt2),
    (&["smollm", "starcoder", "refact"], false, false, false, Cut::DigitsGpt2),
    (&["falcon"], false, false, false, Cut::Falcon),
];

impl Recipe {
    /// The recipe that a GGUF vocabulary asks for.
    pub(super) fn of(vocab: &GgufVocab) -> Result<Self, TextError> {
        let name = match vocab.pre.as_deref() {
            // Early converters wrote no name or `default`, BitNet's among them.
            None | Some("" | "default") => recognize(vocab),
            Some(name) => name,
        };
        let row = TABLE.iter().find(|row| row.0.contains(&name));
        let &(_, nfc, ignore_merges, add_bos, cut) = row.ok_or_else(|| {
            let known: Vec<_> = TABLE.iter().flat_map(|row| row.0).copied().collect();
            TextError::UnknownPre { pre: name.into(), known: known.join(", ") }
        })?;
        Ok(Self { nfc, ignore_merges, add_bos, cut })
    }

    /// `pre_tokenizer` of a `tokenizer.json`.
    pub(super) fn pre_tokenizer(&self) -> Value {
        let split = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        let gpt2 = byte_level(true);
        let digits = |individual: bool| json!({"type": "Digits", "individual_digits": individual});
        let steps = match self.cut {
            Cut::Words(regex) => vec![split(regex), byte_level(false)],
            Cut::Gpt2 => vec![gpt2],
            Cut::DigitsGpt2 => vec![digits(true), gpt2],
            Cut::Falcon => vec![
                json!({"type": "Punctuation", "behavior": "Contiguous"}),
                gpt2,
                digits(false),
                split("[0-9][0-9][0-9]"),
            ],
        };
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

/// `ByteLevel`, as pre-tokenizer (with GPT-2's expression or without), post-processor or decoder.
pub(super) fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": use_regex})
}

/// The name that a converter left out, by tokens that only one vocabulary has at these ids.
fn recognize(vocab: &GgufVocab) -> &'static str {
    let is = |id: usize, text: &str| vocab.tokens.get(id).is_some_and(|t| t == text);
    if is(128_000, "<|begin_of_text|>") {
        "llama-bpe"
    } else if is(151_643, "<|endoftext|>") && is(151_644, "<|im_start|>") {
        "qwen2"
    } else {
        "gpt-2"
    }
}
