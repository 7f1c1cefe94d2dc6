//! Bodies of `POST /v1/messages` and `/v1/messages/count_tokens` (Anthropic's API).

use crate::api::body::content::{Content, stand_in, text_only};
use crate::api::body::format::OutputFormatFields;
use crate::api::body::model::ModelFields;
use crate::api::body::options::GenerationOptions;
use crate::api::body::required;
use crate::api::description::schema::{SchemaFn, schema_of};
use crate::engine::grammars::{AnswerForm, RequestedGrammar};
use crate::error::ApiError;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use wrinklefree::chat::tools::{Tool, ToolChoice, Tools};
use wrinklefree::chat::{TemplateMessages, called_arguments};
use wrinklefree::settings::{Effort, Reasoning};

/// Schemas of the body of `/v1/messages`.
pub const BODY: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<GenerationOptions>,
    schema_of::<AnthropicLimits>,
    schema_of::<AnthropicMessageFields>,
    schema_of::<AnthropicToolFields>,
    schema_of::<AnthropicThinkingFields>,
    schema_of::<Reasoning>,
    schema_of::<AnthropicOutputFields>,
    schema_of::<OutputFormatFields>,
];
/// Schemas of the body of `/v1/messages/count_tokens`.
pub const COUNT_TOKENS: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<AnthropicMessageFields>,
    schema_of::<AnthropicToolFields>,
];

/// The conversation of the Messages API.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct AnthropicMessageFields {
    /// System message: a text, or an array of `text` blocks.
    #[serde(default)]
    system: Option<Content>,
    /// The conversation so far. A last message of the assistant is continued.
    #[schema(min_items = 1)]
    messages: Vec<AnthropicMessage>,
}

/// Limits of the Messages API.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct AnthropicLimits {
    /// Maximum number of tokens to generate.
    #[schema(minimum = 1)]
    pub max_tokens: usize,
    /// Strings that end the output. The output does not contain them.
    #[serde(default)]
    #[schema(max_items = 16)]
    pub stop_sequences: Option<Vec<String>>,
}

/// A message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct AnthropicMessage {
    /// Role of the author.
    role: AnthropicRole,
    /// Content of the message.
    #[schema(value_type = AnthropicContent, required = true)]
    content: Option<AnthropicContent>,
}

/// Role of a message's author.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AnthropicRole {
    User,
    Assistant,
    System,
}

impl AnthropicRole {
    /// Name in chat templates.
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// A text, or an array of content blocks.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of content blocks")]
enum AnthropicContent {
    Text(String),
    Blocks(Vec<AnthropicBlock>),
}

/// A content block: `text`, `thinking`, `tool_use` (with `id`, `name` and `input`) or `tool_result`
/// (with `tool_use_id` and `content`).
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct AnthropicBlock {
    /// Type of the block: `text`, `thinking`, `redacted_thinking`, `tool_use` or `tool_result`. Images
    /// and other types are not supported; in older messages a line stands for them.
    #[serde(rename = "type")]
    kind: String,
    /// Text of a `text` block.
    text: Option<String>,
    /// Text of a `thinking` block.
    thinking: Option<String>,
    /// Id of a tool call.
    id: Option<String>,
    /// Name of the called tool.
    name: Option<String>,
    /// Arguments of a tool call.
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// Id of the call that a `tool_result` answers.
    tool_use_id: Option<String>,
    /// Result of a tool call.
    content: Option<Content>,
    #[serde(flatten)]
    #[schema(ignore)]
    rest: Map<String, Value>,
}

/// Output format of the Messages API.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct AnthropicOutputFields {
    /// Options of the output.
    output_config: Option<AnthropicOutputConfig>,
    /// Older name of `output_config.format`.
    output_format: Option<AnthropicOutputFormat>,
}

/// Options of the output.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct AnthropicOutputConfig {
    /// Format of the output.
    format: Option<AnthropicOutputFormat>,
    /// Amount of thinking.
    effort: Option<Effort>,
}

/// Format of the output: JSON that matches a schema.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicOutputFormat {
    JsonSchema {
        /// JSON schema of the output.
        #[schema(value_type = Object)]
        schema: Value,
    },
}

/// Fields about thinking.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct AnthropicThinkingFields {
    /// Thinking before the answer.
    thinking: Option<AnthropicThinking>,
}

/// Thinking before the answer: on, with a budget, off, or as the model likes.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicThinking {
    Enabled {
        /// Maximum number of tokens of thinking.
        budget_tokens: Option<usize>,
    },
    Disabled,
    Adaptive,
}

impl AnthropicThinkingFields {
    /// Returns the settings of reasoning. Clients ask for thinking whether a model can or not, so a model
    /// that cannot answers without.
    pub fn reasoning(self) -> Reasoning {
        match self.thinking {
            None | Some(AnthropicThinking::Adaptive) => Reasoning::default(),
            Some(AnthropicThinking::Disabled) => {
                Reasoning { enable_thinking: Some(false), ..Reasoning::default() }
            }
            Some(AnthropicThinking::Enabled { budget_tokens: thinking_budget }) => {
                let kwargs = [("enable_thinking".to_string(), Value::Bool(true))];
                let chat_template_kwargs = Some(kwargs.into_iter().collect());
                Reasoning { thinking_budget, chat_template_kwargs, ..Reasoning::default() }
            }
        }
    }
}

