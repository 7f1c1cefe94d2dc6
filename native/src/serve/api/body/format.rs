//! Format of the output: `response_format` and the `guided_…` extensions.

use crate::models::grammar::Grammar;
use crate::serve::error::ApiError;
use crate::serve::grammars::RequestedGrammar;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Constraints on the output. At most one of these fields may be set.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct OutputFormatFields {
    /// Format of the output, as in OpenAI's API.
    response_format: Option<ResponseFormat>,
    /// Regular expression that the whole output must match.
    guided_regex: Option<String>,
    /// Grammar of the output, in llguidance's dialect of Lark.
    guided_grammar: Option<String>,
    /// JSON schema of the output.
    #[schema(value_type = Option<Object>)]
    guided_json: Option<Value>,
    /// The output must be one of these strings.
    #[schema(min_items = 1)]
    guided_choice: Option<Vec<String>>,
    /// Leave out the parts of a JSON schema that no grammar can hold, instead of refusing it. The field
    /// `schema_validation` of the response says whether the output matches. As `strict: false`.
    best_effort: Option<bool>,
}

/// Format of the output: any text, any JSON object, or JSON that matches a schema.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema },
}

/// A JSON schema with its settings.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct JsonSchema {
    /// JSON schema of the output.
    #[schema(value_type = Object)]
    schema: Value,
    /// False: what no grammar can hold of the schema is left out, and the response says in
    /// `schema_validation` whether the output matches. Otherwise such a schema is refused.
    strict: Option<bool>,
}

impl OutputFormatFields {
    /// Returns the grammar that these fields ask for.
    ///
    /// # Errors
    /// If more than one field is set, or `guided_choice` is empty.
    pub fn grammar(self) -> Result<Option<RequestedGrammar>, ApiError> {
        self.or(None)
    }

    /// Returns the grammar that these fields ask for, or `other`, which an API's own field asks for.
    ///
    /// # Errors
    /// If more than one field is set, or `guided_choice` is empty.
    pub fn or(self, other: Option<RequestedGrammar>) -> Result<Option<RequestedGrammar>, ApiError> {
        let mut best_effort = self.best_effort.unwrap_or(false);
        let json = match self.response_format {
            None | Some(ResponseFormat::Text) => None,
            Some(ResponseFormat::JsonObject) => Some(Grammar::json_object()),
            Some(ResponseFormat::JsonSchema { json_schema }) => {
                best_effort |= json_schema.strict == Some(false);
                Some(Grammar::JsonSchema(json_schema.schema))
            }
        };
        let regex = self.guided_regex.map(Grammar::Regex);
        let lark = self.guided_grammar.map(Grammar::Lark);
        let schema = self.guided_json.map(Grammar::JsonSchema);
        let choice = self.guided_choice.map(|texts| choice_grammar(&texts)).transpose()?;
        let fields = [
            (json, "response_format"),
            (regex, "guided_regex"),
            (lark, "guided_grammar"),
            (schema, "guided_json"),
            (choice, "guided_choice"),
        ];
        let fields = fields.into_iter().filter_map(|(grammar, field)| {
            grammar.map(|grammar| RequestedGrammar { grammar, field, best_effort })
        });
        let other = other.map(|other| RequestedGrammar {
            best_effort: other.best_effort || best_effort,
            ..other
        });
        let mut requested = other.into_iter().chain(fields);
        let first = requested.next();
        match requested.next() {
            None => Ok(first),
            Some(_) => Err(ApiError::bad(
                "response_format",
                "more than one output format: set only one of response_format (text.format in \
                 /v1/responses, output_config.format in /v1/messages), guided_json, \
                 guided_choice, guided_regex and guided_grammar",
            )),
        }
    }
}

/// Returns a grammar of exactly these texts.
fn choice_grammar(texts: &[String]) -> Result<Grammar, ApiError> {
    if texts.is_empty() {
        return Err(ApiError::bad(
            "guided_choice",
            "guided_choice is empty: send at least one string",
        ));
    }
    // Lark's string literals are JSON's.
    let texts: Vec<String> = texts.iter().map(|text| json!(text).to_string()).collect();
    Ok(Grammar::Lark(format!("start: {}\n", texts.join(" | "))))
}
