//! Fields that all generating endpoints share: sampling, decoding and streaming.

use crate::serve::auth::Tenant;
use crate::serve::error::ApiError;
use crate::serve::ids;
use crate::serve::served_model::ServedModel;
use serde::Deserialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use wrinklefree::decode::SamplingParams;
use wrinklefree::engine::Request;
use wrinklefree::settings::{Draft, Mode, Sampling, Settings};

/// Maximum number of outputs per prompt.
const MAX_N: usize = 8;
/// Maximum number of stop strings.
const MAX_STOPS: usize = 16;
/// Maximum length of a stop string in bytes. They are kept as long as their request.
const MAX_STOP: usize = 4096;
/// Maximum length of a cache salt in bytes.
const MAX_SALT: usize = 1024;
/// OpenAI's default temperature, for models whose files recommend none.
const TEMPERATURE: f32 = 1.0;

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
    /// ones. 1 has no effect.
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f32>,
    /// Decode mode. Speculative decoding (`verify`) gives the output of `ar`; block diffusion
    /// (`greedy`, `iterative`, `adaptive`) does not.
    pub decode_mode: Option<Mode>,
    /// Source of the drafts of speculative decoding: `mtp` is the model's block for multi-token prediction.
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
}

/// Options of streaming.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// Send a last chunk with the token usage.
    pub include_usage: Option<bool>,
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

    /// Returns true if the response is streamed.
    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Returns true if a stream ends with the token usage.
    pub fn include_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|o| o.include_usage).unwrap_or(false)
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
        let mode = self.settings().or(model.settings.clone()).mode(&model.capabilities());
        let param = if self.draft.is_some() { "draft" } else { "decode_mode" };
        let mode = mode.map_err(|e| ApiError::bad(param, format!("{e:#}")))?;
        let limit = self.max_completion_tokens.or(self.max_tokens);
        // Without a limit the output fills the context. The context shifts only for a longer one, so
        // that modes which cannot shift still accept all others.
        let longer = limit.is_some_and(|n| tokens.len().saturating_add(n) > model.context);
        let (max_tokens, context_shift) =
            (limit.unwrap_or(usize::MAX), model.context_shift.filter(|_| longer));
        let eos = match self.ignore_eos.unwrap_or(false) {
            true => Vec::new(),
            false => model.defaults.eos.clone(),
        };
        let (sampling, stop) = (self.sampling(model, logprobs)?, self.stops()?);
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

    fn sampling(
        &self,
        model: &ServedModel,
        logprobs: Option<usize>,
    ) -> Result<SamplingParams, ApiError> {
        let defaults = &model.defaults;
        let sampling = Sampling {
            temperature: self.temperature.or(defaults.temperature).or(Some(TEMPERATURE)),
            top_k: self.top_k()?,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            logit_bias: self.biases()?,
            seed: self.seed.map_or_else(ids::random, i64::cast_unsigned),
        };
        Ok(SamplingParams { logprobs, ..sampling.params(defaults) })
    }

    fn top_k(&self) -> Result<Option<usize>, ApiError> {
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

    fn biases(&self) -> Result<Vec<(u32, f32)>, ApiError> {
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
