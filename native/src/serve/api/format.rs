//! What an answer must look like: `response_format` and the `guided_…` extensions.

use crate::models::grammar::Grammar;
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The fields that say it.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct Format {
    response_format: Option<ResponseFormat>,
    /// A regular expression that matches the whole answer.
    guided_regex: Option<String>,
    /// A grammar in llguidance's dialect of Lark.
    guided_grammar: Option<String>,
    /// A JSON schema of the answer.
    #[schema(value_type = Option<Object>)]
    guided_json: Option<Value>,
    /// The answer is one of these texts.
    #[schema(min_items = 1)]
    guided_choice: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema },
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
struct JsonSchema {
    #[schema(value_type = Object)]
    schema: Value,
}

/// A grammar, and the field that asks for it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub grammar: Grammar,
    pub field: &'static str,
}

impl Format {
    /// The grammar that is asked for.
    pub fn grammar(self) -> Result<Option<Asked>, ApiError> {
        self.or(None)
    }

    /// The grammar that is asked for here or, as `other`, elsewhere.
    pub fn or(self, other: Option<Asked>) -> Result<Option<Asked>, ApiError> {
        let json = match self.response_format {
            None | Some(ResponseFormat::Text) => None,
            Some(ResponseFormat::JsonObject) => Some(Grammar::json_object()),
            Some(ResponseFormat::JsonSchema { json_schema }) => {
                Some(Grammar::JsonSchema(json_schema.schema))
            }
        };
        let regex = self.guided_regex.map(Grammar::Regex);
        let lark = self.guided_grammar.map(Grammar::Lark);
        let schema = self.guided_json.map(Grammar::JsonSchema);
        let choice = self.guided_choice.map(|texts| choice(&texts)).transpose()?;
        let ours = [
            (json, "response_format"),
            (regex, "guided_regex"),
            (lark, "guided_grammar"),
            (schema, "guided_json"),
            (choice, "guided_choice"),
        ];
        let ours = ours
            .into_iter()
            .filter_map(|(grammar, field)| grammar.map(|grammar| Asked { grammar, field }));
        let mut asked = other.into_iter().chain(ours);
        let first = asked.next();
        match asked.next() {
            None => Ok(first),
            Some(_) => Err(ApiError::bad(
                "response_format",
                "one format of answers at most: response_format (text.format in responses, \
                 output_config.format in messages), guided_json, guided_choice, guided_regex or \
                 guided_grammar",
            )),
        }
    }
}

/// A grammar of these texts alone.
fn choice(texts: &[String]) -> Result<Grammar, ApiError> {
    if texts.is_empty() {
        return Err(ApiError::bad(
            "guided_choice",
            "guided_choice is empty: give at least one text",
        ));
    }
    // Lark's strings are JSON's.
    let texts: Vec<String> = texts.iter().map(|text| json!(text).to_string()).collect();
    Ok(Grammar::Lark(format!("start: {}\n", texts.join(" | "))))
}
