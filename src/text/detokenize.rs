//! Ids in, text out, one at a time: never half a character, and what comes out is, put together,
//! exactly the text of all ids.

use super::Tokenizer;
use super::pieces::{Kind, Plan};

/// Turns a stream of ids into a stream of text. Special tokens are left out.
///
/// A push costs the length of its token, however long the text has grown. What cannot be text yet
/// (the first bytes of a character) waits for the next ids. Invalid bytes become U+FFFD as soon as
/// it is certain that they are invalid: one for each maximal part of a character where the
/// tokenizer is byte-level, one for each byte where bytes have tokens of their own.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    /// Bytes that may yet become a character: at most 3.
    pending: Vec<u8>,
    /// Whether `pending` came from tokens for single bytes.
    single: bool,
    /// No token has been seen that counts for the start of the text.
    fresh: bool,
    /// Characters that may yet be stripped from the start.
    strip: usize,
    /// All ids, where only the whole can be decoded.
    whole: Vec<u32>,
}

impl Detokenizer {
    /// A stream that starts at the start of a text.
    #[must_use]
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let strip = match tokenizer.pieces().plan() {
            Plan::Concat { count, .. } => *count,
            _ => 0,
        };
        Self {
            tokenizer: tokenizer.clone(),
            pending: Vec::new(),
            single: false,
            fresh: true,
            strip,
            whole: Vec::new(),
        }
    }

    /// The text that this id completes, perhaps none.
    #[must_use]
    pub fn push(&mut self, id: u32) -> String {
        let tokenizer = self.tokenizer.clone();
        let pieces = tokenizer.pieces();
        let kind = pieces.kind(id);
        if matches!(kind, Kind::Absent | Kind::Special) {
            return String::new();
        }
        let mut out = String::new();
        let fresh = std::mem::replace(&mut self.fresh, false);
        match pieces.plan() {
            Plan::Opaque => {
                self.whole.push(id);
                return out;
            }
            Plan::Metaspace { marker } if fresh => {
                let name = tokenizer.token(id).unwrap_or_default();
                return name.replace(*marker, "");
            }
            Plan::Joined if !fresh => out.push(' '),
            _ => {}
        }
        // A byte token cannot complete a character that another kind of token began.
        if self.single != (kind == Kind::Byte) {
            self.flush(&mut out);
        }
        self.single = kind == Kind::Byte;
        self.pending.extend_from_slice(pieces.bytes(id));
        self.drain(&mut out);
        self.strip_start(out)
    }

    /// The rest of the text, with U+FFFD for a character that was never completed. The stream is
    /// then at the start of a new text.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        if !self.whole.is_empty() {
            // A decoder fails only on names that it does not understand; there is no text then.
            out = self.tokenizer.hf().decode(&self.whole, true).unwrap_or_default();
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
                    rest = &rest[if self.single { 1 } else { bad }..];
                }
            }
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
    }

    /// Gives up on a character that cannot be completed any more.
    fn flush(&mut self, out: &mut String) {
        let count = if self.single { self.pending.len() } else { 1.min(self.pending.len()) };
        out.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, count));
        self.pending.clear();
    }

    /// Drops what the tokenizer had put in front of the text.
    fn strip_start(&mut self, mut out: String) -> String {
        let Plan::Concat { character, .. } = *self.tokenizer.pieces().plan() else {
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
