//! The fields that chat and plain completions share.

use crate::serve::auth::Tenant;
use crate::serve::error::ApiError;
use crate::serve::state::Ready;
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use utoipa::ToSchema;
use wrinklefree::decode::SamplingParams;
use wrinklefree::engine::Request;
use wrinklefree::settings::{Mode, Sampling, Settings};

/// Answers to one prompt at most.
const MAX_N: usize = 8;
/// Stop strings at most.
const MAX_STOPS: usize = 16;
/// Log-probabilities of a token at most.
pub const MAX_TOP: usize = 20;
/// OpenAI's default, where the model's files recommend none.
const TEMPERATURE: f32 = 1.0;

/// What OpenAI's API says about sampling and streaming, and our own fields.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Options {
    /// The model's name, or `default`.
    pub model: Option<String>,
    /// Tokens of an answer at most.
    #[schema(minimum = 1)]
    pub max_tokens: Option<usize>,
    /// The same under its newer name, which wins.
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<usize>,
    /// 0 takes the likeliest token.
    #[schema(minimum = 0)]
    pub temperature: Option<f32>,
    /// Of the likeliest tokens, those that have this probability together.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    /// Answers to a prompt; one, except in chat and completions.
    #[schema(minimum = 1, maximum = 8)]
    pub n: Option<usize>,
    /// Texts that end an answer and are no part of it.
    pub stop: Option<OneOrMany>,
    /// The same seed gives the same answer.
    pub seed: Option<i64>,
    /// Against tokens that have come already.
    pub presence_penalty: Option<f32>,
    /// The same, for each time that they came.
    pub frequency_penalty: Option<f32>,
    /// Added to the logits of these token ids.
    pub logit_bias: Option<BTreeMap<String, f32>>,
    /// Whether the answer comes as server-sent events.
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    // Our own.
    /// So many of the likeliest tokens; 0 or -1: all.
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    /// Tokens that are at least so likely, as a share of the likeliest.
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f32>,
    /// Divides the logits of tokens that have come already.
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f32>,
    /// How the answer is decoded.
    pub decode_mode: Option<Mode>,
    /// How sure a token must be, in block diffusion.
    #[schema(minimum = 0, maximum = 1)]
    pub threshold: Option<f32>,
    /// Tokens of a block.
    #[schema(minimum = 1)]
    pub block_size: Option<usize>,
    /// Tokens of a sub-block.
    #[schema(minimum = 1)]
    pub small_block_size: Option<usize>,
    /// The answer goes on where the model would end it.
    pub ignore_eos: Option<bool>,
    /// What is kept of this text is used for requests with the same salt alone.
    pub cache_salt: Option<String>,
}

/// `stream_options`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// The stream ends with the usage.
    pub include_usage: Option<bool>,
}

/// A text, or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of strings")]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// The fields of `T` in a request's body. Fields that `T` does not know are ignored.
pub fn parse<T: DeserializeOwned>(body: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.inner().to_string();
        if path == "." {
            // Of the body itself: a field that is not there.
            let field = inner.split('`').nth(1).unwrap_or_default().to_string();
            return ApiError { code: "missing_field", ..ApiError::bad(field, inner) };
        }
        let message = format!("`{path}`: {inner}");
        ApiError { code: "invalid_type", ..ApiError::bad(path, message) }
    })
}

impl Options {
    /// How many answers are asked for.
    pub fn n(&self) -> Result<usize, ApiError> {
        match self.n.unwrap_or(1) {
            n @ 1..=MAX_N => Ok(n),
            n => Err(ApiError::bad("n", format!("n must be from 1 to {MAX_N}, but is {n}"))),
        }
    }

    /// Refuses several answers.
    pub fn one_answer(&self) -> Result<(), ApiError> {
        match self.n()? {
            1 => Ok(()),
            n => Err(ApiError::bad("n", format!("n is {n}, but this API gives one answer"))),
        }
    }

