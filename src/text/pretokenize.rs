//! The pre-tokenizers of GGUF's byte-level vocabularies, which split a text into words before merging.
//!
//! A GGUF file holds only a name (`tokenizer.ggml.pre`). Its definition is in the `tokenizer.json` that
//! the file was converted from. A wrong guess would give plausible text from a confused model, so an
//! unknown name is an error.

use super::TextError;
use crate::format::GgufVocab;
use serde_json::{Value, json};

/// A byte-level tokenizer without its vocabulary.
#[derive(Clone, Copy)]
pub(super) struct PreTokenizerSpec {
    /// True if text is first normalized to Unicode's form C.
    pub(super) nfc: bool,
    /// True if a word that is a token becomes that token, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// True if BOS is put in front of a text when the file does not say.
    pub(super) add_bos: bool,
    /// The split into words, in front of `ByteLevel`.
    split: WordSplit,
}

/// A way to split a text into words.
#[derive(Clone, Copy)]
enum WordSplit {
    /// By expressions that match whole words, each in the pieces that the one before leaves.
    Words(&'static [&'static str]),
    /// By GPT-2's expression, which is part of `ByteLevel`.
    Gpt2,
    /// Single digits, then as GPT-2.
    DigitsGpt2,
    /// Punctuation, then as GPT-2, then groups of three digits.
    Falcon,
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Hunyuan's dense models: numbers, Chinese and Japanese, then words.
const HUNYUAN_DENSE: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// The pre-tokenizers that are known by name. Those without NFC and BOS of their own have the rules of
/// llama.cpp, which splits in the same way.
const TABLE: &[(&[&str], PreTokenizerSpec)] = &[
    (
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon_e",
            "falcon-h1",
            "pixtral",
            "lfm2",
            "midm-2.0",
            "jina-v5-nano",
        ],
        PreTokenizerSpec {
            ignore_merges: true,
            add_bos: true,
            ..splitting(WordSplit::Words(&[LLAMA3]))
        },
    ),
    (&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], splitting(WordSplit::Words(&[LLAMA3]))),
    (
        &["qwen2", "deepseek-r1-qwen", "megrez"],
        PreTokenizerSpec { nfc: true, ..splitting(WordSplit::Words(&[QWEN2])) },
    ),
    (
        &["kormo", "f2llmv2", "stablelm2", "hunyuan", "grok-2"],
        splitting(WordSplit::Words(&[QWEN2])),
    ),
    (&["hunyuan-dense"], splitting(WordSplit::Words(&HUNYUAN_DENSE))),
    (&["qwen35"], PreTokenizerSpec { nfc: true, ..splitting(WordSplit::Words(&[QWEN35])) }),
    (
        &["tekken"],
        PreTokenizerSpec {
            ignore_merges: true,
            add_bos: true,
            ..splitting(WordSplit::Words(&[TEKKEN]))
        },
    ),
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "mellum",
            "gigachat",
            "a.x-4.0",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "modern-bert",
        ],
        splitting(WordSplit::Gpt2),
    ),
    (&["olmo"], PreTokenizerSpec { nfc: true, ..splitting(WordSplit::Gpt2) }),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        splitting(WordSplit::DigitsGpt2),
    ),
    (&["falcon"], splitting(WordSplit::Falcon)),
];

const fn splitting(split: WordSplit) -> PreTokenizerSpec {
    PreTokenizerSpec { nfc: false, ignore_merges: false, add_bos: false, split }
}

impl PreTokenizerSpec {
    /// The pre-tokenizer that a GGUF vocabulary names.
    pub(super) fn of(vocab: &GgufVocab) -> Result<Self, TextError> {
        let name = guessed(vocab).or(vocab.pre.as_deref()).unwrap_or_default();
        let known = TABLE.iter().find(|(names, _)| names.contains(&name));
        known.map(|(_, spec)| *spec).ok_or_else(|| {
            let known: Vec<_> = TABLE.iter().flat_map(|(names, _)| *names).copied().collect();
            TextError::UnknownPre { pre: name.into(), known: known.join(", ") }
        })
    }

    /// The name of the pre-tokenizer that splits as the steps of a `tokenizer.json` do; one that also
    /// normalizes alike, if there is any.
    pub(super) fn name_of(
        pre_tokenizer: &Value,
        ignore_merges: bool,
        nfc: bool,
    ) -> Option<&'static str> {
        let wanted = steps(pre_tokenizer);
        let alike = |spec: &&(&[&'static str], Self)| {
            spec.1.ignore_merges == ignore_merges && steps(&spec.1.pre_tokenizer()) == wanted
        };
        let all: Vec<_> = TABLE.iter().filter(alike).collect();
        let (names, _) = all.iter().find(|(_, spec)| spec.nfc == nfc).or(all.first())?;
        names.first().copied()
    }

