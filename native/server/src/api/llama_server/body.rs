//! Bodies of llama-server's own API.

use crate::api::body::format::OutputFormatFields;
use crate::api::body::model::ModelFields;
use crate::api::body::options::{GenerationOptions, Texts};
use crate::api::body::prompts::Prompts;
use crate::api::body::samplers::SamplerOrder;
use crate::api::body::speculative::SpeculativeFields;
use crate::api::body::{Body, KnownFields, UnsupportedField, parse, refuse_others};
use crate::api::description::schema::{SchemaFn, schema_of};
use crate::engine::served_model::ServedModel;
use crate::engine::text_limits::TextLimits;
use crate::error::ApiError;
use crate::ids;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// Schemas of the body of `/completion`.
pub const COMPLETION: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<LlamaPromptFields>,
    schema_of::<LlamaFields>,
    schema_of::<SpeculativeFields>,
    schema_of::<OutputFormatFields>,
];
/// Schemas of the body of `/infill`.
pub const INFILL: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<InfillFields>,
    schema_of::<LlamaFields>,
    schema_of::<SpeculativeFields>,
    schema_of::<OutputFormatFields>,
];
/// Schemas of the body of `/embedding`.
pub const EMBEDDING: &[SchemaFn] = &[schema_of::<ModelFields>, schema_of::<LlamaEmbeddingFields>];

/// Schemas of the body of `/slots/{id}`.
pub const SLOT: &[SchemaFn] = &[schema_of::<ModelFields>, schema_of::<SlotFields>];

/// Maximum number of alternatives per token.
const MAX_N_PROBS: usize = 20;
/// Maximum number of `response_fields`, and of bytes of one.
const MAX_FIELDS: usize = 64;
const MAX_FIELD: usize = 128;

/// The prompts of `/completion`.
#[derive(Deserialize, ToSchema)]
pub struct LlamaPromptFields {
    /// Prompts to continue. An array of texts and token ids is one prompt.
    pub prompt: Prompts,
}

/// The text around a hole.
#[derive(Deserialize, ToSchema)]
pub struct InfillFields {
    /// Text before the hole.
    pub input_prefix: String,
    /// Text after the hole.
    pub input_suffix: String,
    /// Other files of the project.
    #[serde(default)]
    pub input_extra: Option<Vec<ExtraFile>>,
    /// Beginning of the text in the hole.
    #[serde(default)]
    pub prompt: Option<String>,
}

/// Another file of the project.
#[derive(Deserialize, ToSchema)]
pub struct ExtraFile {
    /// Name of the file.
    #[serde(default)]
    pub filename: Option<String>,
    /// Its text.
    pub text: String,
}

