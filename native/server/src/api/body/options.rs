//! Fields that all generating endpoints share: sampling, decoding and streaming.

use super::samplers::SamplerOrder;
use super::speculative::SpeculativeFields;
use crate::access::keys::Tenant;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use serde::Deserialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use wrinklefree::engine::Request;
use wrinklefree::settings::{Draft, Mode, Settings};

/// Maximum number of outputs per prompt.
const MAX_N: usize = 8;
/// Maximum number of stop strings.
const MAX_STOPS: usize = 16;
/// Maximum length of a stop string in bytes. They are kept as long as their request.
const MAX_STOP: usize = 4096;
/// Maximum length of a cache salt in bytes.
const MAX_SALT: usize = 1024;
/// Maximum number of alternatives per prompt token.
const MAX_PROMPT_LOGPROBS: usize = 20;

/// Options of sampling, decoding and streaming: OpenAI's fields and extensions.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct GenerationOptions {
    /// Maximum number of tokens to generate. Without it, generation may fill the context; only
    /// `/v1/completions` defaults to 16.
    #[schema(minimum = 1)]
    pub max_tokens: Option<usize>,
    /// Newer name of `max_tokens`; takes precedence over it.
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<usize>,
    /// Sampling temperature. 0 always selects the most probable token.
    #[schema(minimum = 0)]
    pub temperature: Option<f32>,
    /// Nucleus sampling: keep the smallest set of tokens whose cumulative probability is at least
    /// `top_p`.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    /// Number of outputs per prompt. More than 1 only in chat and text completions.
    #[schema(minimum = 1, maximum = 8)]
    pub n: Option<usize>,
    /// Strings that end the output. The output does not contain them.
    pub stop: Option<Texts>,
    /// Seed of the random number generator. The same request with the same seed gives the same
    /// output; without a seed each one is random.
    pub seed: Option<i64>,
    /// Subtracted from the logits of tokens that have occurred before.
    pub presence_penalty: Option<f32>,
    /// Subtracted from the logits of tokens once for each time that they have occurred before.
    pub frequency_penalty: Option<f32>,
    /// Values to add to logits, by token id.
    pub logit_bias: Option<BTreeMap<String, f32>>,
    /// Send the response as server-sent events.
    pub stream: Option<bool>,
    /// Options of streaming.
    pub stream_options: Option<StreamOptions>,
    // Extensions.
    /// Top-k sampling: keep the `top_k` most probable tokens. 0 or -1 keeps all.
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    /// Min-p sampling: keep tokens whose probability is at least `min_p` times that of the most
    /// probable token.
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f32>,
    /// Divides the positive logits of tokens that have occurred before, and multiplies the negative
    /// ones. 1 has no effect. `repeat_penalty` is an alias.
    #[serde(alias = "repeat_penalty")]
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f32>,
    /// Maximum number of tokens to generate, as llama-server calls it; -1 is unlimited. `max_tokens`
    /// takes precedence.
    #[schema(minimum = -2)]
    pub n_predict: Option<i64>,
    /// Minimum number of tokens before an end-of-sequence token, a stop token or a stop string.
    #[serde(alias = "min_new_tokens")]
    pub min_tokens: Option<usize>,
    /// Ids of tokens that end the output. The output does not contain them.
    #[schema(max_items = 64)]
    pub stop_token_ids: Option<Vec<u32>>,
    /// Ids of the only tokens that the output may have. Those that end it count, too.
    #[schema(min_items = 1)]
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Texts that the output must not contain, with or without a space before them.
    #[schema(max_items = 128)]
    pub bad_words: Option<Vec<String>>,
    /// Locally typical sampling: keep the tokens whose surprise is nearest to the entropy, up to this
    /// cumulative probability. 1 keeps all.
    #[schema(minimum = 0, maximum = 1)]
    pub typical_p: Option<f32>,
    /// Keep tokens whose logit is at most this many standard deviations below the highest one. 0 or -1
    /// keeps all.
    #[schema(minimum = -1)]
    pub top_n_sigma: Option<f32>,
    /// Probability of removing the most probable tokens at a position, but the last of them (XTC).
    #[schema(minimum = 0, maximum = 1)]
    pub xtc_probability: Option<f32>,
    /// Probability from which XTC counts a token among the most probable ones. Defaults to 0.1; above 0.5
    /// XTC is off.
    #[schema(minimum = 0, maximum = 1)]
    pub xtc_threshold: Option<f32>,
    /// Mirostat: 1 or 2 keep the surprise of the output near `mirostat_tau`; 0 is off.
    #[schema(minimum = 0, maximum = 2)]
    pub mirostat: Option<u8>,
    /// Target of Mirostat, in bits. Defaults to 5.
    #[schema(minimum = 0)]
    pub mirostat_tau: Option<f32>,
    /// Rate of Mirostat. Defaults to 0.1.
    #[schema(minimum = 0)]
    pub mirostat_eta: Option<f32>,
    /// DRY: subtract `dry_multiplier · dry_base^(n − dry_allowed_length)` from the logit of a token that
    /// would prolong a repetition of `n` tokens. 0 is off.
    #[schema(minimum = 0)]
    pub dry_multiplier: Option<f32>,
    /// Base of DRY. Defaults to 1.75.
    #[schema(minimum = 1)]
    pub dry_base: Option<f32>,
    /// Length of a repetition from which DRY penalizes it. Defaults to 2.
    pub dry_allowed_length: Option<usize>,
    /// Number of last tokens in which DRY looks for repetitions. -1, the default, is all; 0 is off.
    #[schema(minimum = -1)]
    pub dry_penalty_last_n: Option<i64>,
    /// Texts that no repetition contains. Defaults to a line break, `:`, `"` and `*`.
    #[schema(max_items = 32)]
    pub dry_sequence_breakers: Option<Vec<String>>,
    /// Keep only this many tokens of the prompt; -1 keeps what fits the context.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    /// Side of the prompt that `truncate_prompt_tokens` cuts. Defaults to `left`: the last tokens stay.
    pub truncation_side: Option<Side>,
    /// Return the log-probability of each prompt token and of this many most probable tokens. Only in
    /// chat and text completions that are not streamed.
    #[schema(maximum = 20)]
    pub prompt_logprobs: Option<usize>,
    /// Return the ids of the prompt's and the output's tokens. Only in chat and text completions.
    pub return_token_ids: Option<bool>,
    /// Name tokens in log-probabilities by their ids, as `token_id:17`. Only in chat and text
    /// completions.
    pub return_tokens_as_token_ids: Option<bool>,
    /// Decode mode. Speculative decoding (`verify`) gives the output of `ar`; block diffusion
    /// (`greedy`, `iterative`, `adaptive`) does not.
    pub decode_mode: Option<Mode>,
    /// Source of the drafts of speculative decoding: `mtp` is the model's block for multi-token prediction,
    /// `model` the server's draft model.
    pub draft: Option<Draft>,
    /// Block diffusion: minimum probability to accept a token.
    #[schema(minimum = 0, maximum = 1)]
    pub threshold: Option<f32>,
    /// Block diffusion: number of tokens per block.
    #[schema(minimum = 1)]
    pub block_size: Option<usize>,
    /// Block diffusion: number of tokens per sub-block.
    #[schema(minimum = 1)]
    pub small_block_size: Option<usize>,
    /// Continue after end-of-sequence tokens.
    pub ignore_eos: Option<bool>,
    /// Isolates the prefix cache: only requests with the same salt share cached prompts, so other
    /// tenants cannot detect them by timing.
    #[schema(max_length = 1024)]
    pub cache_salt: Option<String>,
    /// Maximum number of tokens of prompt and output together; `None` for the server's context.
    #[serde(skip)]
    #[schema(ignore)]
    pub max_positions: Option<usize>,
    /// The samplers to use and their order; `None` for all.
    #[serde(skip)]
    #[schema(ignore)]
    pub samplers: Option<SamplerOrder>,
    /// Speculative decoding under llama-server's names.
    #[serde(skip)]
    #[schema(ignore)]
    pub speculative: SpeculativeFields,
    /// True if a full context shifts; `None` for the server's setting.
    #[serde(skip)]
    #[schema(ignore)]
    pub shift: Option<bool>,
}

