//! The body of `POST /v1/responses`.

use crate::api::body::content::{Content, is_asked, stand_in, template_role};
use crate::api::body::format::OutputFormatFields;
use crate::api::body::model::ModelFields;
use crate::api::body::options::GenerationOptions;
use crate::api::body::required;
use crate::api::description::schema::{SchemaFn, schema_of};
use crate::api::openai::chat::body::MAX_TOP_LOGPROBS;
use crate::engine::grammars::{AnswerForm, RequestedGrammar};
use crate::error::ApiError;
use crate::ignored::IgnoredFields;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use wrinklefree::chat::tools::{
    FunctionDefinition, FunctionName, ToolChoice, ToolChoiceMode, Tools, ToolsError,
};
use wrinklefree::chat::{TemplateMessages, called_arguments};
use wrinklefree::settings::{Effort, Reasoning};

/// Schemas of the body.
pub const BODY: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<GenerationOptions>,
    schema_of::<ResponsesLimits>,
    schema_of::<ResponsesLogprobFields>,
    schema_of::<ResponsesInputFields>,
    schema_of::<ResponsesStateFields>,
    schema_of::<ResponsesToolFields>,
    schema_of::<ResponsesTextFields>,
    schema_of::<ResponsesReasoningFields>,
    schema_of::<Reasoning>,
    schema_of::<OutputFormatFields>,
];

/// Schemas of the body of `/v1/responses/input_tokens`.
pub const INPUT_TOKENS: &[SchemaFn] =
    &[schema_of::<ResponsesInputFields>, schema_of::<ResponsesToolFields>];

/// Input of the Responses API.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ResponsesInputFields {
    /// System message, placed before the input.
    instructions: Option<String>,
    /// The conversation so far.
    input: ResponsesInput,
}

/// Fields about stored responses.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct ResponsesStateFields {
    /// Id of a response to go on from: its conversation comes before the input.
    pub previous_response_id: Option<String>,
    /// Keep the response, so that others can go on from it. True by default. The server keeps the last
    /// ones in memory.
    pub store: Option<bool>,
}

/// Limits of the Responses API.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ResponsesLimits {
    /// Maximum number of tokens to generate.
    #[schema(minimum = 1)]
    pub max_output_tokens: Option<usize>,
}

/// Log-probabilities of the output text.
const LOGPROBS: &str = "message.output_text.logprobs";
/// Values of `include`. The reasoning comes as a text, which needs no encryption.
const INCLUDED: [&str; 2] = [LOGPROBS, "reasoning.encrypted_content"];

/// Fields about log-probabilities.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ResponsesLogprobFields {
    /// Number of most probable tokens to return at each position of the output text.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<usize>,
    /// More to return: `message.output_text.logprobs`, the log-probability of each token of the text.
    include: Option<Vec<String>>,
}

impl ResponsesLogprobFields {
    /// Returns the number of alternatives per token, or `None` for no log-probabilities.
    ///
    /// # Errors
    /// If the number is too large, or something else is to be included.
    pub fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        if let Some(top) = self.top_logprobs.filter(|&top| top > MAX_TOP_LOGPROBS) {
            let message = format!("top_logprobs is {top}: at most {MAX_TOP_LOGPROBS}");
            return Err(ApiError::bad("top_logprobs", message));
        }
        let include = self.include.as_deref().unwrap_or_default();
        if let Some(other) = include.iter().find(|name| !INCLUDED.contains(&name.as_str())) {
            let message = format!(
                "`include` has `{other}`, which is not supported by this server: expected {}",
                INCLUDED.join(" or ")
            );
            return Err(ApiError { code: "unsupported", ..ApiError::bad("include", message) });
        }
        let top = self.top_logprobs.filter(|&top| top > 0);
        Ok(top.or_else(|| include.iter().any(|name| name == LOGPROBS).then_some(0)))
    }
}