/// Options of sampling and of the response, under llama-server's names.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct LlamaFields {
    /// Maximum number of tokens to generate. Negative: as many as fit the context.
    #[serde(alias = "max_tokens")]
    n_predict: Option<i64>,
    /// Number of outputs per prompt.
    #[schema(minimum = 1, maximum = 8)]
    n_cmpl: Option<usize>,
    /// Sampling temperature. 0 always selects the most probable token.
    temperature: Option<f32>,
    /// Keep the `top_k` most probable tokens. 0 or less keeps all.
    top_k: Option<i64>,
    /// Keep the smallest set of tokens whose cumulative probability is at least `top_p`.
    top_p: Option<f32>,
    /// Keep tokens whose probability is at least `min_p` times that of the most probable token.
    min_p: Option<f32>,
    /// Locally typical sampling; 1 keeps all.
    typical_p: Option<f32>,
    /// Keep tokens whose logit is at most this many standard deviations below the highest one.
    top_n_sigma: Option<f32>,
    /// Probability of removing the most probable tokens at a position (XTC).
    xtc_probability: Option<f32>,
    /// Probability from which XTC counts a token among the most probable ones.
    xtc_threshold: Option<f32>,
    /// Mirostat: 1 or 2 keep the surprise of the output near `mirostat_tau`; 0 is off.
    mirostat: Option<u8>,
    /// Target of Mirostat, in bits.
    mirostat_tau: Option<f32>,
    /// Rate of Mirostat.
    mirostat_eta: Option<f32>,
    /// Strength of the penalty for repetitions (DRY); 0 is off.
    dry_multiplier: Option<f32>,
    /// Base of DRY.
    dry_base: Option<f32>,
    /// Length of a repetition from which DRY penalizes it.
    dry_allowed_length: Option<usize>,
    /// Number of last tokens in which DRY looks for repetitions; -1 is all.
    dry_penalty_last_n: Option<i64>,
    /// Texts that no repetition contains.
    dry_sequence_breakers: Option<Vec<String>>,
    /// Divides the positive logits of tokens that have occurred before. 1 has no effect.
    repeat_penalty: Option<f32>,
    /// Subtracted from the logits of tokens that have occurred before.
    presence_penalty: Option<f32>,
    /// Subtracted from the logits of tokens once for each time that they have occurred before.
    frequency_penalty: Option<f32>,
    /// Values to add to logits: an object by token id, or pairs of a token id or a text and a value;
    /// `false` bans a token.
    #[schema(value_type = Option<Object>)]
    logit_bias: Option<Value>,
    /// Seed of the random number generator. -1: random.
    seed: Option<i64>,
    /// Strings that end the output. The output does not contain them.
    stop: Option<Texts>,
    /// Continue after end-of-sequence tokens.
    ignore_eos: Option<bool>,
    /// Send the response as server-sent events.
    stream: Option<bool>,
    /// Number of most probable tokens to return at each position.
    #[schema(maximum = 20)]
    n_probs: Option<usize>,
    /// Return the output's token ids.
    return_tokens: Option<bool>,
    /// Add times to each chunk of a stream.
    timings_per_token: Option<bool>,
    /// Use and fill the prefix cache. Defaults to true.
    cache_prompt: Option<bool>,
    /// Samplers to use, in their order. Others are off. An order that the engine does not have is
    /// refused.
    samplers: Option<SamplerOrder>,
    /// Time in milliseconds from the first token, after which the output ends with its line, unless
    /// that is its first one. 0 or less: no limit.
    t_max_predict_ms: Option<i64>,
    /// Minimum indentation of each line but the first. A line with less ends the output.
    n_indent: Option<usize>,
    /// Slot that is reported with the request; -1 for any.
    id_slot: Option<i64>,
    /// Fields of the response to return; `a/b` is a field within a field.
    response_fields: Option<Vec<String>>,
    /// Speculative decoding.
    #[serde(skip)]
    #[schema(ignore)]
    speculative: SpeculativeFields,
}

/// Fields of `/embedding`.
#[derive(Deserialize, ToSchema)]
pub struct LlamaEmbeddingFields {
    /// Texts to embed. `input` is an alias.
    #[serde(alias = "input")]
    pub content: Prompts,
    /// Norm of the embeddings: only 2 is supported.
    #[schema(minimum = 2, maximum = 2)]
    pub embd_normalize: Option<i64>,
}

/// Fields of `/slots/{id}`.
#[derive(Deserialize, ToSchema)]
pub struct SlotFields {
    /// Name of the file in the folder of `--slot-save-path`.
    #[schema(max_length = 255, pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]
    pub filename: Option<String>,
}

/// The part of the fields that formats the response.
#[derive(Clone, Debug)]
pub struct LlamaOutput {
    /// The response is streamed.
    pub streams: bool,
    /// Number of outputs per prompt.
    pub count: usize,
    /// Number of alternatives per token, or `None` for no log-probabilities.
    pub logprobs: Option<usize>,
    /// Return token ids.
    pub tokens: bool,
    /// Each chunk of a stream has times.
    pub timings: bool,
    /// Slot that is reported, unless the server chooses.
    pub slot: Option<usize>,
    /// Fields of the response to return.
    pub fields: Option<Vec<String>>,
    /// Limits of the texts.
    pub limits: TextLimits,
}

/// Returns the fields of a body with [`LlamaFields`].
pub fn known_fields(body: &[SchemaFn]) -> KnownFields {
    let table = unsupported();
    let refused = table.iter().map(|(name, ..)| *name);
    KnownFields::new(body, &["return_progress"]).and(refused.chain(["max_tokens"]))
}

/// Fields that this server does not have.
fn unsupported() -> [UnsupportedField; 6] {
    let none = "leave it out";
    [
        ("min_keep", json!(0), none),
        ("repeat_last_n", json!(-1), "penalties cover the whole text"),
        ("dynatemp_range", json!(0), none),
        ("image_data", json!([]), "send text only"),
        ("lora", json!([]), "adapters are not supported"),
        ("speculative.n_min", json!(0), "drafts of every length are verified"),
    ]
}

/// Names of [`unsupported`] fields.
fn unsupported_names(table: &[UnsupportedField]) -> Vec<&'static str> {
    table.iter().map(|(name, ..)| *name).collect()
}

