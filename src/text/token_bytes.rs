//! The bytes of each token, computed once when a tokenizer is loaded.
//!
//! The decoders of language models (byte-level, or SentencePiece with byte fallback) decode one token
//! at a time, except at the start of a text. A table of bytes by id and a rule for the start
//! ([`JoinRule`]) replace them, so a streamed token costs one table lookup. Other decoders
//! ([`JoinRule::WholeText`]) run on the whole text at its end.

use super::TextError;
use super::reasoning::MARKERS;
use serde_json::Value;
use tokenizers::Tokenizer as Hf;

/// Table of bytes and kinds by token id.
pub(super) struct TokenBytes {
    join_rule: JoinRule,
    /// Bytes of all tokens, concatenated.
    blob: Vec<u8>,
    /// End of each id's bytes in `blob`.
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
}

/// Kind of a token in decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// No token has this id.
    Absent,
    /// Special token, which is left out of texts.
    Special,
    /// Text, possibly part of a character.
    Bytes,
    /// A single byte (`<0x0A>`). Each byte of an invalid run becomes one U+FFFD.
    Byte,
}

/// Rule for joining the bytes of tokens to a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JoinRule {
    /// Concatenation. Up to `count` of `character` are dropped at the start of the text.
    Concat {
        /// The character that encoding adds in front of a text.
        character: char,
        /// Largest number of dropped characters.
        count: usize,
    },
    /// Concatenation, where every `marker` in the first token's name is dropped.
    Metaspace {
        /// Character that stands for a space.
        marker: char,
    },
    /// A space between any two tokens.
    SpaceSeparated,
    /// Not known: the tokenizer's decoder must run on the whole text.
    WholeText,
}

/// Marks around the parts of tool calls and results.
pub(super) const CALL_MARKS: [&str; 10] = [
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "[TOOL_CALLS]",
    "[ARGS]",
];

/// Returns true for marks around tool calls and reasoning. They always count as text, because a text
/// without them has lost its calls, or its reasoning counts as the answer. Some vocabularies have them as
/// control tokens.
fn is_mark(token: &str) -> bool {
    CALL_MARKS.contains(&token) || MARKERS.iter().any(|m| m.open == token || m.close == token)
}

impl TokenBytes {
    pub(super) fn new(hf: &Hf) -> Result<Self, TextError> {
        let added = hf.get_added_tokens_decoder();
        let vocab = hf.get_vocab(true);
        let len = vocab.values().max().map_or(0, |&id| id as usize + 1);
        // Real vocabularies are dense. One huge id would make the tables below huge.
        if len > 4 * vocab.len() + 65536 {
            return Err(TextError::Vocabulary(format!(
                "a vocabulary of {} tokens has the id {}",
                vocab.len(),
                len - 1
            )));
        }
        let mut names = vec![None; len];
        for (name, id) in vocab {
            let slot: &mut Option<String> = &mut names[id as usize];
            // Of two names for an id, always take the same one.
            if slot.as_ref().is_none_or(|other| name < *other) {
                *slot = Some(name);
            }
        }
        for (&id, token) in &added {
            names[id as usize] = Some(token.content.clone());
        }
        let decoder = serde_json::to_value(hf.get_decoder())
            .map_err(|e| TextError::Vocabulary(e.to_string()))?;
        let (join_rule, steps) = compile(&decoder).unwrap_or((JoinRule::WholeText, Vec::new()));
        let mut this = Self {
            join_rule,
            blob: Vec::new(),
            ends: Vec::with_capacity(len),
            kinds: Vec::with_capacity(len),
        };
        let alphabet = alphabet();
        for (id, name) in (0u32..).zip(&names) {
            let kind = match name {
                None => TokenKind::Absent,
                Some(name) => {
                    let kind = apply(&steps, &alphabet, name, &mut this.blob);
                    match added.get(&id) {
                        Some(token) if token.special && !is_mark(name) => TokenKind::Special,
                        _ => kind,
                    }
                }
            };
            this.kinds.push(kind);
            let end = u32::try_from(this.blob.len())
                .map_err(|_| TextError::Vocabulary("tokens are longer than 4 GiB".into()))?;
            this.ends.push(end);
        }
        Ok(this)
    }

    pub(super) fn join_rule(&self) -> &JoinRule {
        &self.join_rule
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Absent)
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.kind(id) == TokenKind::Special
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else {
            return &[];
        };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.blob[start as usize..end as usize]
    }
}

/// A step that decodes a token's name.
enum Step {
    /// Each character stands for a byte, as in byte-level BPE.
    ByteLevel,
    /// `<0x0A>` stands for a byte.
    ByteFallback,
    /// Replaces each occurrence of the first text by the second.
    Replace(String, String),
}

