//! Keeps control tokens out of the texts of messages.
//!
//! A tokenizer turns `<|eot_id|>` into the token that ends a turn, wherever it stands, so a message
//! could forge turns. Before rendering, the first character of each control token in a message is
//! replaced by a character that occurs nowhere, a mark. After rendering, the tokenizer finds the control
//! tokens of the template alone. Then the characters come back, and the texts between these tokens are
//! encoded without a search for control tokens.

use super::token_bytes::CALL_MARKS;
use super::{RenderOptions, TextError, Tokenizer};
use daachorse::{DoubleArrayAhoCorasick, DoubleArrayAhoCorasickBuilder};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use tokenizers::tokenizer::pre_tokenizer::Split;
use tokenizers::tokenizer::{
    Model, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, Token,
};

/// A rendered prompt. Control tokens that come from messages are text in it.
#[derive(Clone)]
pub struct Prompt {
    pub(super) text: String,
    /// Tells control tokens of the template from those of messages; `None`: all in the text are tokens.
    marked: Option<Arc<MarkedText>>,
    /// The control tokens of the model.
    pub(super) control: Option<Arc<ControlTokens>>,
}

/// A rendered text in which marks stand for the first characters of messages' control tokens. Its tokens are
/// searched when they are encoded: that takes many times the text, which may be refused for its length.
struct MarkedText {
    rendered: String,
    marks: Marks,
}

/// The place of a control token in a text, and its id.
pub(super) type PlacedToken = (Range<usize>, u32);

impl Prompt {
    /// A prompt in which the text of a control token is that token.
    pub(super) fn plain(text: String, control: Option<Arc<ControlTokens>>) -> Self {
        Self { text, marked: None, control }
    }

    /// The rendered text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the first `end` bytes of the prompt, which must end between characters.
    ///
    /// # Panics
    /// If `end` is after the text or inside a character.
    #[must_use]
    pub fn truncated(mut self, end: usize) -> Self {
        assert!(self.text.is_char_boundary(end), "{end} is no place between characters");
        self.text.truncate(end);
        self
    }

    /// Returns the places of the template's control tokens; `None`: all in the text are tokens.
    pub(super) fn places(&self) -> Option<Vec<PlacedToken>> {
        let (marked, control) = (self.marked.as_ref()?, self.control.as_ref()?);
        let mut places = control.template_tokens(&marked.rendered, &marked.marks);
        places.retain(|(place, _)| place.end <= self.text.len());
        Some(places)
    }

    /// Encodes the prompt, without the tokens that a tokenizer adds around texts.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
        match (self.places(), &self.control) {
            (Some(places), Some(control)) => {
                let known: Vec<_> = places
                    .iter()
                    .map(|(place, id)| (place.clone(), std::slice::from_ref(id)))
                    .collect();
                control.encode(&self.text, &known)
            }
            _ => tokenizer.encode(&self.text, false),
        }
    }

    /// Number of the prompt's first tokens, of `tokens` in total, that the next turn begins with. `bare` is
    /// the text of the same conversation without the generation prompt, which templates replace.
    #[must_use]
    pub fn stable_prefix(&self, bare: &str, tokens: usize, tokenizer: &Tokenizer) -> Option<usize> {
        let same = self.text.chars().zip(bare.chars()).take_while(|(a, b)| a == b);
        let shared = same.map(|(a, _)| a.len_utf8()).sum::<usize>();
        // Only the rest is tokenized again: conversations are long.
        let rest = tokenizer.encode(&self.text[shared..], false).ok()?;
        Some(tokens.saturating_sub(rest.len()))
    }
}

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prompt").field("text", &self.text).finish_non_exhaustive()
    }
}

/// Author of a text. It decides which control tokens are text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    /// A user, a tool or a document.
    Stranger,
    /// The author of the system prompt and of the tools, who may describe the marks of the format.
    Operator,
    /// The model. Its text has no special tokens, but the marks that it writes (`</think>`).
    Model,
}

