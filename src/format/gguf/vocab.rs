//! Reads `tokenizer.*` metadata: vocabulary, chat template and special ids.

use super::keys::SAMPLING_STATED;
use super::meta::{MetaValue, Metadata};
use crate::format::{
    Architecture, GenerationDefaults, GgufVocab, LoadError, Spec, TextParts, Vocabulary,
};
use bytes::Bytes;
use std::collections::BTreeMap;

pub(super) fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

/// The text of a `tokenizer.json`. It says more than the keys of the vocabulary.
pub(super) const HUGGING_FACE: &str = "tokenizer.huggingface.json";

/// Values of `tokenizer.ggml.model` in files without a vocabulary; the first is llama.cpp's own.
pub(super) const NO_VOCABULARY: [&str; 2] = ["none", "no_vocab"];

/// Reads the vocabulary, if the file has one, and the chat template.
pub(super) fn text_parts(meta: &Metadata<'_>) -> Result<TextParts, LoadError> {
    let chat_template = meta.text("tokenizer.chat_template")?.map(str::to_owned);
    let tool_template = meta.text("tokenizer.chat_template.tool_use")?.map(str::to_owned);
    let json = meta.text(HUGGING_FACE)?;
    let json = json.map(|text| Vocabulary::Json(Bytes::copy_from_slice(text.as_bytes())));
    let model = meta.text(&key("model"))?.filter(|model| !NO_VOCABULARY.contains(model));
    let Some(model) = model else {
        let vocabulary = json;
        return Ok(TextParts { vocabulary, chat_template, tool_template, ..TextParts::default() });
    };
    let vocab = GgufVocab {
        model: model.into(),
        pre: meta.text(&key("pre"))?.map(str::to_owned),
        tokens: meta.need(&key("tokens"), meta.texts(&key("tokens"))?)?,
        scores: meta.list(&key("scores"), "a list of numbers", float)?.unwrap_or_default(),
        types: meta.list(&key("token_type"), "a list of token types", int)?.unwrap_or_default(),
        merges: meta.texts(&key("merges"))?.unwrap_or_default(),
        bos: meta.id(&key("bos_token_id"))?,
        eos: meta.id(&key("eos_token_id"))?,
        unk: meta.id(&key("unknown_token_id"))?,
        add_bos: meta.bool(&key("add_bos_token"))?,
        add_space_prefix: meta.bool(&key("add_space_prefix"))?,
    };
    let ids = [
        ("bos_token", vocab.bos),
        ("eos_token", vocab.eos),
        ("unk_token", vocab.unk),
        ("pad_token", meta.id(&key("padding_token_id"))?),
    ];
    let mut special = BTreeMap::new();
    for (name, id) in ids {
        if let Some(text) = id.and_then(|id| vocab.tokens.get(id as usize)) {
            special.insert(name.to_owned(), text.clone());
        }
    }
    let vocabulary = json.or(Some(Vocabulary::Gguf(Box::new(vocab))));
    Ok(TextParts { vocabulary, chat_template, tool_template, special })
}

fn float(v: MetaValue<'_>) -> Option<f32> {
    match v {
        MetaValue::Float(f) => Some(f as f32),
        _ => None,
    }
}

fn int(v: MetaValue<'_>) -> Option<i32> {
    match v {
        MetaValue::Signed(i) => i.try_into().ok(),
        MetaValue::Unsigned(u) => u.try_into().ok(),
        _ => None,
    }
}

/// Reads the special ids and the authors' sampling parameters. In many models a chat turn ends with
/// another id than a text.
pub(super) fn generation(
    meta: &Metadata<'_>,
    spec: &Spec,
) -> Result<GenerationDefaults, LoadError> {
    // As shipped by the authors; GGUF files seldom have the keys.
    let stated = meta.bool(SAMPLING_STATED)?.unwrap_or(false);
    let (temperature, top_p, top_k, repetition_penalty) = match spec.architecture {
        _ if stated => (None, None, None, None),
        Architecture::Qwen35 => (Some(1.0), Some(0.95), Some(20), None),
        // Those of Hy-MT2.
        Architecture::HunyuanDense => (Some(0.7), Some(0.6), Some(20), Some(1.05)),
        _ => (None, None, None, None),
    };
    let sampling = |name: &str| format!("general.sampling.{name}");
    let number = |name: &str| -> Result<Option<f32>, LoadError> {
        Ok(meta.float(&sampling(name))?.map(|x| x as f32))
    };
    // A negative number is "off", as 0 is.
    let count = meta.integer(&sampling("top_k"))?.map(|k| usize::try_from(k).unwrap_or(0));
    let mut defaults = GenerationDefaults {
        bos: meta.id(&key("bos_token_id"))?,
        eos: Vec::new(),
        temperature: number("temp")?.or(temperature),
        top_p: number("top_p")?.or(top_p),
        top_k: count.or(top_k),
        repetition_penalty: number("penalty_repeat")?.or(repetition_penalty),
    };
    for name in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        if let Some(id) = meta.id(&key(name))? {
            defaults.add_eos(id);
        }
    }
    Ok(defaults)
}