impl LlamaFields {
    /// Parses the fields of a body, refuses those that no response would honor, and reports those that
    /// are not `known`.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn parse(body: &Body, known: &KnownFields) -> Result<Self, ApiError> {
        let table = unsupported();
        refuse_others(&body.fields(&unsupported_names(&table)), "", &table)?;
        known.check(body)?;
        Ok(Self { speculative: parse(body)?, ..parse(body)? })
    }

    /// Returns the options of sampling and decoding.
    ///
    /// # Errors
    /// If a logit bias is invalid.
    pub fn options(&self, model: &ServedModel) -> Result<GenerationOptions, ApiError> {
        let salt = (self.cache_prompt == Some(false)).then(ids::unique);
        Ok(GenerationOptions {
            max_tokens: self.n_predict.and_then(|n| usize::try_from(n).ok()),
            n: self.n_cmpl,
            temperature: self.temperature.map(|t| t.max(0.0)),
            top_k: self.top_k.map(|k| k.max(0)),
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            top_n_sigma: self.top_n_sigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            mirostat: self.mirostat,
            mirostat_tau: self.mirostat_tau,
            mirostat_eta: self.mirostat_eta,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_penalty_last_n: self.dry_penalty_last_n,
            dry_sequence_breakers: self.dry_sequence_breakers.clone(),
            repetition_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.biases(model)?,
            seed: self.seed.filter(|&seed| seed >= 0 && seed != i64::from(u32::MAX)),
            samplers: self.samplers.clone(),
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            stream: self.stream,
            cache_salt: salt,
            speculative: self.speculative.clone(),
            ..GenerationOptions::default()
        })
    }

    /// Returns the fields that format the response.
    ///
    /// # Errors
    /// If `n_probs` is too large, or `response_fields` too long.
    pub fn output(&self, options: &GenerationOptions) -> Result<LlamaOutput, ApiError> {
        if let Some(top) = self.n_probs.filter(|&top| top > MAX_N_PROBS) {
            let message = format!("n_probs is {top}: at most {MAX_N_PROBS}");
            return Err(ApiError::bad("n_probs", message));
        }
        let fields = self.response_fields.clone().unwrap_or_default();
        if fields.len() > MAX_FIELDS || fields.iter().any(|field| field.len() > MAX_FIELD) {
            let message = format!(
                "response_fields has {} names: at most {MAX_FIELDS} of {MAX_FIELD} bytes",
                fields.len()
            );
            return Err(ApiError::bad("response_fields", message));
        }
        let time = self.t_max_predict_ms.and_then(|time| u64::try_from(time).ok());
        Ok(LlamaOutput {
            streams: options.streams(),
            count: options.n()?,
            logprobs: self.n_probs.filter(|&top| top > 0),
            tokens: self.return_tokens.unwrap_or(false),
            timings: self.timings_per_token.unwrap_or(false),
            slot: self.id_slot.and_then(|slot| usize::try_from(slot).ok()),
            fields: Some(fields).filter(|fields| !fields.is_empty()),
            limits: TextLimits {
                time: time.filter(|&time| time > 0).map(Duration::from_millis),
                indent: self.n_indent.unwrap_or(0),
            },
        })
    }

    /// Returns the logit biases by token id.
    fn biases(&self, model: &ServedModel) -> Result<Option<BTreeMap<String, f32>>, ApiError> {
        let invalid = |given: &Value| {
            let message = format!(
                "{given} in logit_bias is no pair of a token id or a text and a number or false"
            );
            ApiError::bad("logit_bias", message)
        };
        let bias = |value: &Value| match value {
            Value::Bool(false) => Some(f32::NEG_INFINITY),
            value => value.as_f64().map(|bias| bias as f32),
        };
        let mut biases = BTreeMap::new();
        let pairs: Vec<(Value, Value)> = match self.logit_bias.clone() {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(map)) => {
                let id = |key: String| key.parse::<u32>().map_or(Value::String(key), Value::from);
                map.into_iter().map(|(key, value)| (id(key), value)).collect()
            }
            Some(Value::Array(list)) => {
                let pair = |entry: Value| match entry.as_array().map(Vec::as_slice) {
                    Some([token, value]) => Ok((token.clone(), value.clone())),
                    _ => Err(invalid(&entry)),
                };
                list.into_iter().map(pair).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(invalid(&other)),
        };
        for (token, value) in pairs {
            let bias = bias(&value).ok_or_else(|| invalid(&value))?;
            let ids = match &token {
                Value::String(text) => model.encode(text, false, "logit_bias")?,
                id => {
                    let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                    vec![id.ok_or_else(|| invalid(&token))?]
                }
            };
            biases.extend(ids.into_iter().map(|id| (id.to_string(), bias)));
        }
        Ok(Some(biases))
    }
}
