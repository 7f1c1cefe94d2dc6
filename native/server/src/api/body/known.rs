//! Fields of request bodies that no struct has: those of other servers, and unknown ones.

use super::Body;
use crate::api::description::schema::SchemaFn;
use crate::error::ApiError;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::{Deserializer, Value};
use std::collections::BTreeSet;
use std::fmt;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Components, Schema};

/// Other names of fields.
const ALIASES: [&str; 4] =
    ["repeat_penalty", "min_new_tokens", "thinking_token_budget", "thinking_budget_tokens"];

/// Labels that most clients send. They change nothing, and no response names them.
const SILENT: [&str; 4] = ["metadata", "prompt_cache_key", "store", "user"];

/// Fields of OpenAI's API, Anthropic's, vLLM, SGLang and llama-server that this server does not have, and
/// the values that ask for what it does anyway; without any, the values that mean "off" (null, false,
/// empty). Hints about how to compute (`guided_decoding_backend`, `n_keep`, `priority`) are not among them:
/// they are ignored and named.
const OTHERS: &[(&str, &[&str])] = &[
    ("add_special_tokens", &["true", "false"]),
    ("allowed_token_ids", &[]),
    ("audio", &[]),
    ("chat_template", &[]),
    ("diffusing", &[]),
    ("dynatemp_exponent", &["1", "1.0"]),
    ("dynatemp_range", &["0", "0.0"]),
    ("function_call", &["\"none\""]),
    ("functions", &[]),
    ("grammar_lazy", &[]),
    ("grammar_triggers", &[]),
    ("guided_whitespace_pattern", &[]),
    ("image_data", &[]),
    ("include", &["[]", "[\"reasoning.encrypted_content\"]"]),
    ("include_reasoning", &["true"]),
    ("include_stop_str_in_output", &[]),
    ("kv_transfer_params", &[]),
    ("length_penalty", &["1", "1.0"]),
    ("logits_processors", &[]),
    ("lora", &[]),
    ("lora_path", &[]),
    ("min_keep", &["0", "1"]),
    ("mm_processor_kwargs", &[]),
    ("modalities", &["[\"text\"]"]),
    ("n_indent", &["0"]),
    ("n_probs", &["0"]),
    ("no_stop_trim", &[]),
    ("parse_tool_calls", &["true"]),
    ("penalize_nl", &[]),
    ("post_sampling_probs", &[]),
    ("prediction", &[]),
    ("reasoning_format", &["\"auto\"", "\"deepseek\""]),
    ("repeat_last_n", &["-1"]),
    ("response_fields", &[]),
    ("return_hidden_states", &[]),
    ("samplers", &[]),
    ("separate_reasoning", &["true"]),
    ("session_params", &[]),
    ("skip_special_tokens", &["true"]),
    ("speculative.n_min", &["0"]),
    ("spaces_between_special_tokens", &["true"]),
    ("stop_regex", &[]),
    ("stream_reasoning", &["true"]),
    ("structural_tag", &[]),
    ("suffix", &[]),
    ("t_max_predict_ms", &["0", "-1"]),
    ("tfs_z", &["1", "1.0"]),
    ("thinking_forced_open", &[]),
    ("truncation", &["\"disabled\"", "\"auto\""]),
    ("use_beam_search", &[]),
    ("vllm_xargs", &[]),
    ("web_search_options", &[]),
];

/// The fields of an endpoint's body.
pub struct KnownFields {
    names: BTreeSet<String>,
    /// Fields of the endpoint's API that it does not support.
    unsupported: &'static [&'static str],
}

impl KnownFields {
    /// Collects the fields of an endpoint from the schemas of its body.
    pub fn new(body: &[SchemaFn], unsupported: &'static [&'static str]) -> Self {
        let mut components = Components::new();
        let references: Vec<_> = body.iter().map(|schema| schema(&mut components)).collect();
        let mut names: BTreeSet<String> = ALIASES.iter().map(|&name| name.into()).collect();
        for reference in references {
            let RefOr::Ref(reference) = reference else { continue };
            let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
            if let Some(RefOr::T(Schema::Object(object))) = components.schemas.get(name) {
                names.extend(object.properties.keys().cloned());
            }
        }
        Self { names, unsupported }
    }

    /// Adds names of fields that other code honors or refuses.
    pub fn and<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.names.extend(names.into_iter().map(String::from));
        self
    }

    /// Returns true if a body may have this field.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Refuses fields that ask for features which this server does not have. Ignoring them would silently
    /// answer a different request. Other fields have no effect and are reported.
    ///
    /// # Errors
    /// Names the first such field.
    pub fn check(&self, body: &Body) -> Result<(), ApiError> {
        super::refuse_unsupported(body, self.unsupported)?;
        let Ok(keys) = Keys.deserialize(&mut Deserializer::from_slice(&body.json)) else {
            return Ok(());
        };
        for key in keys.iter().filter(|key| !self.has(key)) {
            let key = key.as_str();
            if let Some((name, accepted)) = OTHERS.iter().find(|(name, _)| *name == key) {
                refuse(body, name, accepted)?;
            } else if !self.unsupported.contains(&key) && !SILENT.contains(&key) {
                body.ignored.add(key);
            }
        }
        Ok(())
    }
}

/// Refuses a field unless its value is accepted.
fn refuse(body: &Body, name: &'static str, accepted: &[&str]) -> Result<(), ApiError> {
    if accepted.is_empty() {
        return super::refuse_unsupported(body, &[name]);
    }
    let value = body.fields(&[name]).remove(name).unwrap_or(Value::Null);
    let same = |text: &&str| serde_json::from_str::<Value>(text).is_ok_and(|other| other == value);
    if value.is_null() || accepted.iter().any(same) {
        Ok(())
    } else {
        Err(super::unsupported(name))
    }
}

/// Collects the names of a body's fields.
struct Keys;

impl<'de> DeserializeSeed<'de> for Keys {
    type Value = BTreeSet<String>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Keys {
    type Value = BTreeSet<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            keys.insert(key);
        }
        Ok(keys)
    }
}
