//! Outputs constrained by a grammar: llguidance computes which tokens may follow.
//!
//! A grammar may come from a stranger. What is done with it here is limited by count: the size of its
//! text ([`TEXT`]), its nesting ([`DEPTH`]), the values that rewriting adds, the states and symbols of
//! the compiler, and the work of each step. These limits hold in every program. The compiler itself can
//! still take seconds and hundreds of megabytes where they do not reach: a service for strangers
//! compiles in a process of its own first, as `wf-run serve` does, which has limits on time and memory.

mod arguments;
mod budget;
mod calls;
mod closed;
mod definitions;
mod gbnf;
mod guided;
mod negate;
mod prepared;
mod references;
mod schema;
mod slashes;
mod step_queue;
mod validate;
mod walk;
mod xml_calls;

pub use budget::{DEPTH, TEXT, check_depth, check_size, json_size, without_annotations};
pub use calls::{answers, call_grammar};
pub use closed::closed;
pub use gbnf::{gbnf_to_lark, is_gbnf};
pub use prepared::{PreparedGrammar, compact, lenient};
pub use schema::{Effort, Relaxed, relax};
pub use validate::{Validation, validate};
pub use walk::places;

use guided::Guided;
use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use schema::suspects;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use slashes::{SlashMatcher, Slashes};
use std::sync::Arc;
use std::thread;
use wrinklefree::decode::Constraint;
use wrinklefree::text::Tokenizer;

/// Largest number of states of a grammar's lexer, of 1 to 2 kB each.
const LEXER_STATES: usize = 20_000;
/// Largest number of symbols of a grammar. Tens of thousands of alternatives make a step of the
/// engine, which all requests share, take a quarter of a second.
const SYMBOLS: usize = 20_000;
/// Work of compiling a lexer, and of one step, in llguidance's units of 50 to 100 ns.
const COMPILE_FUEL: u64 = 1_000_000;
const STEP_FUEL: u64 = 200_000;
/// Largest number of parser items of one step.
const STEP_ITEMS: usize = 10_000;
/// Size of the compiler's stack in bytes; only the part that is used takes memory. llguidance
/// follows rules and `$ref`s by recursion, with 3 to 10 kB each, and a text of [`TEXT`] bytes has
/// room for some 16,000 of them.
pub const STACK: usize = 512 << 20;
/// Message for a grammar that exceeds these limits while it is used.
pub const TOO_COMPLEX: &str =
    "the grammar became too complex to go on: fewer alternatives and shorter limits help";

/// Beginning of the message for a schema with parts that no grammar can hold. They can be left out for best
/// effort.
pub const NOT_HELD: &str = "no grammar can hold ";

/// The form that an output must have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
}

/// A grammar that is ready for one output.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Restricts the sampler to tokens that fit the grammar.
    pub constraint: Box<dyn Constraint>,
    /// Parts of the grammar that are not enforced, for the caller to print or log.
    pub warnings: Vec<String>,
    /// Size in memory in bytes, as estimated.
    pub bytes: usize,
}

/// Tokens of a model, as far as the compiler needs to know them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vocabulary {
    size: usize,
    /// Ids and names of control tokens.
    special: Vec<(u32, String)>,
    eos: Vec<u32>,
}

impl Vocabulary {
    /// Returns the vocabulary of a model with `size` tokens whose texts end with one of `eos`.
    pub fn new(tokenizer: &Tokenizer, size: usize, eos: &[u32]) -> Self {
        let special = (0..size as u32).filter(|&id| tokenizer.is_special(id));
        let special = special.map(|id| (id, name(tokenizer, id))).collect();
        Self { size, special, eos: eos.to_vec() }
    }
}

/// Compiles grammars for one tokenizer. Any number of threads may compile at the same time.
pub struct Grammars {
    factory: ParserFactory,
    vocab: usize,
    slashes: Arc<Slashes>,
}

impl Grammars {
    /// Prepares a compiler for a model of `vocab` tokens whose texts end with one of `eos`.
    ///
    /// # Errors
    /// If llguidance does not accept the vocabulary.
    pub fn new(tokenizer: &Tokenizer, vocab: usize, eos: &[u32]) -> anyhow::Result<Self> {
        let words = (0..vocab as u32).map(|id| word(tokenizer, id)).collect();
        Self::of_words(words, eos)
    }

