//! Options and messages as JSON objects: what the C interface and the Python module read.

#[cfg(feature = "grammar")]
use crate::models::grammar::Grammar;
use crate::{GenerateOptions, Sampling, Settings};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Fields of a request: those of this crate, the sampling and the decode settings.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct RequestFields {
    max_tokens: Option<usize>,
    stop: Vec<String>,
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
    #[serde(flatten)]
    sampling: Sampling,
    #[serde(flatten)]
    settings: Settings,
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
        let default = Self::default();
        Ok(Self {
            #[cfg(feature = "grammar")]
            grammar: fields.take_grammar()?,
            #[cfg(feature = "grammar")]
            best_effort: fields.best_effort.unwrap_or(default.best_effort),
            max_tokens: fields.max_tokens.unwrap_or(default.max_tokens),
            sampling: fields.sampling,
            stop: fields.stop,
            settings: fields.settings,
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
        let text = r#"{"max_tokens": 3, "top_k": 2, "decode_mode": "verify", "stop": ["x"]}"#;
        let read = options(text).expect("valid");
        assert_eq!(
            (read.max_tokens, read.sampling.top_k, read.stop),
            (3, Some(2), vec!["x".into()])
        );
        assert_eq!(read.settings.decode_mode, Some(crate::Mode::Verify));
        assert_eq!(options("{}").expect("valid").max_tokens, GenerateOptions::default().max_tokens);
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