/// The user's message as a text, or an array of items.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of items")]
enum ResponsesInput {
    Text(String),
    Items(Vec<ResponsesItem>),
}

/// An item of a conversation: `message` (with `role` and `content`), `reasoning` (with `content` or
/// `summary`), `function_call` (with `call_id`, `name` and `arguments`) or `function_call_output` (with
/// `call_id` and `output`).
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ResponsesItem {
    /// Type of the item: `message` (the default), `reasoning`, `function_call`,
    /// `function_call_output`, or those of custom tools. A line stands for an item of another type, as of
    /// a web search.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Role of a message's author: `system` or `developer`, `user`, or `assistant`.
    #[schema(pattern = "^(system|developer|user|assistant)$")]
    role: Option<String>,
    /// Content of a message.
    content: Option<Content>,
    /// Summary of a reasoning, used where it has no content.
    summary: Option<Content>,
    /// Id of a call.
    call_id: Option<String>,
    /// Name of the called function.
    name: Option<String>,
    /// Arguments of a call: a JSON object, serialized. Other texts are shown to the model as they are.
    #[schema(value_type = Option<String>)]
    arguments: Option<Value>,
    /// Input of a custom tool's call.
    input: Option<String>,
    /// Result of a call.
    output: Option<Content>,
    #[serde(flatten)]
    #[schema(ignore)]
    rest: Map<String, Value>,
}

/// Output format of the Responses API.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ResponsesTextFields {
    /// Options of the output text.
    text: Option<ResponsesTextOptions>,
}

/// Options of the output text.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ResponsesTextOptions {
    /// Format of the output.
    format: Option<ResponsesTextFormat>,
}

/// Format of the output: any text, any JSON object, or JSON that matches a schema.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponsesTextFormat {
    Text,
    JsonObject,
    JsonSchema {
        /// JSON schema of the output.
        #[schema(value_type = Object)]
        schema: Value,
        /// False: what no grammar can hold of the schema is left out, and the response says in
        /// `schema_validation` whether the output matches. Otherwise such a schema is refused.
        strict: Option<bool>,
    },
}

/// Fields about reasoning.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ResponsesReasoningFields {
    /// Options of reasoning.
    reasoning: Option<ResponsesReasoning>,
}

/// Options of reasoning.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ResponsesReasoning {
    /// Amount of reasoning.
    effort: Option<Effort>,
}

impl ResponsesReasoningFields {
    /// Returns the settings of reasoning.
    pub fn reasoning(self) -> Reasoning {
        let reasoning_effort = self.reasoning.and_then(|reasoning| reasoning.effort);
        Reasoning { reasoning_effort, ..Reasoning::default() }
    }
}

/// Fields about tools.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct ResponsesToolFields {
    /// Functions that the model may call.
    #[schema(max_items = 128)]
    tools: Option<Vec<ResponsesTool>>,
    /// Tool choice: `none`, `auto`, `required`, or one function by name.
    tool_choice: Option<ResponsesToolChoice>,
    /// Allow several calls in one output. Defaults to true.
    parallel_tool_calls: Option<bool>,
}

/// A tool: a function definition with a type.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ResponsesTool {
    /// Type of the tool: `function`. Tools of other types have no effect.
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    function: FunctionDefinition,
}

/// Tool choice: a word, or one function by name.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected `none`, `auto`, `required` or a function's name")]
enum ResponsesToolChoice {
    Mode(ToolChoiceMode),
    Function(FunctionName),
}