    /// Prepares a compiler that can tell whether a grammar is valid and within the limits, at a
    /// fraction of the time and memory that a whole vocabulary takes. Its constraints allow no tokens.
    ///
    /// # Errors
    /// If llguidance does not accept the vocabulary.
    pub fn for_checks(vocabulary: &Vocabulary) -> anyhow::Result<Self> {
        let mut words = vec![Vec::new(); vocabulary.size];
        for (id, name) in &vocabulary.special {
            if let Some(word) = words.get_mut(*id as usize) {
                *word = [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat();
            }
        }
        Self::of_words(words, &vocabulary.eos)
    }

    fn of_words(mut words: Vec<Vec<u8>>, eos: &[u32]) -> anyhow::Result<Self> {
        let vocab = words.len();
        // An end token outside the vocabulary, for models that have none.
        words.push([&[TokTrie::SPECIAL_TOKEN_MARKER], &b"end"[..]].concat());
        let info = TokRxInfo::new(words.len() as u32, vocab as u32);
        let trie = TokTrie::from(&info, &words);
        let trie = if eos.is_empty() { trie } else { trie.with_eos_tokens(eos) };
        words.truncate(vocab);
        let slashes = Arc::new(Slashes::new(&trie, &words));
        let mut factory =
            ParserFactory::new_simple(&(Arc::new(ApproximateTokEnv::new(trie)) as _))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            initial_lexer_fuel: COMPILE_FUEL,
            step_lexer_fuel: STEP_FUEL,
            step_max_items: STEP_ITEMS,
            max_lexer_states: LEXER_STATES,
            max_grammar_size: SYMBOLS,
            verbose_errors: false,
            // It walks the vocabulary for every large lexeme, which nothing limits.
            precompute_large_lexemes: false,
            ..ParserLimits::default()
        };
        Ok(Self { factory, vocab, slashes })
    }

    /// Compiles the constraint of one output. Takes milliseconds; the largest grammars a second.
    ///
    /// # Errors
    /// A message that says what is wrong with the grammar.
    pub fn compile(&self, grammar: Grammar) -> Result<Compiled, String> {
        Ok(self.prepare(grammar)?.1)
    }

    /// Compiles a grammar, and returns it also in the form that it was compiled from, which
    /// [`compile_prepared`](Self::compile_prepared) compiles for another vocabulary.
    ///
    /// # Errors
    /// A message that says what is wrong with the grammar.
    pub fn prepare(&self, grammar: Grammar) -> Result<(PreparedGrammar, Compiled), String> {
        on_large_stack(|| {
            let schema = match &grammar {
                Grammar::JsonSchema(schema) => Some(schema.clone()),
                _ => None,
            };
            let prepared = PreparedGrammar::new(grammar)?;
            match (self.construct(&prepared), schema) {
                (Ok(compiled), _) => Ok((prepared, compiled)),
                (Err(error), Some(schema)) => Err(explained(error, &schema)),
                (Err(error), None) => Err(error),
            }
        })
    }

    /// Compiles a grammar that was prepared, maybe by another process.
    ///
    /// # Errors
    /// A message that says what is wrong with the grammar.
    pub fn compile_prepared(&self, grammar: &PreparedGrammar) -> Result<Compiled, String> {
        on_large_stack(|| self.construct(grammar))
    }