/// Options of streaming.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// Send a last chunk with the token usage.
    pub include_usage: Option<bool>,
    /// Send the token usage so far with each chunk.
    pub continuous_usage_stats: Option<bool>,
}

/// Chunks of a stream that have the token usage.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamUsage {
    /// A last chunk without choices has the token usage.
    pub last: bool,
    /// Each chunk has the token usage so far.
    pub each: bool,
}

/// Side of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Left,
    Right,
}

/// One string, or an array of strings.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of strings")]
pub enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

impl GenerationOptions {
    /// Returns the number of outputs per prompt.
    ///
    /// # Errors
    /// If it is out of range.
    pub fn n(&self) -> Result<usize, ApiError> {
        match self.n.unwrap_or(1) {
            n @ 1..=MAX_N => Ok(n),
            n => Err(ApiError::bad("n", format!("n is {n}: it must be from 1 to {MAX_N}"))),
        }
    }

    /// Checks that one output is requested.
    ///
    /// # Errors
    /// If `n` is not 1.
    pub fn require_one_output(&self) -> Result<(), ApiError> {
        match self.n()? {
            1 => Ok(()),
            n => Err(ApiError::bad("n", format!("n is {n}, but this API returns one output"))),
        }
    }

    /// Checks that no field asks for more than texts and calls.
    ///
    /// # Errors
    /// If `n` is not 1, or log-probabilities of the prompt or token ids are requested.
    pub fn require_plain_output(&self) -> Result<(), ApiError> {
        self.require_one_output()?;
        let fields = [
            ("prompt_logprobs", self.prompt_logprobs.is_some()),
            ("return_token_ids", self.returns_token_ids()),
            ("return_tokens_as_token_ids", self.names_tokens_by_id()),
        ];
        match fields.into_iter().find(|(_, set)| *set) {
            None => Ok(()),
            Some((field, _)) => {
                let message = format!("{field} is for /v1/chat/completions and /v1/completions");
                Err(ApiError { code: "unsupported", ..ApiError::bad(field, message) })
            }
        }
    }