/// Fields about tools.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct AnthropicToolFields {
    /// Functions that the model may call.
    #[schema(max_items = 128)]
    tools: Option<Vec<AnthropicTool>>,
    /// Tool choice; `auto` by default.
    tool_choice: Option<AnthropicToolChoice>,
}

/// A tool.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct AnthropicTool {
    /// Type of the tool: `custom` (the default). Tools that run in the server are not supported.
    #[schema(pattern = "^custom$")]
    #[serde(rename = "type", default)]
    kind: Option<String>,
    /// Name of the tool: up to 64 letters, digits, `_` and `-`.
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-zA-Z0-9_-]+$")]
    name: String,
    /// Description of the tool, for the model.
    #[serde(default)]
    description: Option<String>,
    /// JSON schema of the arguments.
    #[serde(default = "any_object")]
    #[schema(value_type = Object, required = true)]
    input_schema: Value,
}

fn any_object() -> Value {
    json!({"type": "object"})
}

/// Tool choice.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct AnthropicToolChoice {
    /// Kind of choice.
    #[serde(rename = "type")]
    kind: AnthropicToolChoiceKind,
    /// Name of the tool, for the type `tool`.
    #[serde(default)]
    name: Option<String>,
    /// Allow at most one call in an output.
    #[serde(default)]
    disable_parallel_tool_use: bool,
}

/// Kind of tool choice: the model decides, must call any tool, must call one by name, or calls none.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AnthropicToolChoiceKind {
    Auto,
    Any,
    Tool,
    None,
}

impl AnthropicOutputFields {
    /// Returns the amount of thinking that the output may take.
    pub fn effort(&self) -> Option<Effort> {
        self.output_config.as_ref().and_then(|config| config.effort)
    }

    /// Returns the grammar that these fields ask for.
    ///
    /// # Errors
    /// If both fields are set.
    pub fn grammar(self) -> Result<Option<RequestedGrammar>, ApiError> {
        let (format, field) =
            match (self.output_config.and_then(|config| config.format), self.output_format) {
                (Some(_), Some(_)) => {
                    let message =
                        "output_format is the older name of output_config.format: set only one";
                    return Err(ApiError::bad("output_format", message));
                }
                (None, old) => (old, "output_format"),
                (new, None) => (new, "output_config.format"),
            };
        Ok(format.map(|AnthropicOutputFormat::JsonSchema { schema }| {
            RequestedGrammar::of_answer(AnswerForm::JsonSchema(schema), field)
        }))
    }
}

impl AnthropicToolChoice {
    fn into_choice(self) -> Result<ToolChoice, ApiError> {
        Ok(match (self.kind, self.name) {
            (AnthropicToolChoiceKind::Auto, _) => ToolChoice::Auto,
            (AnthropicToolChoiceKind::Any, _) => ToolChoice::Required,
            (AnthropicToolChoiceKind::None, _) => ToolChoice::None,
            (AnthropicToolChoiceKind::Tool, Some(name)) => ToolChoice::Named(name),
            (AnthropicToolChoiceKind::Tool, None) => {
                let message = "a tool_choice of type `tool` needs the tool's `name`";
                return Err(ApiError::bad("tool_choice.name", message));
            }
        })
    }
}

impl AnthropicToolFields {
    /// Converts and checks the tools.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn tools(self) -> Result<Tools, ApiError> {
        let tool = |(index, tool): (usize, AnthropicTool)| match tool.kind.as_deref() {
            None | Some("custom") => {
                let AnthropicTool { name, description, input_schema: parameters, .. } = tool;
                Ok(Tool { index, name, description, parameters, strict: false })
            }
            Some(kind) => {
                let message = format!("unsupported tool type `{kind}`: expected `custom`");
                Err(ApiError::bad(format!("tools[{index}].type"), message))
            }
        };
        let numbered = self.tools.unwrap_or_default().into_iter().enumerate();
        let tools = numbered.map(tool).collect::<Result<_, _>>()?;
        let parallel = self.tool_choice.as_ref().is_none_or(|c| !c.disable_parallel_tool_use);
        let choice = self.tool_choice.map(AnthropicToolChoice::into_choice).transpose()?;
        Ok(Tools::new(tools, choice.unwrap_or_default(), parallel)?)
    }
}

impl AnthropicMessageFields {
    /// Converts the conversation for chat templates.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn messages(self) -> Result<Vec<Value>, ApiError> {
        let mut messages = TemplateMessages::default();
        if let Some(system) = self.system {
            messages.push_text("system", &system.text("system")?);
        }
        let is_answer = |message: &AnthropicMessage| message.role == AnthropicRole::Assistant;
        let first_asked = self.messages.iter().rposition(is_answer).map_or(0, |last| last + 1);
        for (index, message) in self.messages.into_iter().enumerate() {
            let path = format!("messages[{index}].content");
            message.push_to(&mut messages, index >= first_asked, &path)?;
        }
        Ok(messages.finish())
    }
}