    /// The `pre_tokenizer` of a `tokenizer.json`.
    pub(super) fn pre_tokenizer(&self) -> Value {
        let split = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        let gpt2 = byte_level(true);
        let digits = |individual: bool| json!({"type": "Digits", "individual_digits": individual});
        let steps = match self.split {
            WordSplit::Words(parts) => {
                parts.iter().map(|regex| split(regex)).chain([byte_level(false)]).collect()
            }
            WordSplit::Gpt2 => vec![gpt2],
            WordSplit::DigitsGpt2 => vec![digits(true), gpt2],
            WordSplit::Falcon => vec![
                json!({"type": "Punctuation", "behavior": "Contiguous"}),
                gpt2,
                digits(false),
                split("[0-9][0-9][0-9]"),
            ],
        };
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

/// `ByteLevel` as pre-tokenizer (with or without GPT-2's expression), post-processor or decoder.
pub(super) fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": use_regex})
}

/// The steps of a `pre_tokenizer`, without fields that do not change the words.
fn steps(pre_tokenizer: &Value) -> Vec<Value> {
    if let Some(Value::Array(parts)) = pre_tokenizer.get("pretokenizers") {
        return parts.iter().flat_map(steps).collect();
    }
    let mut step = pre_tokenizer.clone();
    if let Some(fields) = step.as_object_mut() {
        fields.remove("trim_offsets");
    }
    if step.is_null() { Vec::new() } else { vec![step] }
}

/// Returns the name of the pre-tokenizer that is guessed for a byte-level vocabulary which names none.
/// Early converters, BitNet's among them, wrote no name or `default`.
pub(super) fn guessed(vocab: &GgufVocab) -> Option<&'static str> {
    let unnamed = matches!(vocab.pre.as_deref(), None | Some("" | "default"));
    (unnamed && vocab.model == "gpt2").then(|| by_tokens(vocab).unwrap_or_else(|| by_merges(vocab)))
}

/// Recognizes a vocabulary by tokens that no other one has at these ids.
fn by_tokens(vocab: &GgufVocab) -> Option<&'static str> {
    let is = |id: usize, text: &str| vocab.tokens.get(id).is_some_and(|t| t == text);
    if is(128_000, "<|begin_of_text|>") {
        Some("llama-bpe")
    } else if is(151_643, "<|endoftext|>") && is(151_644, "<|im_start|>") {
        Some("qwen2")
    } else if is(248_044, "<|endoftext|>") && is(248_046, "<|im_end|>") {
        Some("qwen35")
    } else if is(120_000, "<｜hy_begin▁of▁sentence｜>") {
        Some("hunyuan-dense")
    } else {
        None
    }
}

/// Signs that merges keep of the words that they were learned from: a merge never crosses the end of a
/// word.
#[derive(Default)]
struct Signs {
    /// Most digits in a word.
    digits: usize,
    /// A punctuation mark begins a word of letters (`.get`).
    mark_with_letters: bool,
    /// A line break ends a word of punctuation.
    mark_with_break: bool,
    /// A capital follows a small letter (`getName`).
    camel_case: bool,
    /// A word has a space before digits.
    space_with_digits: bool,
}

impl Signs {
    fn add(&mut self, word: &str) {
        let text = word.strip_prefix('Ġ').unwrap_or(word);
        let all = |text: &str, test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
        let digit = |c: char| c.is_ascii_digit();
        let letter = |c: char| c.is_ascii_alphabetic();
        let mark = |c: char| c.is_ascii_punctuation() && c != '\'';
        if all(text, digit) {
            self.digits = self.digits.max(text.len());
            self.space_with_digits |= text.len() < word.len();
        }
        let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
        self.mark_with_letters |= all(first, mark) && all(rest, letter) && text.len() == word.len();
        let before = text.trim_end_matches('Ċ');
        self.mark_with_break |= before.len() < text.len() && all(before, mark);
        let pairs = text.as_bytes().windows(2);
        let camel = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
        self.camel_case |= all(text, letter) && { pairs }.any(camel);
    }
}

/// Guesses a pre-tokenizer by the words that the merges make.
fn by_merges(vocab: &GgufVocab) -> &'static str {
    let mut signs = Signs::default();
    let mut word = String::new();
    for (left, right) in vocab.merges.iter().filter_map(|merge| merge.split_once(' ')) {
        word.clear();
        word.extend([left, right]);
        signs.add(&word);
    }
    let Signs { digits, mark_with_letters, mark_with_break, camel_case, space_with_digits } = signs;
    match (mark_with_letters && mark_with_break, digits) {
        (true, 2..=3) => "llama-bpe",
        (true, _) if camel_case => "qwen2",
        (true, _) => "tekken",
        (false, 0..=1) if vocab.merges.len() > LEARNED && !space_with_digits => "smollm",
        (false, _) => "gpt-2",
    }
}

/// Number of merges of a vocabulary that has words of several digits, if its rules allow them.
const LEARNED: usize = 10_000;