    /// Returns true if the response has the ids of tokens.
    pub fn returns_token_ids(&self) -> bool {
        self.return_token_ids.unwrap_or(false)
    }

    /// Returns true if log-probabilities name tokens by their ids.
    pub fn names_tokens_by_id(&self) -> bool {
        self.return_tokens_as_token_ids.unwrap_or(false)
    }

    /// Returns the number of alternatives per prompt token, or `None` for no log-probabilities.
    ///
    /// # Errors
    /// If it is too large or the response is streamed.
    pub fn prompt_logprobs(&self) -> Result<Option<usize>, ApiError> {
        let bad = |message: String| Err(ApiError::bad("prompt_logprobs", message));
        match self.prompt_logprobs {
            Some(n) if n > MAX_PROMPT_LOGPROBS => {
                bad(format!("prompt_logprobs is {n}: at most {MAX_PROMPT_LOGPROBS}"))
            }
            Some(_) if self.streams() => bad("prompt_logprobs cannot be streamed".into()),
            n => Ok(n),
        }
    }

    /// Returns the maximum number of tokens to generate; `None` is unlimited.
    pub fn limit(&self) -> Option<usize> {
        let of_llama = || self.n_predict.and_then(|n| usize::try_from(n).ok());
        self.max_completion_tokens.or(self.max_tokens).or_else(of_llama)
    }

    /// Sets the maximum number of tokens where no field does.
    pub fn limit_to(&mut self, tokens: usize) {
        if self.n_predict.is_none() && self.max_completion_tokens.is_none() {
            self.max_tokens.get_or_insert(tokens);
        }
    }