/// The control tokens of a model and its template.
pub(super) struct ControlTokens {
    tokenizer: Tokenizer,
    /// Finds special tokens, and those that the template writes. `None`: there are no tokens.
    search: Option<DoubleArrayAhoCorasick<u32>>,
    tokens: Vec<ControlToken>,
    /// Beginnings of tokens: a text that ends so could begin a token.
    starts: HashMap<Box<str>, Class>,
    /// Ends of tokens: a role that begins so could end a token.
    ends: HashSet<Box<str>>,
    longest: usize,
    /// Ids that no text may have.
    refused: HashSet<u32>,
    /// Ids of all tokens that the tokenizer finds before it reads a text.
    added: HashSet<u32>,
    /// True if the tokenizer also finds control tokens in normalized texts.
    normalizes: bool,
}

struct ControlToken {
    text: String,
    class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// A token that is no text for the tokenizer, but that the template reads in answers.
    Read,
    /// A token that is text for the tokenizer, and that the template writes (`<think>`).
    Mark,
    /// A token that is no text for the tokenizer, or that the caller names.
    Special,
}

/// Returns true for a mark that begins a turn (`<｜User｜>`), which nobody else than the template writes.
fn names_author(mark: &str) -> bool {
    let mark = mark.to_lowercase();
    ["user", "system", "assistant", "developer", "human"].iter().any(|name| mark.contains(name))
}

impl Author {
    /// Returns true if a token of this class in this author's text is text.
    fn writes_as_text(self, class: Class) -> bool {
        match self {
            Self::Stranger => true,
            Self::Operator => class != Class::Mark,
            Self::Model => class == Class::Special,
        }
    }
}

impl ControlTokens {
    /// Finds the control tokens: the tokenizer's special ones, those of `ids`, and other added tokens
    /// that the template's `source` writes. `read` are the texts that it looks for in messages.
    pub(super) fn new(tokenizer: &Tokenizer, ids: &[u32], source: &str, read: &[String]) -> Self {
        let added = tokenizer.hf().get_added_tokens_decoder();
        let mut tokens: Vec<(u32, ControlToken)> = Vec::new();
        let normalizes = added.values().any(|token| token.special && token.normalized);
        let normalizes = normalizes && tokenizer.hf().get_normalizer().is_some();
        let is_read = |text: &str| read.iter().any(|read| read.contains(text));
        for (&id, token) in &added {
            let call_mark = CALL_MARKS.contains(&token.content.as_str());
            let class = match (ids.contains(&id), token.special && !call_mark) {
                (true, _) => Class::Special,
                (false, true) if is_read(&token.content) => Class::Read,
                (false, true) => Class::Special,
                (false, false) if !source.contains(token.content.as_str()) => continue,
                (false, false) if names_author(&token.content) => Class::Special,
                (false, false) => Class::Mark,
            };
            tokens.push((id, ControlToken { text: token.content.clone(), class }));
        }
        for &id in ids.iter().filter(|id| !added.contains_key(id)) {
            // Words that end a text are words in messages.
            let text = std::str::from_utf8(tokenizer.bytes(id)).unwrap_or_default();
            if text.starts_with(['<', '[']) && text.ends_with(['>', ']']) {
                tokens.push((id, ControlToken { text: text.into(), class: Class::Special }));
            }
        }
        // White space is text for everybody.
        tokens.retain(|(_, token)| !token.text.trim().is_empty());
        tokens.sort_by(|a, b| (&a.1.text, a.0).cmp(&(&b.1.text, b.0)));
        let special = tokens.iter().filter(|(_, token)| token.class != Class::Mark);
        let refused = special.map(|(id, _)| *id).collect();
        tokens.dedup_by(|a, b| a.1.text == b.1.text);
        let tokens: Vec<ControlToken> = tokens.into_iter().map(|(_, token)| token).collect();
        let (mut starts, mut ends) = (HashMap::new(), HashSet::new());
        for token in &tokens {
            for (at, _) in token.text.char_indices().skip(1) {
                let start = starts.entry(token.text[..at].into()).or_insert(token.class);
                *start = token.class.max(*start);
                ends.insert(token.text[at..].into());
            }
        }
        let patterns = (0u32..).zip(&tokens).map(|(at, token)| (token.text.as_str(), at));
        let search = DoubleArrayAhoCorasickBuilder::new().build_with_values(patterns).ok();
        let longest = tokens.iter().map(|token| token.text.len()).max().unwrap_or(0);
        let (tokenizer, added) = (tokenizer.clone(), added.into_keys().collect());
        Self { tokenizer, search, tokens, starts, ends, longest, refused, added, normalizes }
    }

