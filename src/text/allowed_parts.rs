//! Allowlist of the parts of a `tokenizer.json`.
//!
//! The `tokenizers` crate parses some parts without error, but then panics or takes gigabytes. Only
//! kinds that language models use and that were found safe are accepted. Read the code of a new kind
//! before adding it here.

use super::TextError;
use serde_json::Value;

/// Largest number of steps of a part, nested sequences included; real ones have up to 6.
const MAX_STEPS: usize = 32;
/// Largest factor by which all steps of a part may lengthen a text. A space becomes `▁`, 3 bytes for 1.
const MAX_GROWTH: usize = 64;
/// Largest pattern, replacement or prefix, in bytes.
const MAX_TEXT: usize = 8192;

/// Largest factor by which a step lengthens a text.
type Growth = usize;

/// Checks the parts of a tokenizer; `model` is the model's `type`.
pub(super) fn check(
    normalizer: &Value,
    pre_tokenizer: &Value,
    model: &str,
    post_processor: &Value,
    decoder: &Value,
) -> Result<(), TextError> {
    // Unigram models use another algorithm; no supported family is known to have one.
    if !["", "BPE", "WordLevel", "WordPiece"].contains(&model) {
        return Err(unknown("model", model, "BPE, WordLevel, WordPiece"));
    }
    part("normalizer", "normalizers", normalizer, normalize)?;
    part("pre_tokenizer", "pretokenizers", pre_tokenizer, pre_tokenize)?;
    part("post_processor", "processors", post_processor, post_process)?;
    part("decoder", "decoders", decoder, decode)
}

type Check = fn(&str, &Value) -> Result<Growth, TextError>;

/// Checks each step of a part.
fn part(name: &str, list: &str, value: &Value, check: Check) -> Result<(), TextError> {
    let mut waiting = vec![value];
    let (mut steps, mut growth) = (0, 1_usize);
    while let Some(step) = waiting.pop() {
        if step.is_null() && steps == 0 && waiting.is_empty() {
            return Ok(());
        }
        let Some(kind) = step["type"].as_str() else {
            return Err(bad(format!("{name}: a step has no `type`")));
        };
        steps += 1;
        if steps > MAX_STEPS {
            return Err(bad(format!("{name}: more than {MAX_STEPS} steps")));
        }
        if kind == "Sequence" {
            let children = step[list].as_array();
            let children =
                children.ok_or_else(|| bad(format!("{name}: a Sequence has no list `{list}`")))?;
            waiting.extend(children);
            continue;
        }
        growth = growth.saturating_mul(check(kind, step)?);
        if growth > MAX_GROWTH {
            return Err(bad(format!("{name}: texts become more than {MAX_GROWTH} times as long")));
        }
    }
    Ok(())
}

fn normalize(kind: &str, step: &Value) -> Result<Growth, TextError> {
    match kind {
        "NFC" | "NFD" | "NFKC" | "NFKD" | "Nmt" | "Lowercase" | "Strip" | "StripAccents"
        | "BertNormalizer" => Ok(1),
        "ByteLevel" => Ok(2),
        // The crate panics on an empty prefix.
        "Prepend" if step["prepend"] == "" => {
            Err(bad("normalizer: Prepend has an empty `prepend`; remove the step".into()))
        }
        "Prepend" => short("normalizer: Prepend: prepend", &step["prepend"]).map(|_| 1),
        "Replace" => replace("normalizer", step),
        _ => Err(unknown(
            "normalizer",
            kind,
            "NFC, NFD, NFKC, NFKD, Nmt, Lowercase, Strip, StripAccents, BertNormalizer, \
             ByteLevel, Prepend, Replace, Sequence",
        )),
    }
}

fn pre_tokenize(kind: &str, step: &Value) -> Result<Growth, TextError> {
    match kind {
        "Metaspace" | "Digits" | "Punctuation" | "Whitespace" | "WhitespaceSplit"
        | "BertPreTokenizer" | "CharDelimiterSplit" => Ok(1),
        "ByteLevel" => Ok(2),
        "Split" => pattern("pre_tokenizer: Split", step).map(|_| 1),
        _ => Err(unknown(
            "pre_tokenizer",
            kind,
            "ByteLevel, Metaspace, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, \
             BertPreTokenizer, CharDelimiterSplit, Sequence",
        )),
    }
}