    /// Returns true if the response is streamed.
    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Returns the chunks of a stream that have the token usage.
    ///
    /// # Errors
    /// If the response is not streamed, but a field asks for chunks.
    pub fn stream_usage(&self) -> Result<StreamUsage, ApiError> {
        let Some(options) = &self.stream_options else { return Ok(StreamUsage::default()) };
        if !self.streams() {
            let message = "stream_options is for streams: set `stream`, or leave it out";
            return Err(ApiError::bad("stream_options", message));
        }
        let last = options.include_usage.unwrap_or(false);
        Ok(StreamUsage { last, each: last && options.continuous_usage_stats.unwrap_or(false) })
    }

    /// Creates the engine's request for a prompt. `logprobs` is the number of alternatives per token,
    /// or `None` for no log-probabilities.
    ///
    /// # Errors
    /// If an option is invalid or the model does not support it.
    pub fn request(
        &self,
        model: &ServedModel,
        tenant: &Tenant,
        tokens: Vec<u32>,
        logprobs: Option<usize>,
    ) -> Result<Request, ApiError> {
        let settings = self.speculative.settings(self.settings())?;
        let param = match self.draft {
            _ if self.speculative.names_drafts() => "speculative.type",
            Some(_) => "draft",
            None => "decode_mode",
        };
        let mode = settings.or(model.settings.clone()).mode(&model.capabilities());
        let mut mode = mode.map_err(|e| ApiError::bad(param, format!("{e:#}")))?;
        self.speculative.apply(&mut mode)?;
        let limit = self.limit();
        let most = model.context.saturating_sub(limit.unwrap_or(1)).max(1);
        let tokens = self.truncated(tokens, most)?;
        if let (Some(least), Some(most)) = (self.min_tokens, limit.filter(|&most| most > 0))
            && least > most
        {
            let message = format!("min_tokens is {least}, but at most {most} may be generated");
            return Err(ApiError::bad("min_tokens", message));
        }
        let (max_tokens, context_shift) = self.length(model, tokens.len())?;
        let (eos, stop) = (self.end_tokens(model)?, self.stops()?);
        let mut sampling = self.sampling(model, logprobs)?;
        sampling.constraint = self.allowed_tokens(model)?;
        if let Some(n) = self.prompt_logprobs()? {
            sampling.score_prompt = true;
            sampling.logprobs = sampling.logprobs.max(Some(n));
        }
        let cache_salt = self.salt(tenant)?;
        Ok(Request {
            tokens,
            max_tokens,
            sampling,
            stop,
            eos,
            mode,
            context_shift,
            cache_salt,
            ..Request::default()
        })
    }

    /// Returns the maximum number of tokens after a prompt of so many tokens, and the context shift.
    fn length(
        &self,
        model: &ServedModel,
        prompt: usize,
    ) -> Result<(usize, Option<usize>), ApiError> {
        let limit = self.limit();
        if self.shift == Some(true) && model.context_shift.is_none() {
            let message =
                "`shift`: this server does not shift contexts: start it with --context-shift";
            return Err(ApiError::bad("shift", message));
        }
        // Without a limit the output fills the context. The context shifts only for a longer one, so
        // that modes which cannot shift still accept all others.
        let longer = limit.is_some_and(|n| prompt.saturating_add(n) > model.context);
        let shifts = longer && self.shift != Some(false) && self.max_positions.is_none();
        let max_tokens = limit.unwrap_or(usize::MAX);
        let context_shift = model.context_shift.filter(|_| shifts);
        let Some(positions) = self.max_positions else { return Ok((max_tokens, context_shift)) };
        match positions.checked_sub(prompt) {
            None | Some(0) => {
                let message = format!(
                    "the prompt has {prompt} tokens, but `options.num_ctx` is {positions}: shorten \
                     it, or ask for a larger context"
                );
                let error = ApiError::bad("options.num_ctx", message);
                Err(ApiError { code: "context_length_exceeded", ..error })
            }
            Some(room) => Ok((max_tokens.min(room), None)),
        }
    }

