//! The escape `\/` in JSON texts, which llguidance does not know.
//!
//! JSON has it for a slash, and some models write it. Where a grammar's text would go on with the escape
//! `\u002f`, which means the same, a token with `\/` is allowed too, and llguidance reads the longer escape.

use llguidance::Matcher;
use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::toktrie::{SimpleVob, TokTrie};
use std::sync::Arc;

/// The longer escape, and what follows its backslash.
const ESCAPES: [&[u8]; 2] = [b"\\u002f", b"u002f"];
/// Most tokens that are tried in a step: the shortest ones.
const MOST: usize = 16;

/// Tokens of a vocabulary with the escape.
#[derive(Debug, Default)]
pub struct Slashes {
    /// Places at the beginning of a character, and after a backslash.
    places: [Place; 2],
    /// The bytes of all tokens: true for an odd number of backslashes at the end, and whether they are all.
    ends: Vec<(bool, bool)>,
}

#[derive(Debug, Default)]
struct Place {
    /// Tokens of the longer escape.
    escape: Vec<u32>,
    /// Tokens with `\/`, and what llguidance reads instead.
    tokens: Vec<(u32, Vec<u32>)>,
}

impl Slashes {
    /// Finds the tokens of a vocabulary.
    pub fn new(trie: &TokTrie, words: &[Vec<u8>]) -> Self {
        let read = |bytes: &[u8]| {
            let tokens = trie.greedy_tokenize(bytes);
            let word = |token: &u32| words.get(*token as usize).map(Vec::as_slice);
            let same = tokens.iter().filter_map(word).collect::<Vec<_>>().concat() == bytes;
            same.then_some(tokens)
        };
        let place = |escaped: bool| {
            let Some(escape) = read(ESCAPES[usize::from(escaped)]) else { return Place::default() };
            let has = |(_, word): &(u32, &Vec<u8>)| {
                word.windows(2).any(|pair| pair == b"\\/") || escaped && word.starts_with(b"/")
            };
            let mut found: Vec<_> = (0u32..).zip(words).filter(has).collect();
            found.sort_by_key(|(token, word)| (word.len(), *token));
            let tokens = found.into_iter().filter_map(|(token, word)| {
                let longer = longer(word, escaped);
                (longer != *word).then(|| Some((token, read(&longer)?))).flatten()
            });
            Place { escape, tokens: tokens.take(MOST).collect() }
        };
        let end = |word: &Vec<u8>| {
            let count = word.iter().rev().take_while(|&&byte| byte == b'\\').count();
            (count % 2 == 1, count == word.len())
        };
        Self { places: [false, true].map(place), ends: words.iter().map(end).collect() }
    }

    /// Returns true if a grammar has parts that are JSON.
    pub fn fit(grammar: &TopLevelGrammar) -> bool {
        let has_json = |lark: &String| lark.contains("%json");
        grammar.grammars.iter().any(|part| {
            part.json_schema.is_some() || part.lark_grammar.as_ref().is_some_and(has_json)
        })
    }

    /// True if a backslash that escapes what follows ends the text after this token.
    fn escapes(&self, token: u32, before: bool) -> bool {
        match self.ends.get(token as usize) {
            Some((odd, true)) => odd ^ before,
            Some((odd, false)) => *odd,
            None => false,
        }
    }
}

/// Returns a word with the longer escape for each `\/`. With `escaped`, a backslash stands before it.
fn longer(word: &[u8], mut escaped: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in word {
        match (escaped, byte) {
            (true, b'/') => out.extend(ESCAPES[1]),
            _ => out.push(byte),
        }
        escaped = !escaped && byte == b'\\';
    }
    out
}

/// A matcher that accepts `\/` where JSON may have it.
pub struct SlashMatcher {
    matcher: Matcher,
    slashes: Option<Arc<Slashes>>,
    /// Number of tokens that the matcher read for each token, and true if an escaping backslash ends it.
    read: Vec<(usize, bool)>,
}

impl SlashMatcher {
    /// Makes the matcher of one output; without `slashes` it is llguidance's alone.
    pub fn new(matcher: Matcher, slashes: Option<Arc<Slashes>>) -> Self {
        Self { matcher, slashes, read: Vec::new() }
    }

    /// Returns a copy with a state of its own.
    pub fn deep_clone(&self) -> Self {
        let (slashes, read) = (self.slashes.clone(), self.read.clone());
        Self { matcher: self.matcher.deep_clone(), slashes, read }
    }

    /// Removes the last tokens. The reason to stop has the error.
    pub fn remove(&mut self, tokens: usize) {
        let mut count = tokens;
        if self.slashes.is_some() {
            let kept = self.read.len().saturating_sub(tokens);
            count = self.read.drain(kept..).map(|(count, _)| count).sum();
        }
        if count > 0 {
            let _ = self.matcher.rollback(count);
        }
    }

    /// Reads tokens. The reason to stop has the error.
    pub fn read(&mut self, tokens: &[u32]) {
        let Some(slashes) = self.slashes.clone() else {
            if !tokens.is_empty() {
                let _ = self.matcher.consume_tokens(tokens);
            }
            return;
        };
        for &token in tokens {
            let escaped = self.is_escaped();
            let longer = slashes.places[usize::from(escaped)].tokens.iter();
            let longer =
                longer.clone().find(|(other, _)| *other == token).map(|(_, longer)| longer);
            let read = match longer {
                Some(longer) if !self.may_read(&[token]) => longer.as_slice(),
                _ => &[token],
            };
            let _ = self.matcher.consume_tokens(read);
            self.read.push((read.len(), slashes.escapes(token, escaped)));
        }
    }

    /// Returns why the text cannot go on.
    pub fn stop_reason(&self) -> StopReason {
        self.matcher.stop_reason()
    }

    /// Returns the error of a grammar that cannot go on.
    pub fn error(&self) -> Option<String> {
        self.matcher.get_error()
    }

    /// Returns the tokens that may follow.
    ///
    /// # Errors
    /// If the grammar became too complex.
    pub fn mask(&mut self) -> Result<SimpleVob, String> {
        let mut set = self.matcher.compute_mask().map_err(|error| error.to_string())?;
        if let Some(slashes) = self.slashes.clone() {
            let place = &slashes.places[usize::from(self.is_escaped())];
            let new = |(token, _): &&(u32, Vec<u32>)| !set.is_allowed(*token);
            let new: Vec<_> = place.tokens.iter().filter(new).collect();
            if !new.is_empty() && self.may_read(&place.escape) {
                for (token, longer) in new {
                    if self.may_read(longer) {
                        set.allow_token(*token);
                    }
                }
            }
        }
        Ok(set)
    }

    fn is_escaped(&self) -> bool {
        self.read.last().is_some_and(|(_, escaped)| *escaped)
    }

    fn may_read(&mut self, tokens: &[u32]) -> bool {
        self.matcher.validate_tokens(tokens).is_ok_and(|count| count == tokens.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_get_the_longer_escape() {
        for (word, escaped, want) in [
            ("a/b", false, "a/b"),
            ("a\\/b", false, "a\\u002fb"),
            (":\\/\\/", false, ":\\u002f\\u002f"),
            ("\\\\/", false, "\\\\/"),
            ("/b", true, "u002fb"),
            ("\\/", true, "\\/"),
        ] {
            let longer = longer(word.as_bytes(), escaped);
            assert_eq!(String::from_utf8_lossy(&longer), want, "{word} {escaped}");
        }
    }
}
