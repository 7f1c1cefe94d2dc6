//! `options` of Ollama's API.

use crate::api::body::options::{GenerationOptions, Texts};
use crate::api::body::{Body, KnownFields, UnsupportedField, refuse_others};
use crate::api::description::schema::schema_of;
use crate::error::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::LazyLock;
use utoipa::ToSchema;

/// The options.
static KNOWN: LazyLock<KnownFields> =
    LazyLock::new(|| KnownFields::new(&[schema_of::<OllamaOptions>], &[]));

/// Options of sampling, under Ollama's names.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct OllamaOptions {
    /// Maximum number of tokens to generate. Negative: as many as fit the context.
    num_predict: Option<i64>,
    /// Maximum number of tokens of prompt and output together. More than the server's context counts as
    /// the server's context.
    #[schema(minimum = 1)]
    pub num_ctx: Option<usize>,
    /// Sampling temperature. 0 always selects the most probable token.
    #[schema(minimum = 0)]
    temperature: Option<f32>,
    /// Keep the `top_k` most probable tokens.
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    /// Keep the smallest set of tokens whose cumulative probability is at least `top_p`.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Keep tokens whose probability is at least `min_p` times that of the most probable token.
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f32>,
    /// Locally typical sampling; 1 keeps all.
    typical_p: Option<f32>,
    /// Mirostat: 1 or 2 keep the surprise of the output near `mirostat_tau`; 0 is off.
    mirostat: Option<u8>,
    /// Target of Mirostat, in bits.
    mirostat_tau: Option<f32>,
    /// Rate of Mirostat.
    mirostat_eta: Option<f32>,
    /// Divides the positive logits of tokens that have occurred before. 1 has no effect.
    #[schema(exclusive_minimum = 0)]
    repeat_penalty: Option<f32>,
    /// Subtracted from the logits of tokens that have occurred before.
    presence_penalty: Option<f32>,
    /// Subtracted from the logits of tokens once for each time that they have occurred before.
    frequency_penalty: Option<f32>,
    /// Seed of the random number generator. -1: random.
    seed: Option<i64>,
    /// Strings that end the output.
    stop: Option<Texts>,
}

impl From<OllamaOptions> for GenerationOptions {
    fn from(options: OllamaOptions) -> Self {
        Self {
            max_tokens: options.num_predict.and_then(|n| usize::try_from(n).ok()),
            max_positions: options.num_ctx,
            temperature: options.temperature,
            top_k: options.top_k,
            top_p: options.top_p,
            min_p: options.min_p,
            typical_p: options.typical_p,
            mirostat: options.mirostat,
            mirostat_tau: options.mirostat_tau,
            mirostat_eta: options.mirostat_eta,
            repetition_penalty: options.repeat_penalty,
            presence_penalty: options.presence_penalty,
            frequency_penalty: options.frequency_penalty,
            seed: options.seed.filter(|&seed| seed >= 0),
            stop: options.stop,
            ..Self::default()
        }
    }
}

/// Options that would change the output and that this server does not have, with the values that describe
/// this server, and what to do instead. Options of loading (`num_thread`, `num_gpu`, `use_mmap`) are hints:
/// they change no output, so they are ignored and named.
fn unsupported() -> [UnsupportedField; 3] {
    let none = "leave it out";
    [
        ("penalize_newline", json!(true), none),
        ("repeat_last_n", json!(-1), "penalties cover the whole text"),
        ("tfs_z", json!(1), none),
    ]
}

/// Refuses options that this server does not have, and reports hints and unknown ones.
///
/// # Errors
/// Names the first such option.
pub fn check_options(body: &Body) -> Result<(), ApiError> {
    let fields = body.fields(&["options"]);
    let Some(Value::Object(options)) = fields.get("options") else { return Ok(()) };
    let unsupported = unsupported();
    refuse_others(options, "options.", &unsupported)?;
    let known =
        |name: &String| KNOWN.has(name) || unsupported.iter().any(|(other, ..)| *other == name);
    for (name, _) in options.iter().filter(|(name, value)| !value.is_null() && !known(name)) {
        body.ignored.add(&format!("options.{name}"));
    }
    Ok(())
}
