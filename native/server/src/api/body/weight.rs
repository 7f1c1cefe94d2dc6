//! Estimates the memory of a JSON text as a tree of values before it is parsed. A tree can take 80
//! times as much as its text: `{"":0}` is six bytes, and its object has room for several entries.

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;
use std::cell::Cell;
use std::fmt;

/// Maximum estimated memory of the values of one body, in bytes. Texts are not counted: they take as
/// much memory as in the body.
pub const LIMIT: usize = 8 << 20;
/// Estimated memory of a value.
const VALUE: usize = 72;
/// Estimated memory of an object besides its entries: the smallest allocations of a map.
const OBJECT: usize = 300;
/// Estimated memory of an entry besides its value.
const ENTRY: usize = 64;
/// Fields of a body whose numbers are token ids. They are parsed into plain arrays, unless texts stand
/// next to them.
const TOKEN_FIELDS: [&str; 3] = ["prompt", "input", "tokens"];
/// Arrays around token ids: a list of prompts, and a prompt.
const TOKEN_ARRAYS: usize = 2;
/// A field whose text is JSON and will be parsed.
const JSON_TEXT: &str = "arguments";

/// Reason why a body is refused.
#[derive(Debug)]
pub enum Refused {
    /// The text is not JSON.
    Syntax(serde_json::Error),
    /// The text is JSON, but no object.
    NoObject,
    /// The values would take more memory than [`LIMIT`].
    TooHeavy,
}

/// Checks that `json` is an object whose values take a bounded amount of memory.
///
/// # Errors
/// See [`Refused`].
pub fn check(json: &[u8]) -> Result<(), Refused> {
    let left = Cell::new(Some(LIMIT));
    let mut deserializer = Deserializer::from_slice(json);
    let root = Weigh { left: &left, nesting: Nesting::Root };
    let object = root.deserialize(&mut deserializer).and_then(|_| deserializer.end());
    match object {
        Err(_) if left.get().is_none() => Err(Refused::TooHeavy),
        Err(error) => Err(Refused::Syntax(error)),
        Ok(()) if json.trim_ascii_start().first() != Some(&b'{') => Err(Refused::NoObject),
        Ok(()) => Ok(()),
    }
}

/// The place of a value in a body.
#[derive(Clone, Copy, PartialEq)]
enum Nesting {
    Root,
    /// In a field of token ids, within so many arrays that may hold them.
    Tokens(usize),
    /// A text that is JSON itself.
    JsonText,
    Other,
}

/// Subtracts the memory of a value from what is left. Returns whether the value was a token id, which
/// costs nothing so far.
#[derive(Clone, Copy)]
struct Weigh<'a> {
    /// Memory that is left; `None` once it is used up.
    left: &'a Cell<Option<usize>>,
    nesting: Nesting,
}

impl Weigh<'_> {
    fn spend<E: Error>(self, bytes: usize) -> Result<bool, E> {
        let left = self.left.get().and_then(|left| left.checked_sub(bytes));
        self.left.set(left);
        left.map(|_| false).ok_or_else(|| E::custom("too many values"))
    }

    fn number<E: Error>(self) -> Result<bool, E> {
        let is_token = matches!(self.nesting, Nesting::Tokens(arrays) if arrays < TOKEN_ARRAYS);
        if is_token { Ok(true) } else { self.spend(VALUE) }
    }
}

