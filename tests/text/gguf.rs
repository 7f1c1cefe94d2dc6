//! Makes GGUF vocabularies from a `tokenizer.json`, as the converters do.

use serde_json::Value;
use wrinklefree::format::GgufVocab;

pub const NORMAL: i32 = 1;
pub const UNKNOWN: i32 = 2;
pub const CONTROL: i32 = 3;
pub const USER_DEFINED: i32 = 4;
pub const UNUSED: i32 = 5;
pub const BYTE: i32 = 6;

/// A byte-level vocabulary, padded to `rows` tokens, as converters do where the embedding has more rows
/// than tokens.
pub fn byte_level(json: &Value, pre: &str, rows: usize) -> GgufVocab {
    let (tokens, mut types) = tokens(json, rows);
    for added in json["added_tokens"].as_array().unwrap() {
        let text = added["content"].as_str().unwrap();
        let looks_special = text.starts_with("<|") && text.ends_with("|>");
        let special = added["special"] == true || looks_special;
        let id = added["id"].as_u64().unwrap() as usize;
        types[id] = if special { CONTROL } else { USER_DEFINED };
    }
    GgufVocab {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        tokens,
        types,
        merges: merges(json),
        ..GgufVocab::default()
    }
}

/// A SentencePiece vocabulary with the scores of Llama's and Mistral's `tokenizer.model`: they decrease
/// by one per token, and runs of spaces share the lowest score.
pub fn sentencepiece(json: &Value) -> GgufVocab {
    let (tokens, mut types) = tokens(json, 0);
    (types[0], types[1], types[2]) = (UNKNOWN, CONTROL, CONTROL);
    let mut scores = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        if token.len() == 6 && token.starts_with("<0x") {
            types[id] = BYTE;
        }
        let spaces = token.chars().count() > 1 && token.chars().all(|c| c == '▁');
        scores.push(match types[id] {
            NORMAL if spaces => -1e9,
            NORMAL => -(id as f32),
            _ => 0.0,
        });
    }
    GgufVocab {
        model: "llama".into(),
        pre: Some("default".into()),
        tokens,
        scores,
        types,
        bos: Some(1),
        eos: Some(2),
        unk: Some(0),
        ..GgufVocab::default()
    }
}

/// Merges as `"left right"`, from either form in the file.
pub fn merges(json: &Value) -> Vec<String> {
    let merges = json["model"]["merges"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    merges
        .iter()
        .map(|merge| match merge.as_array() {
            Some(pair) => format!("{} {}", text(&pair[0]), text(&pair[1])),
            None => text(merge),
        })
        .collect()
}

fn tokens(json: &Value, rows: usize) -> (Vec<String>, Vec<i32>) {
    let vocab = json["model"]["vocab"].as_object().unwrap();
    let vocab = vocab.iter().map(|(text, id)| (text.as_str(), id));
    let added = json["added_tokens"].as_array().unwrap().iter();
    let added = added.map(|token| (token["content"].as_str().unwrap(), &token["id"]));
    let mut tokens: Vec<String> = Vec::new();
    let mut types: Vec<i32> = Vec::new();
    let fill = |tokens: &mut Vec<String>, types: &mut Vec<i32>, len: usize| {
        while tokens.len() < len {
            tokens.push(format!("[PAD{}]", tokens.len()));
            types.push(UNUSED);
        }
    };
    for (text, id) in vocab.chain(added) {
        let id = id.as_u64().unwrap() as usize;
        fill(&mut tokens, &mut types, id + 1);
        tokens[id] = text.into();
        types[id] = NORMAL;
    }
    fill(&mut tokens, &mut types, rows);
    (tokens, types)
}