    /// Returns the salt of the prefix cache: requests with the same one share cached prefixes.
    ///
    /// # Errors
    /// If the salt is too long.
    pub fn salt(&self, tenant: &Tenant) -> Result<String, ApiError> {
        let salt = self.cache_salt.as_deref().unwrap_or("");
        if salt.len() > MAX_SALT {
            let message = format!("cache_salt has {} bytes: at most {MAX_SALT}", salt.len());
            return Err(ApiError::bad("cache_salt", message));
        }
        // A tenant is a number without spaces, so no salt can imitate another tenant.
        Ok(format!("{} {salt}", tenant.0))
    }

    /// Returns the side of prompts that is cut; `None` if they are not.
    pub fn truncates(&self) -> Option<Side> {
        self.truncate_prompt_tokens?;
        Some(self.truncation_side.unwrap_or(Side::Left))
    }

    /// Returns the last tokens of a prompt, or the first ones, if a field asks for them; -1 keeps `most`.
    ///
    /// # Errors
    /// If the number is invalid.
    pub fn truncated(&self, mut tokens: Vec<u32>, most: usize) -> Result<Vec<u32>, ApiError> {
        let keep = match self.truncate_prompt_tokens {
            None => return Ok(tokens),
            Some(-1) => most,
            Some(n @ 1..) => usize::try_from(n).unwrap_or(usize::MAX),
            Some(n) => {
                let message = format!("truncate_prompt_tokens is {n}: at least 1, or -1");
                return Err(ApiError::bad("truncate_prompt_tokens", message));
            }
        };
        match self.truncates() {
            Some(Side::Right) => tokens.truncate(keep),
            _ => drop(tokens.drain(..tokens.len().saturating_sub(keep))),
        }
        Ok(tokens)
    }

    fn settings(&self) -> Settings {
        Settings {
            decode_mode: self.decode_mode,
            draft: self.draft,
            threshold: self.threshold,
            block_size: self.block_size,
            small_block_size: self.small_block_size,
            ..Settings::default()
        }
    }

    /// Returns the stop strings.
    ///
    /// # Errors
    /// If there are too many or one is empty.
    pub fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = self.stop.clone().map(Texts::into_vec).unwrap_or_default();
        if stops.len() > MAX_STOPS {
            let message = format!("stop has {} strings: send at most {MAX_STOPS}", stops.len());
            return Err(ApiError::bad("stop", message));
        }
        if let Some(long) = stops.iter().find(|stop| stop.len() > MAX_STOP) {
            let message = format!("stop has a string of {} bytes: at most {MAX_STOP}", long.len());
            return Err(ApiError::bad("stop", message));
        }
        if stops.iter().any(String::is_empty) {
            return Err(ApiError::bad("stop", "stop has an empty string: leave it out"));
        }
        Ok(stops)
    }

    pub(super) fn top_k(&self) -> Result<Option<usize>, ApiError> {
        let count = |k: i64| match k {
            -1 => Ok(0),
            k => usize::try_from(k).map_err(|_| {
                ApiError::bad(
                    "top_k",
                    format!("top_k is {k}: it must be at least 0, or -1 to keep all tokens"),
                )
            }),
        };
        self.top_k.map(count).transpose()
    }

    pub(super) fn biases(&self) -> Result<Vec<(u32, f32)>, ApiError> {
        // `01` and `+1` would be further entries for the token 1.
        let canonical = |text: &str| text.parse().ok().filter(|id: &u32| id.to_string() == text);
        let bias = |(id, &bias): (&String, &f32)| match canonical(id) {
            Some(id) => Ok((id, bias)),
            None => {
                let message = format!("`{id}` in logit_bias is not a token id, such as `17`");
                Err(ApiError::bad("logit_bias", message))
            }
        };
        self.logit_bias.iter().flatten().map(bias).collect()
    }
}