impl<'de> DeserializeSeed<'de> for Weigh<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weigh<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        self.spend(VALUE)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<bool, E> {
        self.spend(VALUE)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<bool, E> {
        self.number()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<bool, E> {
        self.number()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<bool, E> {
        self.number()
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        self.spend(VALUE)?;
        if self.nesting == Nesting::JsonText {
            let inner = Weigh { nesting: Nesting::Other, ..self };
            // What is no JSON is refused where it is parsed, with the name of its field.
            let _ = inner.deserialize(&mut Deserializer::from_str(text));
        }
        self.spend(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        self.spend(VALUE)?;
        let nesting = match self.nesting {
            Nesting::Tokens(arrays) if arrays > 0 => Nesting::Tokens(arrays - 1),
            _ => Nesting::Other,
        };
        let (mut ids, mut plain) = (0, true);
        while let Some(is_token) = list.next_element_seed(Weigh { nesting, ..self })? {
            if is_token { ids += 1 } else { plain = false }
        }
        self.spend(if plain { 0 } else { ids * VALUE })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        self.spend(OBJECT)?;
        while let Some(nesting) = map.next_key_seed(Key(self.nesting))? {
            self.spend(ENTRY)?;
            map.next_value_seed(Weigh { nesting, ..self })?;
        }
        Ok(false)
    }
}

/// Parses a key of an object at this place to the place of its value.
struct Key(Nesting);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Nesting;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Nesting, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Nesting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Nesting, E> {
        Ok(match self.0 {
            Nesting::Root if TOKEN_FIELDS.contains(&key) => Nesting::Tokens(TOKEN_ARRAYS),
            _ if key == JSON_TEXT => Nesting::JsonText,
            _ => Nesting::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(begin: &str, part: &str, end: &str) -> Vec<u8> {
        let count = (4 << 20) / part.len();
        format!("{begin}{}{end}", vec![part; count].join(",")).into()
    }

    #[test]
    fn heavy_values_are_refused_and_long_texts_are_not() {
        for part in ["0", "[]", "{\"\":0}", "\"\"", "{}", "{\"type\":\"text\",\"text\":\"\"}"] {
            for field in ["x", "messages", "tools", "metadata"] {
                let body = repeated(&format!("{{\"{field}\":["), part, "]}");
                assert!(matches!(check(&body), Err(Refused::TooHeavy)), "{field}: {part}");
            }
        }
        let arguments = repeated("{\"messages\":[{\"arguments\":\"[", "0", "]\"}]}");
        assert!(matches!(check(&arguments), Err(Refused::TooHeavy)));
        assert!(check(&repeated("{\"prompt\":[", "0", "]}")).is_ok(), "a prompt of tokens");
        assert!(check(&repeated("{\"input\":[[", "0", "]]}")).is_ok(), "a list of them");
        for mixed in ["{\"prompt\":[\"a\",", "{\"input\":[[\"a\","] {
            let end = if mixed.contains("[[") { "]]}" } else { "]}" };
            assert!(matches!(check(&repeated(mixed, "0", end)), Err(Refused::TooHeavy)), "{mixed}");
        }
        let last = repeated("{\"prompt\":[", "0", ",\"a\"]}");
        assert!(matches!(check(&last), Err(Refused::TooHeavy)), "a text after tokens");
        let deep = repeated("{\"prompt\":[[[", "0", "]]]}");
        assert!(matches!(check(&deep), Err(Refused::TooHeavy)));
        let text = "word, {word}: [word] ".repeat(200_000);
        assert!(check(format!("{{\"prompt\":\"{text}\"}}").as_bytes()).is_ok());
    }

    #[test]
    fn the_root_is_an_object() {
        assert!(check(b" {\"a\": [1, {\"b\": null}]} \n").is_ok());
        assert!(matches!(check(b"[]"), Err(Refused::NoObject)));
        for wrong in ["", "{", "{} x", "{\"a\":}", "\u{0}", "{\"a\":\"\\ud800\"}"] {
            assert!(matches!(check(wrong.as_bytes()), Err(Refused::Syntax(_))), "{wrong}");
        }
        assert!(matches!(check(b"{\"a\":\"\xff\"}"), Err(Refused::Syntax(_))));
        let nested = [vec![b'['; 200], vec![b']'; 200]].concat();
        let nested = [&b"{\"a\":"[..], &nested, b"}"].concat();
        assert!(matches!(check(&nested), Err(Refused::Syntax(_))), "too deep");
    }
}