    /// Marks the control tokens in the texts of a conversation. Returns the marks, or `None` if there are
    /// no such tokens.
    ///
    /// # Errors
    /// When all characters for private use occur in the conversation.
    pub(super) fn mark(
        &self,
        source: &str,
        messages: &mut Value,
        options: &mut RenderOptions,
    ) -> Result<Option<Marks>, TextError> {
        let mut finder = Finder { control: self, found: BTreeSet::new(), normalized: false };
        finder.conversation(messages, options);
        if finder.found.is_empty() && !finder.normalized {
            return Ok(None);
        }
        let used = Used::of(source, messages, options);
        let marks = Marks::new(&finder.found, &used)?;
        visit(messages, options, &mut |text, author, is_role| {
            let mut count = 0;
            self.each_place(text, author, is_role, &mut |_| count += 1);
            if count == 0 {
                return;
            }
            // A mark has three bytes, and replaces one at least.
            let (mut marked, mut done) = (String::with_capacity(text.len() + 2 * count), 0);
            self.each_place(text, author, is_role, &mut |at| {
                let Some(character) = text[at..].chars().next() else { return };
                marked.push_str(&text[done..at]);
                marked.push(marks.of(character));
                done = at + character.len_utf8();
            });
            *text = marked + &text[done..];
        });
        Ok(Some(marks))
    }

    /// Calls a function for each place in a text where a control token begins, or could begin or end together
    /// with what the template puts around the text: once, in order. There may be as many as bytes, so they
    /// are not kept.
    fn each_place(&self, text: &str, author: Author, is_role: bool, each: &mut dyn FnMut(usize)) {
        // Tokens are found in the order of their ends, so the places of the last few may still change.
        let mut last = BTreeSet::new();
        let mut heads = text.char_indices().map(|(at, _)| at).take_while(|at| *at < self.longest);
        if is_role && heads.any(|end| self.ends.contains(&text[..end])) {
            last.insert(0);
        }
        for found in self.search.iter().flat_map(|search| search.find_overlapping_iter(text)) {
            if author.writes_as_text(self.tokens[found.value() as usize].class) {
                last.insert(found.start());
            }
            let later = last.split_off(&found.end().saturating_sub(self.longest));
            std::mem::replace(&mut last, later).into_iter().for_each(&mut *each);
        }
        let limit = text.len().saturating_sub(self.longest);
        for (at, _) in text.char_indices().rev().take_while(|(at, _)| *at >= limit) {
            let class = self.starts.get(&text[at..]);
            if class.is_some_and(|class| author.writes_as_text(*class)) {
                last.insert(at);
            }
        }
        // A role that is empty has no place.
        last.into_iter().filter(|at| *at < text.len()).for_each(each);
    }

    /// Puts the characters back into a rendered text. Tokens in it are those of the template alone.
    pub(super) fn prompt(self: &Arc<Self>, rendered: String, marks: Marks) -> Prompt {
        let mut text = String::with_capacity(rendered.len());
        marks.restore(&rendered, &mut text);
        let marked = Some(Arc::new(MarkedText { rendered, marks }));
        Prompt { text, marked, control: Some(self.clone()) }
    }

    /// Finds the control tokens of the template, with their places in the restored text.
    fn template_tokens(&self, rendered: &str, marks: &Marks) -> Vec<PlacedToken> {
        let hf = self.tokenizer.hf();
        let pieces = hf.get_added_vocabulary().extract_and_normalize(hf.get_normalizer(), rendered);
        let (mut text, mut control, mut done) = (String::new(), Vec::new(), 0);
        for (_, (start, end), tokens) in
            pieces.get_splits(OffsetReferential::Original, OffsetType::Byte)
        {
            let Some(token) = tokens.as_ref().and_then(|tokens| tokens.first()) else { continue };
            marks.restore(&rendered[done..start], &mut text);
            let begin = text.len();
            marks.restore(&rendered[start..end], &mut text);
            control.push((begin..text.len(), token.id));
            done = end;
        }
        control
    }

