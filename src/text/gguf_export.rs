//! Converts a tokenizer to a GGUF vocabulary: the inverse of [`gguf_vocab`](super::gguf_vocab), as far as
//! that form can say what a `tokenizer.json` says.

use super::Tokenizer;
use super::gguf_vocab::kind;
use super::pretokenize::PreTokenizerSpec;
use super::token_bytes::byte_token;
use crate::format::GgufVocab;
use serde_json::Value;
use std::collections::HashMap;

/// Name of a pre-tokenizer that GGUF has no name for. Readers refuse it, which is better than wrong ids.
const UNNAMED: &str = "unnamed";

impl Tokenizer {
    /// Converts the tokenizer to a GGUF vocabulary; `None` if it is no byte-pair model.
    ///
    /// GGUF names pre-tokenizers and has no normalizers, so the vocabulary may give other ids. Build a
    /// tokenizer from it and compare. Where GGUF has no name, `pre` is one that readers refuse.
    #[must_use]
    pub fn to_gguf(&self) -> Option<GgufVocab> {
        let json: Value = serde_json::from_str(&self.to_json()).expect("just written");
        let model = &json["model"];
        if model["type"] != "BPE" {
            return None;
        }
        let byte_level = json["pre_tokenizer"].to_string().contains("\"ByteLevel\"");
        let unknown = model["unk_token"].as_str().and_then(|token| self.id(token));
        let merges = merges(&model["merges"]);
        let (tokens, types) = tokens(&json, unknown, self.vocab_size(), !byte_level);
        let framed = self.encode("", true).unwrap_or_default();
        Some(GgufVocab {
            model: if byte_level { "gpt2" } else { "llama" }.into(),
            pre: Some(if byte_level { pre(&json) } else { "default" }.into()),
            scores: if byte_level { Vec::new() } else { scores(&tokens, &merges) },
            tokens,
            types,
            merges,
            bos: framed.first().copied(),
            eos: None,
            unk: unknown,
            add_bos: Some(!framed.is_empty()),
            add_space_prefix: (!byte_level).then(|| self.puts_space_first()),
        })
    }

    /// Returns true if a space is put in front of a text.
    fn puts_space_first(&self) -> bool {
        let first = |text| self.encode(text, false).ok().and_then(|ids| ids.first().copied());
        first("a").and_then(|id| self.token(id)).is_some_and(|token| token.starts_with('▁'))
    }
}

fn pre(json: &Value) -> &'static str {
    let nfc = json["normalizer"].to_string().contains("\"NFC\"");
    let ignore_merges = json["model"]["ignore_merges"] == true;
    PreTokenizerSpec::name_of(&json["pre_tokenizer"], ignore_merges, nfc).unwrap_or(UNNAMED)
}

/// Texts and types of all tokens by id.
fn tokens(
    json: &Value,
    unknown: Option<u32>,
    count: usize,
    bytes: bool,
) -> (Vec<String>, Vec<i32>) {
    let mut tokens: Vec<String> = (0..count).map(|id| format!("[PAD{id}]")).collect();
    let mut types = vec![kind::UNUSED; count];
    let mut put = |id: Option<u64>, token: &str, kind: i32| {
        if let Some(at) = id.and_then(|id| usize::try_from(id).ok()).filter(|&at| at < count) {
            (tokens[at], types[at]) = (token.into(), kind);
        }
    };
    for (token, id) in json["model"]["vocab"].as_object().into_iter().flatten() {
        let byte = bytes && byte_token(token).is_some();
        put(id.as_u64(), token, if byte { kind::BYTE } else { kind::NORMAL });
    }
    for added in json["added_tokens"].as_array().into_iter().flatten() {
        let id = added["id"].as_u64();
        let kind = match added["special"] == true {
            true if unknown.is_some() && id == unknown.map(u64::from) => kind::UNKNOWN,
            true => kind::CONTROL,
            false => kind::USER_DEFINED,
        };
        put(id, added["content"].as_str().unwrap_or_default(), kind);
    }
    (tokens, types)
}

/// Merges as `left right`.
fn merges(json: &Value) -> Vec<String> {
    let merge = |merge: &Value| match merge {
        Value::String(text) => text.clone(),
        pair => [0, 1].map(|i| pair[i].as_str().unwrap_or_default()).join(" "),
    };
    json.as_array().into_iter().flatten().map(merge).collect()
}

/// Scores that make SentencePiece merge in the order of a list: the place of a token's first merge.
fn scores(tokens: &[String], merges: &[String]) -> Vec<f32> {
    let mut places = HashMap::new();
    for (place, merge) in merges.iter().enumerate() {
        places.entry(merge.replacen(' ', "", 1)).or_insert(place);
    }
    tokens.iter().map(|token| places.get(token).map_or(0.0, |&place| -(place as f32))).collect()
}
