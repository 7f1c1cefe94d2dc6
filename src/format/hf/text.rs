//! Reads tokenizer, chat template, special tokens and generation defaults of a directory.

use super::fields::{Config, TokenIds};
use super::{find, json, sentencepiece};
use crate::format::index::File;
use crate::format::{GenerationDefaults, LoadError, LoadErrorKind as Kind, TextParts, Vocabulary};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The relevant fields of `tokenizer_config.json`.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    chat_template: Option<TemplateField>,
    #[serde(flatten)]
    special: SpecialTokens,
}

/// Special tokens, as in `special_tokens_map.json`.
#[derive(Default, Deserialize)]
struct SpecialTokens {
    bos_token: Option<TokenField>,
    eos_token: Option<TokenField>,
    unk_token: Option<TokenField>,
    pad_token: Option<TokenField>,
}

impl SpecialTokens {
    /// Texts by the tokens' template names.
    fn texts(self) -> BTreeMap<String, String> {
        let tokens = [
            ("bos_token", self.bos_token),
            ("eos_token", self.eos_token),
            ("unk_token", self.unk_token),
            ("pad_token", self.pad_token),
        ];
        let text = |token| match token {
            TokenField::Text(text) | TokenField::Object { content: text } => text,
        };
        let named = tokens.into_iter().map(|(name, token)| Some((name.to_owned(), text(token?))));
        named.flatten().collect()
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateField {
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
enum TokenField {
    Text(String),
    Object { content: String },
}

impl TemplateField {
    /// The template named `default`, or else the first one; and the one named `tool_use`.
    fn pick(self) -> (Option<String>, Option<String>) {
        match self {
            Self::One(template) => (Some(template), None),
            Self::Named(all) => {
                let find = |name: &str| all.iter().find(|template| template.name == name);
                let template = |named: &NamedTemplate| named.template.clone();
                let default = find("default").or(all.first()).map(template);
                (default, find("tool_use").map(template))
            }
        }
    }
}

/// Reads tokenizer, chat template and special tokens.
pub(super) fn text_parts(files: &[File]) -> Result<TextParts, LoadError> {
    let config: TokenizerConfig = match find(files, "tokenizer_config.json") {
        Some(file) => json::parse(file)?,
        None => TokenizerConfig::default(),
    };
    let (chat_template, tool_template) = match find(files, "chat_template.jinja") {
        Some(file) => (Some(utf8(file)?), None),
        None => config.chat_template.map_or((None, None), TemplateField::pick),
    };
    // Older directories have special tokens in a file of their own.
    let mut special = match find(files, "special_tokens_map.json") {
        Some(file) => json::parse::<SpecialTokens>(file)?.texts(),
        None => BTreeMap::new(),
    };
    special.extend(config.special.texts());
    let vocabulary = match find(files, "tokenizer.json") {
        Some(file) => Some(Vocabulary::Json(file.bytes.whole())),
        None => sentencepiece::vocabulary(files)?,
    };
    Ok(TextParts { vocabulary, chat_template, tool_template, special })
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

/// The relevant fields of `generation_config.json`.
#[derive(Default, Deserialize)]
struct GenerationConfig {
    bos_token_id: Option<TokenIds>,
    eos_token_id: Option<TokenIds>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    /// Many files write "off" as a negative number.
    top_k: Option<i64>,
    repetition_penalty: Option<f32>,
}

/// Reads sampling defaults and special ids. `config.json` gives ids that `generation_config.json` lacks.
pub(super) fn generation(files: &[File], config: &Config) -> Result<GenerationDefaults, LoadError> {
    let g: GenerationConfig = match find(files, "generation_config.json") {
        Some(file) => json::parse(file)?,
        None => GenerationConfig::default(),
    };
    let ids = |first: &Option<TokenIds>, second: &Option<TokenIds>| {
        first.as_ref().or(second.as_ref()).map_or(Vec::new(), |ids| ids.as_slice().to_vec())
    };
    Ok(GenerationDefaults {
        bos: ids(&g.bos_token_id, &config.bos_token_id).first().copied(),
        eos: ids(&g.eos_token_id, &config.eos_token_id),
        // As in `transformers`: without `do_sample` the temperature has no effect. A directory cannot
        // have the temperature 0, which `false` stands for.
        temperature: g
            .do_sample
            .map(|sample| if sample { g.temperature.unwrap_or(1.0) } else { 0.0 }),
        top_p: g.top_p,
        top_k: g.top_k.map(|k| usize::try_from(k).unwrap_or(0)),
        repetition_penalty: g.repetition_penalty,
    })
}