    /// Whether the answer is streamed.
    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with the usage.
    pub fn include_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|o| o.include_usage).unwrap_or(false)
    }

    /// Refuses the name of another model.
    pub fn check_model(&self, ready: &Ready) -> Result<(), ApiError> {
        match &self.model {
            Some(model) if !ready.is(model) => Err(ApiError {
                param: Some("model".into()),
                ..ApiError::new(
                    StatusCode::NOT_FOUND,
                    "model_not_found",
                    format!("the model `{model}` does not exist: this server has `{}`", ready.name),
                )
            }),
            _ => Ok(()),
        }
    }

    /// The request for a prompt, with the log-probabilities that are asked for.
    pub fn request(
        &self,
        ready: &Ready,
        tenant: &Tenant,
        tokens: Vec<u32>,
        logprobs: Option<usize>,
    ) -> Result<Request, ApiError> {
        let mode = self.settings().or(ready.settings.clone()).mode(&ready.capabilities());
        let mode = mode.map_err(|e| ApiError::bad("decode_mode", format!("{e:#}")))?;
        let asked = self.max_completion_tokens.or(self.max_tokens);
        // Who names no limit gets what the context holds; and whose mode cannot shift is refused only
        // where it would have to.
        let longer = asked.is_some_and(|n| tokens.len().saturating_add(n) > ready.context);
        let (max_tokens, context_shift) =
            (asked.unwrap_or(usize::MAX), ready.context_shift.filter(|_| longer));
        let eos = match self.ignore_eos.unwrap_or(false) {
            true => Vec::new(),
            false => ready.defaults.eos.clone(),
        };
        let (sampling, stop) = (self.sampling(ready, logprobs)?, self.stops()?);
        let (watch, cache_salt) = (false, self.salt(tenant));
        Ok(Request {
            tokens,
            max_tokens,
            sampling,
            stop,
            eos,
            mode,
            context_shift,
            watch,
            cache_salt,
        })
    }

    /// With whom the request may share what is kept of texts.
    pub fn salt(&self, tenant: &Tenant) -> String {
        // A tenant is a number, so no salt makes one look like another.
        format!("{} {}", tenant.0, self.cache_salt.as_deref().unwrap_or(""))
    }

    fn settings(&self) -> Settings {
        Settings {
            decode_mode: self.decode_mode,
            threshold: self.threshold,
            block_size: self.block_size,
            small_block_size: self.small_block_size,
            ..Settings::default()
        }
    }

    /// The texts that end an answer.
    pub fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = self.stop.clone().map(OneOrMany::into_vec).unwrap_or_default();
        if stops.len() > MAX_STOPS {
            let message = format!("{} stop strings, {MAX_STOPS} at most", stops.len());
            return Err(ApiError::bad("stop", message));
        }
        if stops.iter().any(String::is_empty) {
            return Err(ApiError::bad("stop", "a stop string is empty"));
        }
        Ok(stops)
    }

    fn sampling(&self, ready: &Ready, logprobs: Option<usize>) -> Result<SamplingParams, ApiError> {
        let model = &ready.defaults;
        let said = Sampling {
            temperature: self.temperature.or(model.temperature).or(Some(TEMPERATURE)),
            top_k: self.top_k()?,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            logit_bias: self.biases()?,
            // Without a seed every answer is another one.
            seed: self.seed.map_or_else(random, i64::cast_unsigned),
        };
        Ok(SamplingParams { logprobs, ..said.params(model) })
    }

    fn top_k(&self) -> Result<Option<usize>, ApiError> {
        let count = |k: i64| match k {
            -1 => Ok(0),
            k => usize::try_from(k).map_err(|_| {
                ApiError::bad("top_k", format!("top_k is {k}: at least 0, or -1 for all"))
            }),
        };
        self.top_k.map(count).transpose()
    }

    fn biases(&self) -> Result<Vec<(u32, f32)>, ApiError> {
        let bias = |(id, &bias): (&String, &f32)| match id.parse() {
            Ok(id) => Ok((id, bias)),
            Err(_) => {
                Err(ApiError::bad("logit_bias", format!("`{id}` in logit_bias is no token id")))
            }
        };
        self.logit_bias.iter().flatten().map(bias).collect()
    }
}

/// A number that nobody foresees.
pub fn random() -> u64 {
    RandomState::new().hash_one(0)
}