    /// Finds the control tokens of a text in which all of them are tokens.
    pub(super) fn locate(&self, text: &str) -> Vec<PlacedToken> {
        self.template_tokens(text, &Marks(Vec::new()))
    }

    /// Returns true for a token that the tokenizer finds before it reads a text.
    pub(super) fn is_added(&self, id: u32) -> bool {
        self.added.contains(&id)
    }

    /// Encodes a text in which the tokens of some places are known. All else is text.
    pub(super) fn encode(
        &self,
        text: &str,
        known: &[(Range<usize>, &[u32])],
    ) -> Result<Vec<u32>, TextError> {
        let bad = |e: tokenizers::Error| TextError::Encode(e.to_string());
        let hf = self.tokenizer.hf();
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, whole| Ok(cut(&whole, known))).map_err(bad)?;
        if let Some(normalizer) = hf.get_normalizer() {
            pieces.normalize(|piece| normalizer.normalize(piece)).map_err(bad)?;
        }
        if let Some(pre_tokenizer) = hf.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(bad)?;
        }
        let model = hf.get_model();
        let encode = |piece: &NormalizedString| {
            let tokens = model.tokenize(piece.get())?;
            if !tokens.iter().any(|token| self.refused.contains(&token.id)) {
                return Ok(tokens);
            }
            // Some vocabularies merge the characters of a control token.
            let characters = piece.get().chars();
            let tokens = characters.map(|c| model.tokenize(c.encode_utf8(&mut [0; 4])));
            Ok(tokens.collect::<Result<Vec<_>, _>>()?.concat())
        };
        pieces.tokenize(encode).map_err(bad)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(bad)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns true if the tokenizer finds a control token in a text after normalization.
    fn found_normalized(&self, text: &str) -> bool {
        let hf = self.tokenizer.hf();
        let pieces = hf.get_added_vocabulary().extract_and_normalize(hf.get_normalizer(), text);
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let ids = splits.into_iter().flat_map(|(_, _, tokens)| tokens.iter().flatten());
        ids.into_iter().any(|token| self.refused.contains(&token.id))
    }
}

/// Cuts a text at the places whose tokens are known.
fn cut(whole: &NormalizedString, known: &[(Range<usize>, &[u32])]) -> Vec<Split> {
    let piece = |range: Range<usize>| {
        whole.slice(tokenizers::tokenizer::normalizer::Range::Original(range))
    };
    let mut out = Vec::new();
    let mut done = 0;
    for (range, ids) in known {
        out.extend(piece(done..range.start).map(Split::from));
        if let Some(token) = piece(range.clone()) {
            let length = token.get().len();
            // Nobody reads the texts and places of the tokens.
            let tokens = ids.iter().map(|&id| Token::new(id, String::new(), (0, length)));
            out.push(Split::from((token, Some(tokens.collect()))));
        }
        done = range.end;
    }
    out.extend(piece(done..whole.get_original().len()).map(Split::from));
    out
}

/// Finds the first characters of control tokens.
struct Finder<'a> {
    control: &'a ControlTokens,
    found: BTreeSet<char>,
    /// True if the tokenizer finds a token in a text that it normalized.
    normalized: bool,
}

impl Finder<'_> {
    fn conversation(&mut self, messages: &mut Value, options: &mut RenderOptions) {
        visit(messages, options, &mut |text, author, is_role| {
            let found = &mut self.found;
            self.control.each_place(text, author, is_role, &mut |at| {
                found.extend(text[at..].chars().next());
            });
            self.normalized |= self.control.normalizes && self.control.found_normalized(text);
        });
    }
}

/// Calls a function for each text of a conversation, with its author and true for roles.
fn visit(
    messages: &mut Value,
    options: &mut RenderOptions,
    each: &mut dyn FnMut(&mut String, Author, bool),
) {
    for message in messages.as_array_mut().into_iter().flatten() {
        let author = match message["role"].as_str() {
            Some("system" | "developer") => Author::Operator,
            Some("assistant" | "model") => Author::Model,
            _ => Author::Stranger,
        };
        visit_texts(message, author, true, each);
    }
    if let Some(documents) = &mut options.documents {
        visit_texts(documents, Author::Stranger, false, each);
    }
    for operators in options.tools.iter_mut().chain(options.variables.values_mut()) {
        visit_texts(operators, Author::Operator, false, each);
    }
}