impl AnthropicMessage {
    /// Adds the message, whose content came in the field `path`. It is `asked` if no answer follows.
    fn push_to(
        self,
        messages: &mut TemplateMessages,
        asked: bool,
        path: &str,
    ) -> Result<(), ApiError> {
        let role = self.role.name();
        let blocks = match self.content {
            None => Vec::new(),
            Some(AnthropicContent::Text(text)) => {
                messages.push_text(role, &text);
                return Ok(());
            }
            Some(AnthropicContent::Blocks(blocks)) => blocks,
        };
        // Consecutive text blocks become one message.
        let mut texts: Vec<String> = Vec::new();
        let flush = |texts: &mut Vec<String>, messages: &mut TemplateMessages| {
            if !texts.is_empty() {
                messages.push_text(role, &std::mem::take(texts).join("\n"));
            }
        };
        for (index, block) in blocks.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            match block.kind.as_str() {
                kind @ "text" => texts.push(required(block.text, &path, kind, "text")?),
                "thinking" | "redacted_thinking" | "tool_use" | "tool_result" => {
                    flush(&mut texts, messages);
                    block.push_to(messages, &path)?;
                }
                kind if asked => return Err(text_only(&path, kind)),
                _ => texts.push(block.line()),
            }
        }
        flush(&mut texts, messages);
        Ok(())
    }
}

impl AnthropicBlock {
    /// Adds reasoning, a tool call or a result, which came in the field `path`.
    fn push_to(self, messages: &mut TemplateMessages, path: &str) -> Result<(), ApiError> {
        match self.kind.as_str() {
            kind @ "thinking" => {
                messages.push_reasoning(&required(self.thinking, path, kind, "thinking")?);
            }
            kind @ "tool_use" => {
                let id = required(self.id, path, kind, "id")?;
                let name = required(self.name, path, kind, "name")?;
                messages.push_call(id, &name, called_arguments(self.input));
            }
            kind @ "tool_result" => {
                let id = required(self.tool_use_id, path, kind, "tool_use_id")?;
                messages.push_result(&id, &self.content.map(Content::history).unwrap_or_default());
            }
            // Only the model that wrote it could read it.
            _ => {}
        }
        Ok(())
    }

    /// Returns a line that stands for a block of another type.
    fn line(self) -> String {
        let Self { kind, name, input, content, mut rest, .. } = self;
        let given = [
            ("name", name.map(Value::from)),
            ("input", input),
            ("content", content.map(|content| content.history().into())),
        ];
        rest.extend(given.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))));
        stand_in(&kind, &rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Vec<Value>, ApiError> {
        serde_json::from_value::<AnthropicMessageFields>(body).expect("parses").messages()
    }

    #[test]
    fn blocks_become_messages_in_their_order() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let messages = read(json!({"system": [text("Be"), text("kind.")], "messages": [
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""}, text("I look."),
                {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [text("rain")]},
                text("And"), text("now?")]},
        ]}));
        let call = json!({"id": "1", "type": "function",
            "function": {"name": "weather", "arguments": {"city": "Oslo"}}});
        let want = json!([
            {"role": "system", "content": "Be\nkind."},
            {"role": "user", "content": "How is it?"},
            {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.",
                "tool_calls": [call]},
            {"role": "tool", "content": "rain", "tool_call_id": "1"},
            {"role": "user", "content": "And\nnow?"},
        ]);
        assert_eq!(Value::from(messages.expect("valid")), want);
    }

    #[test]
    fn lines_stand_for_foreign_blocks_of_older_messages() {
        let image = json!({"type": "image", "source": {"type": "base64", "data": "AA"}});
        let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "fox"}});
        let messages = read(json!({"messages": [
            {"role": "user", "content": [image, {"type": "text", "text": "See."}]},
            {"role": "assistant", "content": [search, {"type": "tool_use", "id": "1", "name": "f", "input": "{\"a"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [image]}]},
        ]}));
        let call =
            json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a"}});
        let line = "[server_tool_use: {\"name\":\"web_search\",\"input\":{\"query\":\"fox\"}}]";
        let want = json!([
            {"role": "user", "content": "[image]\nSee."},
            {"role": "assistant", "content": line, "tool_calls": [call]},
            {"role": "tool", "content": "[image]", "tool_call_id": "1"},
        ]);
        assert_eq!(Value::from(messages.expect("valid")), want);
    }

    #[test]
    fn errors_name_the_field() {
        let error = |role: &str, block: Value| {
            let messages =
                json!([{"role": role, "content": [block]}, {"role": "user", "content": ""}]);
            let error = read(json!({"messages": messages})).expect_err("invalid");
            (error.param.unwrap(), error.message)
        };
        let (param, message) = error("user", json!({"type": "image", "source": {}}));
        assert!(param == "messages[0].content[0]" && message.contains("`image`"), "{message}");
        let (param, message) = error("assistant", json!({"type": "tool_use", "id": "1"}));
        assert!(param == "messages[0].content[0].name" && message.contains("`tool_use`"));
    }
}
