//! Outputs constrained by a grammar: llguidance computes which tokens may follow.

use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, thread};
use wrinklefree::decode::{Constraint, Next};
use wrinklefree::text::Tokenizer;

/// Largest number of states of a grammar's lexer, of 1 to 2 kB each.
const LEXER_STATES: usize = 20_000;
/// Largest number of symbols of a grammar. Tens of thousands of alternatives make a step of the
/// engine, which all requests share, take a quarter of a second.
const SYMBOLS: usize = 20_000;
/// Largest size of a grammar's text in bytes.
const TEXT: usize = 128 << 10;
/// Size of the compiler's stack in bytes; only the part that is used takes memory. llguidance
/// follows rules and `$ref`s by recursion, with 3 to 10 kB each, and a text of [`TEXT`] bytes has
/// room for some 16,000 of them.
const STACK: usize = 512 << 20;
/// Message for a grammar that exceeds these limits while it is used.
pub const TOO_COMPLEX: &str =
    "the grammar became too complex to go on: fewer alternatives and shorter limits help";

/// The form that an output must have.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// JSON that matches this schema, on one line.
    JsonSchema(Value),
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// A text of this grammar, in llguidance's dialect of Lark.
    Lark(String),
}

impl Grammar {
    /// Returns the grammar of any JSON object.
    pub fn json_object() -> Self {
        Self::JsonSchema(json!({"type": "object"}))
    }

    /// Returns the size of its text in bytes.
    fn size(&self) -> usize {
        match self {
            Self::JsonSchema(schema) => schema.to_string().len(),
            Self::Regex(text) | Self::Lark(text) => text.len(),
        }
    }
}

/// A grammar that is ready for one output.
#[derive(Debug)]
pub struct Compiled {
    /// Restricts the sampler to tokens that fit the grammar.
    pub constraint: Box<dyn Constraint>,
    /// Parts of the grammar that are not enforced, for the caller to print or log.
    pub warnings: Vec<String>,
}

/// Compiles grammars for one tokenizer.
pub struct Grammars {
    factory: ParserFactory,
    vocab: usize,
    /// Lets one grammar be compiled at a time, because the cores belong to the engine.
    turn: Mutex<()>,
}

impl Grammars {
    /// Prepares a compiler for a model of `vocab` tokens whose texts end with one of `eos`.
    ///
    /// # Errors
    /// If llguidance does not accept the vocabulary.
    pub fn new(tokenizer: &Tokenizer, vocab: usize, eos: &[u32]) -> anyhow::Result<Self> {
        let mut words: Vec<Vec<u8>> = (0..vocab as u32).map(|id| word(tokenizer, id)).collect();
        // An end token outside the vocabulary, for models that have none.
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

    /// Compiles the constraint of one output. The largest grammars take up to a second.
    ///
    /// # Errors
    /// A message that says what is wrong with the grammar.
    pub fn compile(&self, grammar: Grammar) -> Result<Compiled, String> {
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

    /// Compiles on the stack of the calling thread.
    fn compile_here(&self, grammar: Grammar) -> Result<Compiled, String> {
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
                let constraint = Box::new(Guided { matcher, vocab: self.vocab });
                Ok(Compiled { constraint, warnings })
            }
        }
    }
}

/// Returns the bytes of a token for llguidance: control tokens start with a byte that no text has.
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

/// Returns the schema for JSON with one space after `:` and `,` and no others, unless it says
/// otherwise: models that are unsure of the next token tend to write spaces forever.
///
/// # Errors
/// If it is no schema.
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

/// Accepts a schema with parts that cannot be enforced: unknown `format`s and keywords are ignored,
/// and `oneOf` counts as `anyOf`. The log names them.
pub fn lenient(schema: &mut Value) {
    if let Some(options) = schema["x-guidance"].as_object_mut() {
        options.entry("lenient").or_insert(true.into());
    }
}

/// The state of llguidance for one output.
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
        // `next` reports errors.
        let _ = self.matcher.consume_token(token);
    }

    fn rewind(&mut self, tokens: usize) {
        let _ = self.matcher.rollback(tokens);
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(Self { matcher: self.matcher.deep_clone(), vocab: self.vocab })
    }
}
