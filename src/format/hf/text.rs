//! Tokenizer, chat template, special tokens and generation defaults of a directory.

use super::config::{Config, Ids};
use super::{find, json};
use crate::format::index::File;
use crate::format::{GenerationDefaults, LoadError, LoadErrorKind as Kind, TextParts, Vocabulary};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The fields of `tokenizer_config.json` that matter.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    chat_template: Option<Template>,
    bos_token: Option<Token>,
    eos_token: Option<Token>,
    unk_token: Option<Token>,
    pad_token: Option<Token>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Template {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Object { content: String },
}

impl Template {
    /// The template `default` of several, or else the first.
    fn pick(self) -> Option<String> {
        match self {
            Self::One(template) => Some(template),
            Self::Named(mut all) => {
                let at = all.iter().position(|t| t.name == "default").unwrap_or(0);
                (at < all.len()).then(|| all.swap_remove(at).template)
            }
        }
    }
}

/// Tokenizer and chat template.
pub(super) fn text_parts(files: &[File]) -> Result<TextParts, LoadError> {
    let config: TokenizerConfig = match find(files, "tokenizer_config.json") {
        Some(file) => json::parse(file)?,
        None => TokenizerConfig::default(),
    };
    let chat_template = match find(files, "chat_template.jinja") {
        Some(file) => Some(utf8(file)?),
        None => config.chat_template.and_then(Template::pick),
    };
    let mut special = BTreeMap::new();
    let tokens = [
        ("bos_token", config.bos_token),
        ("eos_token", config.eos_token),
        ("unk_token", config.unk_token),
        ("pad_token", config.pad_token),
    ];
    for (name, token) in tokens {
        if let Some(Token::Text(text) | Token::Object { content: text }) = token {
            special.insert(name.to_owned(), text);
        }
    }
    let vocabulary = find(files, "tokenizer.json").map(|f| Vocabulary::Json(f.bytes.whole()));
    Ok(TextParts { vocabulary, chat_template, special })
}

fn utf8(file: &File) -> Result<String, LoadError> {
    String::from_utf8(file.bytes.whole().to_vec()).map_err(|e| {
        LoadError::new(
            Kind::Malformed,
            &file.name,
            "a template in UTF-8",
            e.utf8_error().to_string(),
        )
    })
}

/// The fields of `generation_config.json` that matter.
#[derive(Default, Deserialize)]
struct GenerationConfig {
    bos_token_id: Option<Ids>,
    eos_token_id: Option<Ids>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    /// Negative is a common spelling of "off".
    top_k: Option<i64>,
    repetition_penalty: Option<f32>,
}

/// Special ids, from `config.json` where `generation_config.json` has none, and defaults.
pub(super) fn generation(files: &[File], config: &Config) -> Result<GenerationDefaults, LoadError> {
    let g: GenerationConfig = match find(files, "generation_config.json") {
        Some(file) => json::parse(file)?,
        None => GenerationConfig::default(),
    };
    let ids = |first: &Option<Ids>, second: &Option<Ids>| {
        first.as_ref().or(second.as_ref()).map_or(Vec::new(), |ids| ids.as_slice().to_vec())
    };
    Ok(GenerationDefaults {
        bos: ids(&g.bos_token_id, &config.bos_token_id).first().copied(),
        eos: ids(&g.eos_token_id, &config.eos_token_id),
        // As transformers has it: without `do_sample` the temperature does not count.
        temperature: g.do_sample.unwrap_or(false).then(|| g.temperature.unwrap_or(1.0)),
        top_p: g.top_p,
        top_k: g.top_k.map(|k| usize::try_from(k).unwrap_or(0)),
        repetition_penalty: g.repetition_penalty,
    })
}
