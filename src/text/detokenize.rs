//! Incremental detokenizer: turns token ids into text, one id at a time. It never returns part of a
//! character, and the concatenated output is exactly the text of all ids.

use super::Tokenizer;
use super::token_bytes::{JoinRule, TokenKind};

/// Turns a stream of token ids into a stream of text, without special tokens.
///
/// The cost of a push depends on the length of its token, not of the text. The first bytes of a
/// character wait for the next ids. Invalid bytes become U+FFFD as soon as they are certain to be
/// invalid: one per maximal part of a character for a byte-level tokenizer, one per byte for tokens of
/// single bytes.
///
/// ```
/// # use wrinklefree::text::Tokenizer;
/// use wrinklefree::text::Detokenizer;
/// # let json = br#"{"model": {"type": "BPE", "vocab": {"<0xC3>": 0, "<0xA9>": 1, "ok": 2},
/// #     "merges": []}, "decoder": {"type": "ByteFallback"}}"#;
/// # let tokenizer = Tokenizer::from_json(json)?;
///
/// let mut stream = Detokenizer::new(&tokenizer);
/// assert_eq!(stream.push(0), ""); // `<0xC3>`: the first byte of "é"
/// assert_eq!(stream.push(1), "é"); // `<0xA9>`
/// assert_eq!(stream.push(2), "ok");
/// assert_eq!(stream.finish(), "");
/// # Ok::<(), wrinklefree::text::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    /// First bytes of an incomplete character; at most 3.
    pending: Vec<u8>,
    /// True if `pending` came from tokens for single bytes.
    from_byte_tokens: bool,
    /// True until the first token of text.
    at_start: bool,
    /// Number of characters that may still be stripped from the start.
    strip: usize,
    /// All ids, where only a whole text can be decoded.
    all_ids: Vec<u32>,
}

impl Detokenizer {
    /// Creates a detokenizer at the start of a text.
    #[must_use]
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let strip = match tokenizer.token_bytes().join_rule() {
            JoinRule::Concat { count, .. } => *count,
            _ => 0,
        };
        Self {
            tokenizer: tokenizer.clone(),
            pending: Vec::new(),
            from_byte_tokens: false,
            at_start: true,
            strip,
            all_ids: Vec::new(),
        }
    }

    /// Adds an id, and returns the text that it completes, which may be empty.
    #[must_use]
    pub fn push(&mut self, id: u32) -> String {
        let tokenizer = self.tokenizer.clone();
        let token_bytes = tokenizer.token_bytes();
        let kind = token_bytes.kind(id);
        if matches!(kind, TokenKind::Absent | TokenKind::Special) {
            return String::new();
        }
        let mut out = String::new();
        let at_start = std::mem::replace(&mut self.at_start, false);
        match token_bytes.join_rule() {
            JoinRule::WholeText => {
                self.all_ids.push(id);
                return out;
            }
            JoinRule::Metaspace { marker } if at_start => {
                let name = tokenizer.token(id).unwrap_or_default();
                return name.replace(*marker, "");
            }
            JoinRule::SpaceSeparated if !at_start => out.push(' '),
            _ => {}
        }
        // A byte token cannot complete a character that another kind of token began.
        if self.from_byte_tokens != (kind == TokenKind::Byte) {
            self.flush(&mut out);
        }
        self.from_byte_tokens = kind == TokenKind::Byte;
        self.pending.extend_from_slice(token_bytes.bytes(id));
        self.drain(&mut out);
        self.strip_start(out)
    }

    /// Ends the text, and returns its rest, with U+FFFD for an incomplete character. The next id starts
    /// a new text.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        if !self.all_ids.is_empty() {
            // Decoders fail only on token names that they do not understand, which give no text.
            out = self.tokenizer.hf().decode(&self.all_ids, true).unwrap_or_default();
        }
        self.flush(&mut out);
        let out = self.strip_start(out);
        *self = Self::new(&self.tokenizer);
        out
    }

    /// Moves complete characters from `pending` to `out`.
    fn drain(&mut self, out: &mut String) {
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, tail) = rest.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(valid).expect("checked just above"));
                    rest = tail;
                    let Some(bad) = error.error_len() else { break };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[if self.from_byte_tokens { 1 } else { bad }..];
                }
            }
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
    }

    /// Replaces an incomplete character by U+FFFD.
    fn flush(&mut self, out: &mut String) {
        let count =
            if self.from_byte_tokens { self.pending.len() } else { 1.min(self.pending.len()) };
        out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, count));
        self.pending.clear();
    }

    /// Drops the characters that encoding adds in front of a text.
    fn strip_start(&mut self, mut out: String) -> String {
        let JoinRule::Concat { character, .. } = *self.tokenizer.token_bytes().join_rule() else {
            return out;
        };
        let mut cut = 0;
        for c in out.chars() {
            if self.strip == 0 {
                break;
            }
            if c != character {
                self.strip = 0;
                break;
            }
            self.strip -= 1;
            cut += c.len_utf8();
        }
        out.drain(..cut);
        out
    }
}
