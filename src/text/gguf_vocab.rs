//! Converts a GGUF vocabulary to the parts of the `tokenizer.json` that it was made from, so both give
//! the same ids.

use super::tokenizer_json::{Bpe, Merge, TokenizerParts};
use super::{TextError, pretokenize, token_bytes::byte_token};
use crate::format::GgufVocab;
use pretokenize::{PreTokenizerSpec, byte_level};
use serde_json::{Value, json};
use std::collections::HashMap;
use tokenizers::AddedToken;

/// Values of `tokenizer.ggml.token_type`.
pub(super) mod kind {
    pub const NORMAL: i32 = 1;
    pub const UNKNOWN: i32 = 2;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const UNUSED: i32 = 5;
    pub const BYTE: i32 = 6;
}

/// Converts a vocabulary; token ids stay the same.
pub(super) fn parts(vocab: &GgufVocab) -> Result<TokenizerParts, TextError> {
    if u32::try_from(vocab.tokens.len()).is_err() {
        return Err(bad(format!("{} tokens", vocab.tokens.len())));
    }
    let of_tokens = [("types", vocab.types.len()), ("scores", vocab.scores.len())];
    for (name, len) in of_tokens {
        if len != 0 && len != vocab.tokens.len() {
            let tokens = vocab.tokens.len();
            return Err(bad(format!("{tokens} tokens but {len} {name}")));
        }
    }
    match vocab.model.as_str() {
        "gpt2" => byte_level_bpe(vocab),
        "llama" => sentencepiece_bpe(vocab),
        model => Err(TextError::UnknownModel { model: model.into() }),
    }
}

fn byte_level_bpe(vocab: &GgufVocab) -> Result<TokenizerParts, TextError> {
    let spec = PreTokenizerSpec::of(vocab)?;
    let ids = ids(vocab);
    let bos = bos_processor(vocab, spec.add_bos)?;
    Ok(TokenizerParts {
        added_tokens: added_tokens(vocab),
        normalizer: if spec.nfc { json!({"type": "NFC"}) } else { Value::Null },
        pre_tokenizer: spec.pre_tokenizer(),
        post_processor: match bos {
            Value::Null => byte_level(false),
            bos => json!({"type": "Sequence", "processors": [byte_level(false), bos]}),
        },
        decoder: byte_level(false),
        model: Bpe {
            ignore_merges: spec.ignore_merges,
            merges: listed_merges(vocab, &ids)?,
            ..bpe(&ids)
        },
    })
}