impl ResponsesToolFields {
    /// Converts and checks the tools. Clients such as Codex send some that only OpenAI's server runs; they
    /// are left out and reported.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn tools(self, ignored: &IgnoredFields) -> Result<Tools, ApiError> {
        let (functions, others): (Vec<_>, Vec<_>) = self
            .tools
            .unwrap_or_default()
            .into_iter()
            .enumerate()
            .partition(|(_, tool)| tool.kind == "function");
        others.iter().for_each(|(_, tool)| ignored.add(&format!("tools.type={}", tool.kind)));
        let tools =
            functions.into_iter().map(|(index, tool)| tool.function.into_tool(&tool.kind, index));
        let choice = match self.tool_choice {
            None => ToolChoice::Auto,
            Some(ResponsesToolChoice::Mode(mode)) => mode.into(),
            Some(ResponsesToolChoice::Function(function)) => ToolChoice::Named(function.name),
        };
        let parallel = self.parallel_tool_calls.unwrap_or(true);
        let tools = tools.collect::<Result<_, ToolsError>>()?;
        Ok(Tools::new(tools, choice, parallel)?)
    }
}

impl ResponsesTextFields {
    /// Returns the grammar that these fields ask for.
    pub fn grammar(self) -> Option<RequestedGrammar> {
        let (form, strict) = match self.text?.format? {
            ResponsesTextFormat::Text => return None,
            ResponsesTextFormat::JsonObject => (AnswerForm::JsonObject, None),
            ResponsesTextFormat::JsonSchema { schema, strict } => {
                (AnswerForm::JsonSchema(schema), strict)
            }
        };
        let best_effort = strict == Some(false);
        let requested = RequestedGrammar::of_answer(form, "text.format");
        Some(RequestedGrammar { best_effort, ..requested })
    }
}

impl ResponsesInputFields {
    /// Returns the instructions as a message.
    pub fn system(&mut self) -> Option<Value> {
        let instructions = self.instructions.take()?;
        Some(json!({"role": "system", "content": instructions}))
    }

    /// Converts the input for chat templates.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn messages(self) -> Result<Vec<Value>, ApiError> {
        let mut messages = TemplateMessages::default();
        match self.input {
            ResponsesInput::Text(text) => messages.push_text("user", &text),
            ResponsesInput::Items(items) => {
                let answered = items.iter().rposition(|item| !item.is_asked());
                let first_asked = answered.map_or(0, |last| last + 1);
                for (index, item) in items.into_iter().enumerate() {
                    let asked = index >= first_asked;
                    item.push_to(&mut messages, asked, &format!("input[{index}]"))?;
                }
            }
        }
        Ok(messages.finish())
    }
}

impl ResponsesItem {
    /// Returns true for a message that the model answers.
    fn is_asked(&self) -> bool {
        let is_message = self.kind.as_deref().is_none_or(|kind| kind == "message");
        is_message && self.role.as_deref().is_some_and(is_asked)
    }

    /// Adds the item, which came in the field `path`. It is `asked` if only such items follow.
    fn push_to(
        self,
        messages: &mut TemplateMessages,
        asked: bool,
        path: &str,
    ) -> Result<(), ApiError> {
        match self.kind.as_deref().unwrap_or("message") {
            kind @ "message" => {
                let role = required(self.role, path, kind, "role")?;
                let role = template_role(&role, &format!("{path}.role"))?;
                let content = match self.content {
                    None if !asked => Content::Text(String::new()),
                    content => required(content, path, kind, "content")?,
                };
                messages.push_text(role, &content.of_turn(asked, &format!("{path}.content"))?);
            }
            "reasoning" => {
                let content = self.content.map(Content::history).filter(|text| !text.is_empty());
                let summary = || self.summary.map(Content::history).unwrap_or_default();
                messages.push_reasoning(&content.unwrap_or_else(summary));
            }
            kind @ ("function_call" | "custom_tool_call") => {
                let id = required(self.call_id, path, kind, "call_id")?;
                let name = required(self.name, path, kind, "name")?;
                let arguments = match kind {
                    "function_call" => called_arguments(self.arguments),
                    _ => json!({"input": self.input.unwrap_or_default()}),
                };
                messages.push_call(id, &name, arguments);
            }
            kind @ ("function_call_output" | "custom_tool_call_output") => {
                let id = required(self.call_id, path, kind, "call_id")?;
                messages.push_result(&id, &self.output.map(Content::history).unwrap_or_default());
            }
            "item_reference" => {
                let message = "items are not kept by their ids: send the item itself";
                return Err(ApiError::bad(format!("{path}.type"), message));
            }
            _ => self.push_line(messages),
        }
        Ok(())
    }

