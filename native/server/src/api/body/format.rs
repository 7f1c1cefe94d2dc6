//! Format of the output: `response_format`, `structured_outputs` and the fields of other servers.

use crate::engine::grammars::{AnswerForm, RequestedGrammar};
use crate::error::ApiError;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Constraints on the output. At most one of these fields may be set.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct OutputFormatFields {
    /// Format of the output, as in OpenAI's API.
    response_format: Option<ResponseFormat>,
    /// Constraint on the output, as in vLLM's API.
    structured_outputs: Option<StructuredOutputs>,
    /// Regular expression that the whole output must match. `regex` and `guided_regex` are the same.
    regex: Option<String>,
    guided_regex: Option<String>,
    /// Grammar of the output, in llama.cpp's format (GBNF) or llguidance's dialect of Lark. `grammar`,
    /// `ebnf` and `guided_grammar` are the same.
    grammar: Option<String>,
    ebnf: Option<String>,
    guided_grammar: Option<String>,
    /// JSON schema of the output. `json_schema` and `guided_json` are the same; SGLang sends it as a text.
    #[schema(value_type = Option<Object>)]
    json_schema: Option<Value>,
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
    JsonObject {
        /// JSON schema of the output, as in llama-server's API.
        #[schema(value_type = Option<Object>)]
        schema: Option<Value>,
    },
    JsonSchema {
        json_schema: Option<JsonSchema>,
        /// JSON schema of the output, as in llama-server's API.
        #[schema(value_type = Option<Object>)]
        schema: Option<Value>,
    },
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

/// Constraint on the output: one of these fields.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct StructuredOutputs {
    /// JSON schema of the output.
    #[schema(value_type = Option<Object>)]
    json: Option<Value>,
    /// Any JSON object.
    json_object: Option<bool>,
    /// Regular expression that the whole output must match.
    regex: Option<String>,
    /// The output must be one of these strings.
    #[schema(min_items = 1)]
    choice: Option<Vec<String>>,
    /// Grammar of the output, in GBNF or Lark.
    grammar: Option<String>,
}

/// Forms with the fields that ask for them.
type Requested = Vec<(AnswerForm, &'static str)>;

impl StructuredOutputs {
    fn add_to(self, all: &mut Requested) -> Result<(), ApiError> {
        const FIELD: &str = "structured_outputs";
        let before = all.len();
        all.extend(self.json.map(|schema| (AnswerForm::JsonSchema(schema), FIELD)));
        all.extend(self.json_object.filter(|&on| on).map(|_| (AnswerForm::JsonObject, FIELD)));
        all.extend(self.regex.map(|regex| (AnswerForm::Regex(regex), FIELD)));
        if let Some(texts) = self.choice {
            all.push((choice(texts, "structured_outputs.choice")?, FIELD));
        }
        let grammar = self.grammar.map(AnswerForm::Grammar);
        all.extend(grammar.map(|grammar| (grammar, "structured_outputs.grammar")));
        match all.len() - before {
            1 => Ok(()),
            n => {
                let message = format!(
                    "structured_outputs sets {n} constraints: set one of json, json_object, regex, \
                     choice and grammar"
                );
                Err(ApiError::bad(FIELD, message))
            }
        }
    }
}

impl OutputFormatFields {
    /// Returns the grammar that these fields ask for.
    ///
    /// # Errors
    /// If more than one field is set, or one is invalid.
    pub fn grammar(self) -> Result<Option<RequestedGrammar>, ApiError> {
        self.or(None)
    }

    /// Returns the grammar that these fields ask for, or `other`, which an API's own field asks for.
    ///
    /// # Errors
    /// If more than one field is set, or one is invalid.
    pub fn or(self, other: Option<RequestedGrammar>) -> Result<Option<RequestedGrammar>, ApiError> {
        let mut best_effort = self.best_effort.unwrap_or(false);
        let mut all = Requested::new();
        match self.response_format {
            None | Some(ResponseFormat::Text) => {}
            Some(ResponseFormat::JsonObject { schema }) => {
                let form = schema.map_or(AnswerForm::JsonObject, AnswerForm::JsonSchema);
                all.push((form, "response_format"));
            }
            Some(ResponseFormat::JsonSchema { json_schema, schema }) => {
                best_effort |=
                    json_schema.as_ref().is_some_and(|given| given.strict == Some(false));
                let schema = json_schema.map(|given| given.schema).or(schema);
                let missing = "a response_format of type `json_schema` needs `json_schema.schema`";
                let schema = schema.ok_or_else(|| ApiError::bad("response_format", missing))?;
                all.push((AnswerForm::JsonSchema(schema), "response_format"));
            }
        }
        if let Some(structured) = self.structured_outputs {
            structured.add_to(&mut all)?;
        }
        for (regex, field) in [(self.regex, "regex"), (self.guided_regex, "guided_regex")] {
            all.extend(regex.map(|regex| (AnswerForm::Regex(regex), field)));
        }
        for (text, field) in [
            (self.grammar, "grammar"),
            (self.ebnf, "ebnf"),
            (self.guided_grammar, "guided_grammar"),
        ] {
            let text = text.filter(|text| !text.is_empty());
            all.extend(text.map(|text| (AnswerForm::Grammar(text), field)));
        }
        for (schema, field) in
            [(self.json_schema, "json_schema"), (self.guided_json, "guided_json")]
        {
            all.extend(schema.map(|schema| (schema_or_text(schema), field)));
        }
        if let Some(texts) = self.guided_choice {
            all.push((choice(texts, "guided_choice")?, "guided_choice"));
        }
        only(all, other, best_effort)
    }
}

/// Returns the one grammar of a request.
fn only(
    all: Requested,
    other: Option<RequestedGrammar>,
    best_effort: bool,
) -> Result<Option<RequestedGrammar>, ApiError> {
    let fields = all.into_iter().map(|(form, field)| RequestedGrammar {
        best_effort,
        ..RequestedGrammar::of_answer(form, field)
    });
    let other = other
        .map(|other| RequestedGrammar { best_effort: other.best_effort || best_effort, ..other });
    let mut requested = other.into_iter().chain(fields);
    let first = requested.next();
    match (&first, requested.next()) {
        (Some(first), Some(second)) => Err(ApiError::bad(
            "response_format",
            format!(
                "more than one output format: `{}` and `{}` are set; set only one",
                first.field, second.field
            ),
        )),
        _ => first.map(RequestedGrammar::checked).transpose(),
    }
}

/// Returns the form of a schema, which may have come as a text. Nobody parses it here.
fn schema_or_text(schema: Value) -> AnswerForm {
    match schema {
        Value::String(text) => AnswerForm::JsonSchemaText(text),
        schema => AnswerForm::JsonSchema(schema),
    }
}

/// Returns the form of exactly these texts.
fn choice(texts: Vec<String>, field: &str) -> Result<AnswerForm, ApiError> {
    if texts.is_empty() {
        return Err(ApiError::bad(field, format!("{field} is empty: send at least one string")));
    }
    Ok(AnswerForm::Choice(texts))
}