fn post_process(kind: &str, step: &Value) -> Result<Growth, TextError> {
    match kind {
        "ByteLevel" | "BertProcessing" | "RobertaProcessing" => Ok(1),
        "TemplateProcessing" => template(step).map(|()| 1),
        _ => Err(unknown(
            "post_processor",
            kind,
            "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, Sequence",
        )),
    }
}

fn decode(kind: &str, step: &Value) -> Result<Growth, TextError> {
    match kind {
        "ByteLevel" | "ByteFallback" | "Fuse" | "Metaspace" | "BPEDecoder" | "WordPiece" => Ok(1),
        "Strip" if step["stop"] == 0 => Ok(1),
        "Strip" => Err(bad("decoder: a Strip with a `stop` other than 0 is not supported".into())),
        "Replace" => replace("decoder", step),
        _ => Err(unknown(
            "decoder",
            kind,
            "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, BPEDecoder, WordPiece, \
             Sequence",
        )),
    }
}

fn replace(part: &str, step: &Value) -> Result<Growth, TextError> {
    let least = pattern(&format!("{part}: Replace"), step)?;
    // The crate panics on matches of the empty text.
    if least == 0 {
        return Err(bad(format!("{part}: Replace has a pattern that matches the empty text")));
    }
    let content = short(&format!("{part}: Replace: content"), &step["content"])?;
    Ok(content.len().div_ceil(least).max(1))
}

/// Checks a pattern, and returns the bytes of the shortest text that it matches.
fn pattern(place: &str, step: &Value) -> Result<usize, TextError> {
    let pattern = &step["pattern"];
    if let Some(text) = pattern.get("String") {
        return short(place, text).map(str::len);
    }
    let regex = short(place, &pattern["Regex"])?;
    match regex_syntax::parse(regex) {
        Ok(parsed) => Ok(parsed.properties().minimum_len().unwrap_or(0)),
        // This parser does not support lookaround, which may match the empty text.
        Err(_) => Ok(0),
    }
}

/// Returns a text, if it is not too long.
fn short<'a>(place: &str, value: &'a Value) -> Result<&'a str, TextError> {
    let text = value.as_str().ok_or_else(|| bad(format!("{place} is not a text")))?;
    match text.len() {
        0..=MAX_TEXT => Ok(text),
        len => Err(bad(format!("{place} has {len} bytes; at most {MAX_TEXT} are accepted"))),
    }
}

/// Checks the special tokens that are added around a text.
fn template(step: &Value) -> Result<(), TextError> {
    let bad = |what: String| Err(bad(format!("post_processor: TemplateProcessing: {what}")));
    for (name, sequences) in [("single", &["A"][..]), ("pair", &["A", "B"])] {
        let mut seen = Vec::new();
        for piece in step[name].as_array().into_iter().flatten() {
            if let Some(token) = piece["SpecialToken"]["id"].as_str() {
                let Some(special) = step["special_tokens"].get(token) else {
                    return bad(format!("`special_tokens` has no ids of {token:?}"));
                };
                let len = |list: &str| special[list].as_array().map(Vec::len);
                if len("ids") != len("tokens") || len("ids").is_none_or(|len| len > 64) {
                    return bad(format!("{token:?} needs as many `ids` as `tokens`, at most 64"));
                }
            }
            if let Some(id) = piece["Sequence"]["id"].as_str() {
                if !sequences.contains(&id) || seen.contains(&id) {
                    return bad(format!("`{name}` has an unknown or repeated sequence {id:?}"));
                }
                seen.push(id);
            }
        }
        if step[name].as_array().is_some_and(|pieces| pieces.len() > 256) {
            return bad(format!("`{name}` has more than 256 pieces"));
        }
    }
    Ok(())
}

fn unknown(part: &str, kind: &str, known: &str) -> TextError {
    bad(format!("{part}: the type is `{kind}`; supported are {known}"))
}

fn bad(what: String) -> TextError {
    TextError::Vocabulary(format!("tokenizer.json: {what}"))
}