/// Calls a function for each text in a value, keys included.
fn visit_texts(
    value: &mut Value,
    author: Author,
    is_message: bool,
    each: &mut dyn FnMut(&mut String, Author, bool),
) {
    match value {
        Value::String(text) => each(text, author, false),
        Value::Array(items) => {
            items.iter_mut().for_each(|item| visit_texts(item, author, false, each));
        }
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(role) if is_message && key == "role" => each(role, author, true),
                    value => visit_texts(value, author, false, each),
                }
            }
            let mut changed = |key: &String| {
                let mut new = key.clone();
                each(&mut new, author, false);
                new
            };
            if map.keys().any(|key| changed(key) != *key) {
                let pairs = std::mem::take(map).into_iter();
                *map = pairs.map(|(key, value)| (changed(&key), value)).collect();
            }
        }
        _ => {}
    }
}

/// Characters for private use that occur somewhere, also escaped as `\uXXXX`.
#[derive(Default)]
pub(super) struct Used(HashSet<char>);

impl Used {
    /// Finds those of a template's `source` and of a conversation.
    pub(super) fn of(source: &str, messages: &Value, options: &RenderOptions) -> Self {
        let mut used = Self::default();
        used.add(source);
        let (mut messages, mut options) = (messages.clone(), options.clone());
        visit(&mut messages, &mut options, &mut |text, _, _| used.add(text));
        used
    }

    /// Returns a character that does not occur, and counts it as one that does.
    pub(super) fn take_free(&mut self) -> Option<char> {
        let mut free = PRIVATE.filter(|c| !self.0.contains(c));
        free.next().inspect(|c| {
            self.0.insert(*c);
        })
    }

    fn add(&mut self, text: &str) {
        self.0.extend(text.chars().filter(|c| PRIVATE.contains(c)));
        for (at, _) in text.match_indices("\\u") {
            let digits = text.get(at + 2..at + 6);
            let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            self.0.extend(code.and_then(char::from_u32));
        }
    }
}

/// Characters for private use, of which marks are taken.
const PRIVATE: std::ops::RangeInclusive<char> = '\u{e000}'..='\u{f8ff}';

/// Characters, their marks, and how templates escape the marks.
#[derive(Debug)]
pub(super) struct Marks(Vec<(char, char, String)>);

impl Marks {
    fn new(characters: &BTreeSet<char>, used: &Used) -> Result<Self, TextError> {
        let mut free = PRIVATE.filter(|c| !used.0.contains(c));
        let triples = characters.iter().map(|&character| {
            let mark = free.next()?;
            Some((character, mark, format!("\\u{:04x}", u32::from(mark))))
        });
        let triples: Option<Vec<_>> = triples.collect();
        triples.map(Self).ok_or_else(|| {
            TextError::Encode("the conversation uses every character for private use".into())
        })
    }

    fn of(&self, character: char) -> char {
        let found = self.0.iter().find(|(from, ..)| *from == character);
        found.map_or(character, |(_, mark, _)| *mark)
    }

    /// Appends a text with the characters instead of their marks, which templates may have escaped.
    fn restore(&self, text: &str, out: &mut String) {
        let mut rest = text;
        while let Some(at) = rest.find(|c| c == '\\' || PRIVATE.contains(&c)) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let (mut length, mut restored) = (rest.chars().next().map_or(1, char::len_utf8), None);
            for (character, mark, escaped) in &self.0 {
                if rest.starts_with(*mark) {
                    restored = Some(*character);
                } else if rest.starts_with(escaped.as_str()) {
                    (length, restored) = (escaped.len(), Some(*character));
                }
            }
            match restored {
                Some(character) => out.push(character),
                None => out.push_str(&rest[..length]),
            }
            rest = &rest[length..];
        }
        out.push_str(rest);
    }
}