    /// Adds a line that stands for an item of another type: what the model did, or what it got.
    fn push_line(self, messages: &mut TemplateMessages) {
        let Self { kind, name, arguments, output, mut rest, .. } = self;
        let kind = kind.unwrap_or_default();
        let given = [
            ("name", name.map(Value::from)),
            ("arguments", arguments),
            ("output", output.map(|output| output.history().into())),
        ];
        rest.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))));
        let got = kind.ends_with("_output") || kind.ends_with("_response");
        messages.push_line(if got { "user" } else { "assistant" }, &stand_in(&kind, &rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Vec<Value>, ApiError> {
        let mut input = serde_json::from_value::<ResponsesInputFields>(body).expect("parses");
        let system = input.system();
        Ok(system.into_iter().chain(input.messages()?).collect())
    }

    #[test]
    fn items_become_messages() {
        let parts = json!([{"type": "output_text", "text": "I look."}]);
        let messages = read(json!({"instructions": "Be kind.", "input": [
            {"role": "developer", "content": "Short."},
            {"role": "user", "content": "How is it?"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": parts},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\": 1}"},
            {"type": "function_call_output", "call_id": "1", "output": "rain"},
        ]}));
        let call = json!({"id": "1", "type": "function",
            "function": {"name": "f", "arguments": {"x": 1}}});
        let want = json!([
            {"role": "system", "content": "Be kind."},
            {"role": "system", "content": "Short."},
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.",
                "tool_calls": [call]},
            {"role": "tool", "content": "rain", "tool_call_id": "1"},
        ]);
        assert_eq!(Value::from(messages.expect("valid")), want);
        let text = read(json!({"input": "Hi!"})).expect("valid");
        assert_eq!(Value::from(text), json!([{"role": "user", "content": "Hi!"}]));
    }

    #[test]
    fn lines_stand_for_foreign_items() {
        let image = json!([{"type": "input_image", "image_url": "data:"}, {"type": "input_text", "text": "See."}]);
        let messages = read(json!({"input": [
            {"role": "user", "content": image},
            {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "fox"}},
            {"type": "computer_call_output", "call_id": "1", "output": {"type": "image", "url": "x"}},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\": "},
            {"type": "function_call_output", "call_id": "1", "output": image},
            {"role": "user", "content": "And?"},
        ]}));
        let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":"}});
        let want = json!([
            {"role": "user", "content": "[image]\nSee."},
            {"role": "assistant", "content": "[web_search_call: {\"action\":{\"query\":\"fox\"}}]"},
            {"role": "user", "content": "[computer_call_output: {\"output\":\"{\\\"type\\\":\\\"image\\\",\\\"url\\\":\\\"x\\\"}\"}]"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "[image]\nSee.", "tool_call_id": "1"},
            {"role": "user", "content": "And?"},
        ]);
        assert_eq!(Value::from(messages.expect("valid")), want);
    }

    #[test]
    fn errors_name_the_field() {
        let error_param =
            |item: Value| read(json!({"input": [item]})).expect_err("invalid").param.unwrap();
        assert_eq!(error_param(json!({"content": "x"})), "input[0].role");
        assert_eq!(error_param(json!({"type": "item_reference"})), "input[0].type");
        let image = json!([{"type": "input_image", "image_url": "x"}]);
        assert_eq!(error_param(json!({"role": "user", "content": image})), "input[0].content");
        let call = json!({"type": "function_call", "call_id": "1", "arguments": "{"});
        assert_eq!(error_param(call), "input[0].name");
    }
}
