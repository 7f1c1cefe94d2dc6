//! Options of a request.

#[cfg(feature = "grammar")]
use crate::models::grammar::Grammar;
use serde_json::Value;
use std::hash::{BuildHasher, RandomState};
use wrinklefree::chat::tools::Tools;
use wrinklefree::settings::{Mode, Reasoning, Sampling, Settings};

/// Options of a request. Unset sampling options are those that the model's authors recommend.
///
/// ```
/// use wrinklefree_easy::GenerateOptions;
///
/// let options = GenerateOptions::default().max_tokens(64).temperature(0.7).seed(1).stop("\n");
/// assert_eq!((options.max_tokens, options.sampling.temperature), (Some(64), Some(0.7)));
/// ```
///
/// As JSON, all fields are in one object, with those of [`Sampling`], [`Settings`] and
/// [`Reasoning`], `json_schema`, `regex` or `grammar` (Lark), and `tools`, `tool_choice`,
/// `parallel_tool_calls` and `documents` in the form of OpenAI's API. An unknown field is an error.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(try_from = "crate::fields::RequestFields")]
pub struct GenerateOptions {
    /// Maximum number of tokens to generate. `None` is 256, or as many as a hole takes.
    pub max_tokens: Option<usize>,
    /// Sampling: temperature, filters, penalties, seed. Without a seed, each request draws its own.
    pub sampling: Sampling,
    /// Texts that end the output and are not part of it.
    pub stop: Vec<String>,
    /// Text after the output, which fills the hole between a prompt and it.
    pub suffix: Option<String>,
    /// Decode settings; unset ones are those of the engine.
    pub settings: Settings,
    /// Thinking before the answer of a conversation; unset values are those of the chat template.
    pub reasoning: Reasoning,
    /// Tools that the answer of a conversation may call.
    pub tools: Tools,
    /// Documents to answer from, for chat templates that take them: objects, mostly with `title` and
    /// `text`.
    pub documents: Option<Vec<Value>>,
    /// Adds chunks with the whole output so far after each pass ([`Chunk::snapshot`](crate::Chunk::snapshot)).
    /// Only for streams.
    pub diffusing: bool,
    /// Reports log-probabilities: of each token, and of this number of most likely tokens.
    pub logprobs: Option<usize>,
    /// Number of first tokens to keep when prompt and output have filled the context: the older half
    /// of the others is dropped, and the output continues. `None` ends the output instead.
    pub context_shift: Option<usize>,
    /// Grammar that the output must follow.
    #[cfg(feature = "grammar")]
    pub grammar: Option<Grammar>,
    /// Leaves out what no grammar can hold of a JSON schema, instead of refusing it.
    #[cfg(feature = "grammar")]
    pub best_effort: bool,
}

impl GenerateOptions {
    /// Sets the maximum number of tokens to generate.
    #[must_use]
    pub fn max_tokens(self, max_tokens: usize) -> Self {
        Self { max_tokens: Some(max_tokens), ..self }
    }

    /// Sets the temperature; 0 takes the most likely token.
    #[must_use]
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.sampling.temperature = Some(temperature);
        self
    }

    /// Keeps the smallest set of tokens whose cumulative probability is at least `top_p`.
    #[must_use]
    pub fn top_p(mut self, top_p: f32) -> Self {
        self.sampling.top_p = Some(top_p);
        self
    }

    /// Keeps the `top_k` most likely tokens; 0 keeps all.
    #[must_use]
    pub fn top_k(mut self, top_k: usize) -> Self {
        self.sampling.top_k = Some(top_k);
        self
    }

    /// Sets the seed. The same seed gives the same output. Without one, each request draws its own.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.sampling.seed = Some(seed);
        self
    }

    /// Adds a text that ends the output.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }

    /// Sets the text after the output, which fills the hole between a prompt and it. A model of block
    /// diffusion fills at most the slots of the block that are left, and by default all of them.
    #[must_use]
    pub fn suffix(self, text: impl Into<String>) -> Self {
        Self { suffix: Some(text.into()), ..self }
    }

    /// Sets the decode mode.
    #[must_use]
    pub fn decode_mode(mut self, mode: Mode) -> Self {
        self.settings.decode_mode = Some(mode);
        self
    }

    /// Lets the model think before it answers a conversation, or not.
    #[must_use]
    pub fn enable_thinking(mut self, enabled: bool) -> Self {
        self.reasoning.enable_thinking = Some(enabled);
        self
    }

    /// Ends the thinking after at most `tokens`; the model then answers.
    #[must_use]
    pub fn thinking_budget(mut self, tokens: usize) -> Self {
        self.reasoning.thinking_budget = Some(tokens);
        self
    }

    /// Sets the tools that the answer of a conversation may call.
    ///
    /// ```
    /// use wrinklefree_easy::{GenerateOptions, Tool, ToolChoice, Tools};
    ///
    /// let parameters = serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}});
    /// let weather = Tool { name: "weather".into(), parameters, ..Tool::default() };
    /// let tools = Tools::new(vec![weather], ToolChoice::Required, true)?;
    /// assert!(GenerateOptions::default().tools(tools).tools.callable());
    /// # Ok::<(), wrinklefree_easy::wrinklefree::chat::tools::ToolsError>(())
    /// ```
    #[must_use]
    pub fn tools(self, tools: Tools) -> Self {
        Self { tools, ..self }
    }

    /// Sets the documents to answer from.
    #[must_use]
    pub fn documents(self, documents: Vec<Value>) -> Self {
        Self { documents: Some(documents), ..self }
    }

    /// Adds chunks to a stream with the whole output so far after each pass. In one of block diffusion a
    /// [mask](wrinklefree::chat::MASK_CHARACTER) stands for each token that is not decided.
    #[must_use]
    pub fn diffusing(self) -> Self {
        Self { diffusing: true, ..self }
    }

    /// Reports the log-probability of each token, and of the `top` most likely ones, under the model's
    /// own distribution: before penalties, temperature and filters.
    #[must_use]
    pub fn logprobs(self, top: usize) -> Self {
        Self { logprobs: Some(top), ..self }
    }

    /// Continues when the context is full: keeps the first `keep` tokens and drops the older half of
    /// the others. Not with block diffusion.
    #[must_use]
    pub fn context_shift(self, keep: usize) -> Self {
        Self { context_shift: Some(keep), ..self }
    }

    /// Requires JSON that matches a schema.
    #[cfg(feature = "grammar")]
    #[must_use]
    pub fn json_schema(self, schema: serde_json::Value) -> Self {
        self.grammar(Grammar::JsonSchema(schema))
    }

    /// Requires JSON that matches as much of a schema as a grammar can hold.
    /// [`validate`](crate::models::grammar::validate) tells whether an output matches all of it.
    #[cfg(feature = "grammar")]
    #[must_use]
    pub fn json_schema_best_effort(self, schema: serde_json::Value) -> Self {
        Self { best_effort: true, ..self.json_schema(schema) }
    }

    /// Requires a text that a regular expression matches as a whole.
    #[cfg(feature = "grammar")]
    #[must_use]
    pub fn regex(self, regex: impl Into<String>) -> Self {
        self.grammar(Grammar::Regex(regex.into()))
    }

    /// Requires a text that follows a grammar.
    #[cfg(feature = "grammar")]
    #[must_use]
    pub fn grammar(self, grammar: Grammar) -> Self {
        Self { grammar: Some(grammar), ..self }
    }
}

/// Returns an unpredictable seed, as requests without one draw it.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}
