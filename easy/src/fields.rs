//! Options and messages as JSON objects: what the C interface and the Python module read.

mod kind;

pub use kind::{FieldKind, names_its_place, read_object, wrong_item};
pub use wrinklefree::settings::{explain_json_error, shown};

#[cfg(feature = "grammar")]
use crate::models::grammar::Grammar;
use crate::{GenerateOptions, Reasoning, Sampling, Settings};
use serde::Deserialize;
use serde_json::{Map, Value};
use wrinklefree::chat::tools::ChatToolFields;

/// Fields of a request: those of this crate, sampling, decode settings and reasoning.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RequestFields {
    max_tokens: Option<usize>,
    stop: Vec<String>,
    suffix: Option<String>,
    diffusing: Option<bool>,
    logprobs: Option<usize>,
    context_shift: Option<usize>,
    #[cfg(feature = "grammar")]
    json_schema: Option<Value>,
    #[cfg(feature = "grammar")]
    regex: Option<String>,
    #[cfg(feature = "grammar")]
    grammar: Option<String>,
    #[cfg(feature = "grammar")]
    best_effort: Option<bool>,
    documents: Option<Vec<Map<String, Value>>>,
    #[serde(flatten)]
    tools: ChatToolFields,
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    settings: Settings,
    #[serde(flatten)]
    reasoning: Reasoning,
    /// Fields that none of the parts above knows.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

#[cfg(feature = "grammar")]
impl RequestFields {
    /// Takes the grammar, of which there may be one.
    fn take_grammar(&mut self) -> Result<Option<Grammar>, String> {
        let schema = self.json_schema.take().map(Grammar::JsonSchema);
        let regex = self.regex.take().map(Grammar::Regex);
        let lark = self.grammar.take().map(Grammar::Lark);
        let mut grammars = schema.into_iter().chain(regex).chain(lark);
        match (grammars.next(), grammars.next()) {
            (_, Some(_)) => Err("json_schema, regex and grammar exclude each other".into()),
            (grammar, None) => Ok(grammar),
        }
    }
}

impl TryFrom<RequestFields> for GenerateOptions {
    type Error = String;

    fn try_from(#[allow(unused_mut)] mut fields: RequestFields) -> Result<Self, String> {
        if let Some(name) = fields.unknown.keys().next() {
            return Err(format!("there is no field `{name}`"));
        }
        Ok(Self {
            #[cfg(feature = "grammar")]
            grammar: fields.take_grammar()?,
            #[cfg(feature = "grammar")]
            best_effort: fields.best_effort.unwrap_or_default(),
            max_tokens: fields.max_tokens,
            sampling: fields.sampling,
            stop: fields.stop,
            suffix: fields.suffix,
            tools: fields.tools.tools().map_err(|error| error.to_string())?,
            documents: fields.documents.map(|all| all.into_iter().map(Value::from).collect()),
            settings: fields.settings,
            reasoning: fields.reasoning,
            diffusing: fields.diffusing.unwrap_or_default(),
            logprobs: fields.logprobs,
            context_shift: fields.context_shift,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    fn options(text: &str) -> Result<GenerateOptions, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_of_all_parts_are_read() {
        let text = r#"{"max_tokens": 3, "top_k": 2, "decode_mode": "verify", "stop": ["x"],
                       "enable_thinking": false}"#;
        let read = options(text).expect("valid");
        assert_eq!(read.reasoning.enable_thinking, Some(false));
        assert_eq!(
            (read.max_tokens, read.sampling.top_k, read.stop),
            (Some(3), Some(2), vec!["x".into()])
        );
        assert_eq!(read.settings.decode_mode, Some(crate::Mode::Verify));
    }

    #[test]
    fn fields_that_do_not_exist_are_refused_by_name() {
        let error = options(r#"{"temperatur": 0}"#).expect_err("refused");
        assert!(error.contains("there is no field `temperatur`"), "{error}");
        let message = serde_json::from_str::<Message>(r#"{"role": "user", "content": "", "n": 1}"#);
        assert!(message.expect_err("refused").to_string().contains('n'));
    }

    #[cfg(feature = "grammar")]
    #[test]
    fn one_grammar_at_most() {
        let error = options(r#"{"regex": "a", "grammar": "start: \"a\""}"#).expect_err("refused");
        assert!(error.contains("exclude each other"), "{error}");
    }
}