/// The join_rule that equals a decoder, if there is one: any number of replacements, then bytes, then
/// at most a strip at the start of the fused text.
fn compile(decoder: &Value) -> Option<(JoinRule, Vec<Step>)> {
    let list = match decoder {
        Value::Null => return Some((JoinRule::SpaceSeparated, Vec::new())),
        Value::Object(o) if o["type"] == "Sequence" => o.get("decoders")?.as_array()?.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut join_rule = JoinRule::Concat { character: ' ', count: 0 };
    let mut steps = Vec::new();
    let (mut bytes, mut fused) = (false, false);
    for step in list {
        match step["type"].as_str()? {
            "Replace" if !bytes && !fused => {
                let from = step["pattern"]["String"].as_str().filter(|s| !s.is_empty())?;
                steps.push(Step::Replace(from.into(), step["content"].as_str()?.into()));
            }
            "ByteFallback" if !bytes && !fused => {
                bytes = true;
                steps.push(Step::ByteFallback);
            }
            "ByteLevel" if !bytes && !fused => {
                (bytes, fused) = (true, true);
                steps.push(Step::ByteLevel);
            }
            "Metaspace" if list.len() == 1 => {
                let marker = single_char(&step["replacement"])?;
                steps.push(Step::Replace(marker.into(), " ".into()));
                if step["prepend_scheme"] != "never" {
                    join_rule = JoinRule::Metaspace { marker };
                }
            }
            "Fuse" => fused = true,
            "Strip" if fused && step["stop"] == 0 => {
                let JoinRule::Concat { count: 0, .. } = join_rule else {
                    return None;
                };
                join_rule = JoinRule::Concat {
                    character: single_char(&step["content"])?,
                    count: usize::try_from(step["start"].as_u64()?).ok()?,
                };
            }
            _ => return None,
        }
    }
    Some((join_rule, steps))
}

fn single_char(value: &Value) -> Option<char> {
    let mut chars = value.as_str()?.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Appends the bytes of a token to `out`, and returns its kind.
fn apply(steps: &[Step], alphabet: &Alphabet, token: &str, out: &mut Vec<u8>) -> TokenKind {
    let mut text = std::borrow::Cow::Borrowed(token);
    for step in steps {
        match step {
            Step::Replace(from, to) => {
                if text.contains(from.as_str()) {
                    text = text.replace(from.as_str(), to).into();
                }
            }
            Step::ByteFallback => {
                if let Some(byte) = byte_token(&text) {
                    out.push(byte);
                    return TokenKind::Byte;
                }
            }
            Step::ByteLevel => {
                let start = out.len();
                for c in text.chars() {
                    let Some(byte) = byte_of(alphabet, c) else {
                        // The names of added tokens are plain text.
                        out.truncate(start);
                        out.extend_from_slice(text.as_bytes());
                        break;
                    };
                    out.push(byte);
                }
                return TokenKind::Bytes;
            }
        }
    }
    out.extend_from_slice(text.as_bytes());
    TokenKind::Bytes
}

/// The byte of a byte token such as `<0x0A>`.
pub(super) fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// Byte-level BPE's table of bytes by character.
type Alphabet = [Option<u8>; 0x144];

/// Builds the table: printable Latin-1 characters stand for themselves, the other 68 bytes are counted
/// up from U+0100.
fn alphabet() -> Alphabet {
    let mut alphabet = [None; 0x144];
    let mut next = 0x100;
    for byte in 0..=255u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let character = if printable { usize::from(byte) } else { next };
        alphabet[character] = Some(byte);
        next += usize::from(!printable);
    }
    alphabet
}

fn byte_of(alphabet: &Alphabet, c: char) -> Option<u8> {
    alphabet.get(u32::from(c) as usize).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn byte_level_characters_are_a_bijection_with_the_bytes() {
        let alphabet = alphabet();
        let mut bytes: Vec<u8> =
            ByteLevel::alphabet().into_iter().filter_map(|c| byte_of(&alphabet, c)).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of(&alphabet, 'Ġ'), Some(b' '));
        assert_eq!(byte_of(&alphabet, 'Ċ'), Some(b'\n'));
        assert_eq!(byte_of(&alphabet, ' '), None);
        assert_eq!(byte_of(&alphabet, '▁'), None);
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(byte_token("<0xff>"), Some(255));
        for no in ["<0x0>", "<0x0AA>", "0x0A", "<0xé>", "<0xGG>", ""] {
            assert_eq!(byte_token(no), None, "{no}");
        }
    }
}