fn sentencepiece_bpe(vocab: &GgufVocab) -> Result<TokenizerParts, TextError> {
    let ids = ids(vocab);
    let unk = vocab.unk.and_then(|id| vocab.tokens.get(id as usize));
    let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let mut normalizers = vec![space];
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if vocab.add_space_prefix.unwrap_or(true) {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    Ok(TokenizerParts {
        added_tokens: added_tokens(vocab),
        normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
        pre_tokenizer: Value::Null,
        post_processor: bos_processor(vocab, true)?,
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        model: Bpe {
            unk_token: unk.filter(|token| ids.contains_key(token.as_str())).cloned(),
            fuse_unk: true,
            byte_fallback: ids.keys().any(|token| byte_token(token).is_some()),
            merges: if vocab.merges.is_empty() {
                merges_by_score(vocab, &ids)
            } else {
                listed_merges(vocab, &ids)?
            },
            ..bpe(&ids)
        },
    })
}

/// A model without merges.
fn bpe(ids: &HashMap<&str, u32>) -> Bpe {
    Bpe {
        unk_token: None,
        continuing_subword_prefix: None,
        end_of_word_suffix: None,
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: false,
        vocab: ids.iter().map(|(&token, &id)| (token.to_owned(), id)).collect(),
        merges: Vec::new(),
    }
}

/// Reads the merges that the file lists.
fn listed_merges(vocab: &GgufVocab, ids: &HashMap<&str, u32>) -> Result<Vec<Merge>, TextError> {
    let read = |merge: &String| {
        let (left, right) = merge
            .split_once(' ')
            .ok_or_else(|| bad(format!("the merge {merge:?} is not two tokens")))?;
        for token in [left, right, &format!("{left}{right}")] {
            if !ids.contains_key(token) {
                return Err(bad(format!(
                    "the merge {merge:?} needs the token {token:?}, which is not in the vocabulary"
                )));
            }
        }
        Ok(Merge(left.into(), right.into()))
    };
    vocab.merges.iter().map(read).collect()
}

/// Bytes of the longest token that merges make; those of real vocabularies have at most 48.
const LONGEST_MERGED: usize = 256;

/// Derives merges from SentencePiece's scores.
///
/// SentencePiece merges any two neighbors whose concatenation is a token, the best score first. The
/// equivalent list of merges has every split of every token into two, by score. Ties stay in the order
/// of the tokens' ids, then of their halves' ids, as in the published `tokenizer.json` files of such
/// models (newer converters break ties by length).
fn merges_by_score(vocab: &GgufVocab, ids: &HashMap<&str, u32>) -> Vec<Merge> {
    let mergeable = |id: u32| matches!(kind_of(vocab, id), kind::NORMAL | kind::USER_DEFINED);
    let piece = |text: &str| ids.get(text).copied().filter(|&id| mergeable(id));
    let mut pieces = Vec::new();
    for (id, token) in (0u32..).zip(&vocab.tokens) {
        // Each split hashes the whole token, so long ones would take minutes. No merge makes them.
        if token.len() > LONGEST_MERGED || piece(token) != Some(id) {
            continue;
        }
        let cuts = token.char_indices().skip(1).filter_map(|(at, _)| {
            let (left, right) = token.split_at(at);
            Some((piece(left)?, piece(right)?, Merge(left.into(), right.into())))
        });
        let mut cuts: Vec<_> = cuts.collect();
        cuts.sort_by_key(|split| (split.0, split.1));
        let score = vocab.scores.get(id as usize).copied().unwrap_or(0.0);
        pieces.push((score, cuts));
    }
    pieces.sort_by(|a, b| b.0.total_cmp(&a.0));
    pieces.into_iter().flat_map(|piece| piece.1).map(|split| split.2).collect()
}

/// Ids by token text. Of equal texts the first counts. Placeholders of converters (`[PAD151700]`) are
/// skipped.
fn ids(vocab: &GgufVocab) -> HashMap<&str, u32> {
    let mut ids = HashMap::with_capacity(vocab.tokens.len());
    for (id, token) in (0u32..).zip(&vocab.tokens) {
        if kind_of(vocab, id) != kind::UNUSED {
            ids.entry(token.as_str()).or_insert(id);
        }
    }
    ids
}

fn kind_of(vocab: &GgufVocab, id: u32) -> i32 {
    let token = &vocab.tokens[id as usize];
    match vocab.types.get(id as usize) {
        Some(&kind) => kind,
        None if byte_token(token).is_some() => kind::BYTE,
        None => kind::NORMAL,
    }
}

/// Added tokens, which are found in a text before normalization and merging.
fn added_tokens(vocab: &GgufVocab) -> Vec<AddedToken> {
    let tokens = (0u32..).zip(&vocab.tokens).filter_map(|(id, token)| {
        let special = match kind_of(vocab, id) {
            kind::CONTROL | kind::UNKNOWN => true,
            kind::USER_DEFINED => false,
            _ => return None,
        };
        Some(AddedToken::from(token.as_str(), special).normalized(false))
    });
    tokens.collect()
}

/// The post-processor that adds BOS in front of a text; null if none is added.
fn bos_processor(vocab: &GgufVocab, default: bool) -> Result<Value, TextError> {
    let Some(id) = vocab.bos.filter(|_| vocab.add_bos.unwrap_or(default)) else {
        return Ok(Value::Null);
    };
    let bos = vocab.tokens.get(id as usize).ok_or_else(|| {
        let tokens = vocab.tokens.len();
        bad(format!("bos_token_id is {id} in a vocabulary of {tokens} tokens"))
    })?;
    let special = json!({"SpecialToken": {"id": bos, "type_id": 0}});
    let text = |name: &str, type_id: u32| json!({"Sequence": {"id": name, "type_id": type_id}});
    Ok(json!({
        "type": "TemplateProcessing",
        "single": [special, text("A", 0)],
        "pair": [special, text("A", 0), special, text("B", 1)],
        "special_tokens": {bos.as_str(): {"id": bos, "ids": [id], "tokens": [bos]}},
    }))
}

fn bad(what: String) -> TextError {
    TextError::Vocabulary(format!("GGUF: {what}"))
}