    /// Compiles as much of a JSON schema as a grammar can hold. Returns the parts that it does not
    /// hold, which [`validate`] checks afterwards.
    ///
    /// # Errors
    /// If it is no schema.
    pub fn compile_best_effort(&self, schema: &Value) -> Result<(Compiled, Vec<String>), String> {
        check_depth(schema)?;
        let mut last = String::new();
        for effort in Effort::BEST {
            let Relaxed { schema: relaxed, left_out } = relax(schema, effort);
            match self.compile(Grammar::JsonSchema(lenient(relaxed, effort))) {
                Ok(compiled) => {
                    let left_out = [left_out, replaced(schema, &compiled)].concat();
                    return Ok((compiled, left_out));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Compiles on the stack of the calling thread.
    fn construct(&self, grammar: &PreparedGrammar) -> Result<Compiled, String> {
        let limits = self.factory.limits();
        let slashes = Slashes::fit(&grammar.0).then(|| self.slashes.clone());
        let init = GrammarInit::Serialized(grammar.0.clone());
        let (grammar, lexer) = init
            .to_internal(Some(self.factory.tok_env().clone()), limits.clone())
            .map_err(|error| error.to_string())?;
        self.rehearse(lexer.clone())?;
        let init = GrammarInit::Internal(grammar, lexer);
        let parser = self.factory.create_parser_from_init_default(init);
        // The first steps make several times as many states.
        let bytes = parser.as_ref().map_or(0, |parser| parser.parser.lexer_stats().num_bytes * 4);
        let mut matcher = Matcher::new(parser);
        if let Some(error) = matcher.get_error() {
            return Err(error);
        }
        let warnings = matcher.grammar_warnings();
        let matcher = SlashMatcher::new(matcher, slashes);
        let mut constraint: Box<dyn Constraint> = Box::new(Guided::new(matcher, self.vocab));
        // The first step computes most of the lexer. Copies of the constraint have it already.
        constraint.next();
        Ok(Compiled { constraint, warnings, bytes: bytes + (64 << 10) })
    }

    /// Makes the lexer's first transitions with limited work: llguidance makes them without a limit,
    /// and one of `multipleOf: 99999989` takes minutes and gigabytes.
    fn rehearse(&self, mut lexer: llguidance::earley::lexerspec::LexerSpec) -> Result<(), String> {
        lexer.add_extra_lexemes(&self.factory.extra_lexemes());
        let mut limits = self.factory.limits().clone();
        let mut states = lexer.to_regex_vec(&mut limits).map_err(|error| error.to_string())?;
        states.set_fuel(COMPILE_FUEL);
        states.set_max_states(LEXER_STATES);
        let first = states.initial_state(&lexer.all_lexemes());
        for byte in 0..=u8::MAX {
            states.transition(first, byte);
        }
        match states.get_error() {
            Some(error) => Err(format!("it is too complex: {error}")),
            None => Ok(()),
        }
    }
}

/// Runs work that recurses, on a thread with a stack of its own.
fn on_large_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK);
        let working = thread.spawn_scoped(scope, work);
        let working = working.map_err(|e| format!("no thread to compile it on: {e}"))?;
        working.join().unwrap_or_else(|_| Err("the compiler of grammars gave up".into()))
    })
}

/// Adds the keywords that may be the reason of an error, with their places.
fn explained(error: String, schema: &Value) -> String {
    let (unsupported, doubtful) = suspects(schema);
    let error = error.trim_end_matches("\n<non-verbose/>").to_string();
    if error.contains("Unimplemented keys") && !unsupported.is_empty() {
        let it = if unsupported.len() == 1 { "it" } else { "them" };
        let named: Vec<String> = unsupported.into_iter().take(8).collect();
        return format!("{NOT_HELD}{}: leave {it} out", named.join(", "));
    }
    let complex = ["complex", "fuel", "too big"].iter().any(|word| error.contains(word));
    let named = |place: &&String| {
        let keyword = place.split('`').nth(1).unwrap_or_default();
        match keyword {
            "pattern" | "patternProperties" => complex || error.contains("egex"),
            "multipleOf" => complex,
            "$ref" => ["etriev", "reference", "ointer"].iter().any(|word| error.contains(word)),
            keyword => error.contains(keyword),
        }
    };
    let mut places = unsupported;
    places.extend(doubtful.iter().filter(named).cloned());
    places.truncate(8);
    if places.is_empty() { error } else { format!("{error} ({})", places.join(", ")) }
}

/// Returns the parts that a compiled grammar holds in another form than the schema has.
pub fn replaced(schema: &Value, compiled: &Compiled) -> Vec<String> {
    if compiled.warnings.iter().any(|warning| warning.contains("oneOf")) {
        places(schema, "oneOf")
    } else {
        Vec::new()
    }
}

/// Returns the name of a control token.
fn name(tokenizer: &Tokenizer, id: u32) -> String {
    tokenizer.token(id).unwrap_or_else(|| id.to_string())
}

/// Returns the bytes of a token for llguidance: control tokens start with a byte that no text has.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    if tokenizer.is_special(id) {
        [&[marker], name(tokenizer, id).as_bytes()].concat()
    } else {
        let bytes = tokenizer.bytes(id);
        if bytes.first() == Some(&marker) { Vec::new() } else { bytes.to_vec() }
    }
}
