//! Outputs that keep to a grammar, by llguidance: it says for each token which ones may follow.

use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, thread};
use wrinklefree::decode::{Constraint, Next};
use wrinklefree::text::Tokenizer;

/// States of a grammar's lexer at most, of 1 to 2 kB each.
const LEXER_STATES: usize = 20_000;
/// Symbols of a grammar at most. Alternatives by the ten thousands take a step of the engine, and so
/// everybody's, a quarter of a second.
const SYMBOLS: usize = 20_000;
/// Bytes of a grammar's text at most.
const TEXT: usize = 128 << 10;
/// Stack to compile on, in bytes, of which only what is used takes memory. llguidance goes from rule to rule
/// and from `$ref` to `$ref` by calling itself, 3 to 10 kB each; a text of [`TEXT`] has room for some
/// 16,000 of them.
const STACK: usize = 512 << 20;
/// What is said when a grammar outgrows these bounds on the way.
pub const TOO_COMPLEX: &str =
    "the grammar became too complex to go on: fewer alternatives and shorter limits help";

/// What an output must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// JSON that fits this schema, on one line.
    JsonSchema(Value),
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// A text of this grammar, in llguidance's dialect of Lark.
    Lark(String),
}

impl Grammar {
    /// Any JSON object.
    pub fn json_object() -> Self {
        Self::JsonSchema(json!({"type": "object"}))
    }

    /// Bytes of its text.
    fn size(&self) -> usize {
        match self {
            Self::JsonSchema(schema) => schema.to_string().len(),
            Self::Regex(text) | Self::Lark(text) => text.len(),
        }
    }
}

/// Compiles grammars for one tokenizer.
pub struct Grammars {
    factory: ParserFactory,
    vocab: usize,
    /// Whose grammar is compiled: one at a time, since the cores are the engine's.
    turn: Mutex<()>,
}

impl Grammars {
    /// For a model of `vocab` tokens whose texts end with one of `eos`.
    ///
    /// # Errors
    /// When llguidance does not take the vocabulary.
    pub fn new(tokenizer: &Tokenizer, vocab: usize, eos: &[u32]) -> anyhow::Result<Self> {
        let mut words: Vec<Vec<u8>> = (0..vocab as u32).map(|id| word(tokenizer, id)).collect();
        // An end that is not in the vocabulary, for models that have none.
        words.push([&[TokTrie::SPECIAL_TOKEN_MARKER], &b"end"[..]].concat());
        let info = TokRxInfo::new(words.len() as u32, vocab as u32);
        let trie = TokTrie::from(&info, &words);
        let trie = if eos.is_empty() { trie } else { trie.with_eos_tokens(eos) };
        let mut factory =
            ParserFactory::new_simple(&(Arc::new(ApproximateTokEnv::new(trie)) as _))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.max_lexer_states = LEXER_STATES;
        limits.max_grammar_size = SYMBOLS;
        limits.verbose_errors = false;
        Ok(Self { factory, vocab, turn: Mutex::default() })
    }

    /// The constraint of one output. Takes up to a second, for grammars as large as they may be.
    ///
    /// # Errors
    /// Says what is wrong with the grammar.
    pub fn compile(&self, grammar: Grammar) -> Result<Box<dyn Constraint>, String> {
        let size = grammar.size();
        if size > TEXT {
            return Err(format!("it has {size} bytes, of which there may be {TEXT}"));
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK);
            let compiling = thread.spawn_scoped(scope, || self.compile_here(grammar));
            let compiling = compiling.map_err(|e| format!("no thread to compile it on: {e}"))?;
            compiling.join().unwrap_or_else(|_| Err("the compiler of grammars gave up".into()))
        })
    }

    /// The same on the stack that there is.
    fn compile_here(&self, grammar: Grammar) -> Result<Box<dyn Constraint>, String> {
        let grammar = match grammar {
            Grammar::JsonSchema(schema) => TopLevelGrammar::from_json_schema(compact(schema)?),
            Grammar::Regex(regex) => TopLevelGrammar::from_regex(&regex),
            Grammar::Lark(lark) => TopLevelGrammar::from_lark(lark),
        };
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(error),
            None => {
                let warnings = matcher.grammar_warnings();
                if !warnings.is_empty() {
                    tracing::warn!(?warnings, "a grammar");
                }
                Ok(Box::new(Guided { matcher, vocab: self.vocab }))
            }
        }
    }
}

/// A token's bytes as llguidance has them: control tokens behind a byte that occurs in no text.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    match tokenizer.is_special(id) {
        true => {
            let name = tokenizer.token(id).unwrap_or_else(|| id.to_string());
            [&[marker], name.as_bytes()].concat()
        }
        false => {
            let bytes = tokenizer.bytes(id);
            if bytes.first() == Some(&marker) { Vec::new() } else { bytes.to_vec() }
        }
    }
}

/// A schema of JSON with one space after `:` and `,` and no others, unless it says otherwise: models
/// that are not sure what comes next like to write spaces for ever.
///
/// # Errors
/// When it is no schema.
pub fn compact(mut schema: Value) -> Result<Value, String> {
    let Some(fields) = schema.as_object_mut() else {
        return Err(format!("a JSON schema is an object, not {schema}"));
    };
    let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
    if let Some(options) = options.as_object_mut() {
        options.entry("whitespace_flexible").or_insert(false.into());
        options.entry("item_separator").or_insert(", ".into());
        options.entry("key_separator").or_insert(": ".into());
    }
    Ok(schema)
}

/// Lets a schema pass whose parts cannot all be kept to: what an unknown `format` or keyword asks for is
/// left out, and `oneOf` is `anyOf`. The log tells.
pub fn lenient(schema: &mut Value) {
    if let Some(options) = schema["x-guidance"].as_object_mut() {
        options.entry("lenient").or_insert(true.into());
    }
}

/// llguidance at work on one output.
struct Guided {
    matcher: Matcher,
    vocab: usize,
}

impl fmt::Debug for Guided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guided").finish_non_exhaustive()
    }
}

impl Constraint for Guided {
    fn next(&mut self) -> Next {
        match self.matcher.stop_reason() {
            StopReason::NotStopped => {}
            StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence => {
                return Next::End;
            }
            other => {
                let why = self.matcher.get_error().unwrap_or_else(|| format!("{other:?}"));
                return Next::Unknown(why);
            }
        }
        match self.matcher.compute_mask() {
            Ok(set) if (0..self.vocab as u32).any(|token| set.is_allowed(token)) => {
                Next::Tokens(set.as_slice().to_vec())
            }
            Ok(_) => Next::End,
            Err(error) => Next::Unknown(error.to_string()),
        }
    }

    fn accept(&mut self, token: u32) {
        // `next` says what went wrong.
        let _ = self.matcher.consume_token(token);
    }

    fn rewind(&mut self, tokens: usize) {
        let _ = self.matcher.rollback(tokens);
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(Self { matcher: self.matcher.deep_clone(), vocab: self.vocab })
    }
}
