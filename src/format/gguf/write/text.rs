//! `tokenizer.*`: vocabulary, chat templates and special ids; and the authors' sampling parameters.

use super::container::MetaWriter;
use crate::format::gguf::keys::SAMPLING_STATED;
use crate::format::gguf::vocab::{HUGGING_FACE, NO_VOCABULARY, key};
use crate::format::{Architecture, GenerationDefaults, GgufVocab, TextParts};

/// Tokenizer of a file that is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct GgufTokenizer<'a> {
    /// The vocabulary in GGUF's own form, which other programs read.
    pub vocab: Option<&'a GgufVocab>,
    /// The text of a `tokenizer.json`, where GGUF's own form does not say everything. This runtime then
    /// reads it instead.
    pub json: Option<&'a str>,
}

/// Adds the tokenizer, padded to the `rows` of the embeddings, and the chat templates.
pub(super) fn put_text(
    meta: &mut MetaWriter,
    tokenizer: GgufTokenizer<'_>,
    text: &TextParts,
    generation: &GenerationDefaults,
    rows: usize,
) {
    if let Some(vocab) = tokenizer.vocab {
        put_vocab(meta, vocab, rows);
    } else {
        // llama.cpp refuses files without the key.
        meta.text(&key("model"), NO_VOCABULARY[0]);
    }
    put_ids(meta, tokenizer.vocab, text, generation);
    if let Some(json) = tokenizer.json {
        meta.text(HUGGING_FACE, json);
    }
    if let Some(template) = &text.chat_template {
        meta.text("tokenizer.chat_template", template);
    }
    if let Some(template) = &text.tool_template {
        meta.texts("tokenizer.chat_templates", &["tool_use"]);
        meta.text("tokenizer.chat_template.tool_use", template);
    }
}

/// Type of placeholders, which have no text.
const UNUSED: i32 = 5;

fn put_vocab(meta: &mut MetaWriter, vocab: &GgufVocab, rows: usize) {
    meta.text(&key("model"), &vocab.model);
    if let Some(pre) = &vocab.pre {
        meta.text(&key("pre"), pre);
    }
    let padding = vocab.tokens.len()..rows.max(vocab.tokens.len());
    let placeholders = padding.clone().map(|id| format!("[PAD{id}]"));
    let tokens: Vec<String> = vocab.tokens.iter().cloned().chain(placeholders).collect();
    meta.texts(&key("tokens"), &tokens);
    let filled = padding.len();
    if !vocab.scores.is_empty() {
        let scores: Vec<f32> = [&vocab.scores[..], &vec![0.0; filled]].concat();
        meta.floats(&key("scores"), &scores);
    }
    // Without types, all tokens are normal: then placeholders would be, too.
    let normal = vec![1; if vocab.types.is_empty() { vocab.tokens.len() } else { 0 }];
    let types = [&vocab.types[..], &normal, &vec![UNUSED; filled]].concat();
    meta.integers(&key("token_type"), &types);
    if !vocab.merges.is_empty() {
        meta.texts(&key("merges"), &vocab.merges);
    }
    if let Some(add) = vocab.add_bos {
        meta.bool(&key("add_bos_token"), add);
    }
    if let Some(add) = vocab.add_space_prefix {
        meta.bool(&key("add_space_prefix"), add);
    }
}

fn put_ids(
    meta: &mut MetaWriter,
    vocab: Option<&GgufVocab>,
    text: &TextParts,
    generation: &GenerationDefaults,
) {
    let of_vocab = |id: fn(&GgufVocab) -> Option<u32>| vocab.and_then(id);
    let named = |name: &str| {
        let token = text.special.get(name)?;
        let id = vocab?.tokens.iter().position(|t| t == token)?;
        u32::try_from(id).ok()
    };
    let eos = named("eos_token").or(of_vocab(|v| v.eos)).or(generation.eos.first().copied());
    let others: Vec<u32> = generation.eos.iter().copied().filter(|&id| Some(id) != eos).collect();
    for (name, id) in [
        ("bos_token_id", of_vocab(|v| v.bos).or(named("bos_token")).or(generation.bos)),
        ("eos_token_id", eos),
        ("eot_token_id", others.first().copied()),
        ("eom_token_id", others.get(1).copied()),
        ("unknown_token_id", named("unk_token").or(of_vocab(|v| v.unk))),
        ("padding_token_id", named("pad_token")),
    ] {
        if let Some(id) = id {
            meta.size(&key(name), id as usize);
        }
    }
}

/// Adds the authors' sampling parameters. Where a family has some that its files need not state, the file says
/// that no others are meant.
pub(super) fn put_sampling(
    meta: &mut MetaWriter,
    generation: &GenerationDefaults,
    architecture: Architecture,
) {
    for (name, value) in [
        ("temp", generation.temperature),
        ("top_p", generation.top_p),
        ("penalty_repeat", generation.repetition_penalty),
    ] {
        if let Some(value) = value {
            meta.float(&format!("general.sampling.{name}"), value);
        }
    }
    if let Some(k) = generation.top_k {
        meta.integer("general.sampling.top_k", i32::try_from(k).unwrap_or(i32::MAX));
    }
    if matches!(architecture, Architecture::HunyuanDense | Architecture::Qwen35) {
        meta.bool(SAMPLING_STATED, true);
    }
}
