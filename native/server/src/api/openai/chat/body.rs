//! The body of `POST /v1/chat/completions`.

use crate::api::body::content::{Content, is_asked, template_role};
use crate::api::body::diffusing::DiffusingFields;
use crate::api::body::format::OutputFormatFields;
use crate::api::body::model::ModelFields;
use crate::api::body::options::GenerationOptions;
use crate::api::body::speculative::SpeculativeFields;
use crate::api::description::schema::{SchemaFn, schema_of};
use crate::error::ApiError;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use wrinklefree::chat::tools::ChatToolFields;
use wrinklefree::chat::{Ending, called_arguments, is_prefill, tool_call};
use wrinklefree::settings::Reasoning;

/// Schemas of the body.
pub const BODY: &[SchemaFn] = &[
    schema_of::<ModelFields>,
    schema_of::<GenerationOptions>,
    schema_of::<ChatFields>,
    schema_of::<EndingFields>,
    schema_of::<DiffusingFields>,
    schema_of::<SpeculativeFields>,
    schema_of::<ChatToolFields>,
    schema_of::<OutputFormatFields>,
    schema_of::<Reasoning>,
];

/// Maximum number of alternatives per token.
pub const MAX_TOP_LOGPROBS: usize = 20;
/// Maximum number of documents.
const MAX_DOCUMENTS: usize = 128;

/// Fields of chat completions.
#[derive(Deserialize, ToSchema)]
pub struct ChatFields {
    /// The conversation so far.
    #[schema(min_items = 1)]
    messages: Vec<ChatMessage>,
    /// Return the log-probability of each output token.
    logprobs: Option<bool>,
    /// Number of most probable tokens to return at each position. Needs `logprobs`.
    #[schema(maximum = 20)]
    top_logprobs: Option<usize>,
    /// Documents to answer from, for chat templates that take them: objects, mostly with `title` and
    /// `text`.
    #[schema(max_items = 128)]
    documents: Option<Vec<Map<String, Value>>>,
    /// Return a message that is continued from its beginning.
    echo: Option<bool>,
    /// Return the reasoning before the answer. Defaults to true.
    include_reasoning: Option<bool>,
}

/// Fields about the end of the prompt.
#[derive(Deserialize, ToSchema)]
pub struct EndingFields {
    /// Continue the last message, a text of the assistant. True by default for such a message.
    continue_final_message: Option<bool>,
    /// Begin a new message of the assistant. False ends the prompt after the last message.
    add_generation_prompt: Option<bool>,
}

/// A message of a chat.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// Role of the author: `system` or `developer`, `user`, `assistant`, `tool`, or its older name
    /// `function`.
    #[schema(pattern = "^(system|developer|user|assistant|tool|function)$")]
    role: String,
    /// Content of the message.
    #[serde(default)]
    content: Option<Content>,
    /// Reasoning of the assistant before its content.
    #[serde(default)]
    reasoning_content: Option<String>,
    /// Other name of `reasoning_content`. Some clients send both.
    #[serde(default)]
    reasoning: Option<String>,
    /// Name of the author, for chat templates that use it.
    #[serde(default)]
    name: Option<String>,
    /// Tool calls of the assistant.
    #[serde(default)]
    tool_calls: Option<Vec<ChatToolCall>>,
    /// Tool call of the assistant, in the older form.
    #[serde(default)]
    function_call: Option<CalledFunction>,
    /// Id of the call that a `tool` message answers.
    #[serde(default)]
    tool_call_id: Option<String>,
}

/// A tool call of the assistant.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ChatToolCall {
    /// Id of the call.
    #[serde(default)]
    id: Option<String>,
    /// The function and its arguments.
    #[schema(required = true)]
    function: Option<CalledFunction>,
    /// The custom tool and its input.
    custom: Option<CalledCustomTool>,
}

/// A called function.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct CalledFunction {
    /// Name of the function.
    name: String,
    /// Arguments of the call: a JSON object, serialized. Other texts are shown to the model as they are.
    #[serde(default)]
    #[schema(value_type = String, required = true)]
    arguments: Option<Value>,
}

/// A called custom tool.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct CalledCustomTool {
    /// Name of the tool.
    name: String,
    /// Input of the call.
    #[serde(default)]
    input: String,
}

impl EndingFields {
    /// Returns the end of the prompt of these messages.
    ///
    /// # Errors
    /// If the fields contradict each other or the last message.
    pub fn ending(&self, messages: &[Value]) -> Result<Ending, ApiError> {
        let last = messages.last();
        let bad = |message: &str| Err(ApiError::bad("continue_final_message", message));
        match (self.continue_final_message, self.add_generation_prompt) {
            (Some(true), Some(true)) => bad(
                "continue_final_message continues the last message and add_generation_prompt begins \
                 a new one: set only one",
            ),
            (Some(true), _) if !last.is_some_and(is_prefill) => {
                bad("continue_final_message needs a text of the assistant as the last message")
            }
            (None, None) => Ok(Ending::of_last(last)),
            (Some(true), _) => Ok(Ending::LastMessage),
            (_, Some(false)) => Ok(Ending::Bare),
            (Some(false), None) | (_, Some(true)) => Ok(Ending::NewMessage),
        }
    }
}

impl ChatFields {
    /// Returns the number of alternatives per token, or `None` for no log-probabilities.
    ///
    /// # Errors
    /// If the fields contradict each other or the number is too large.
    pub fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (_, Some(top)) if top > MAX_TOP_LOGPROBS => {
                let message = format!("top_logprobs is {top}: at most {MAX_TOP_LOGPROBS}");
                Err(ApiError::bad("top_logprobs", message))
            }
            (false, Some(_)) => {
                Err(ApiError::bad("top_logprobs", "top_logprobs needs `logprobs: true`"))
            }
            (wanted, top) => Ok(wanted.then_some(top.unwrap_or(0))),
        }
    }

    /// Returns the documents for chat templates.
    ///
    /// # Errors
    /// If there are too many.
    pub fn documents(&self) -> Result<Option<Vec<Value>>, ApiError> {
        let documents = self.documents.as_ref();
        if documents.is_some_and(|documents| documents.len() > MAX_DOCUMENTS) {
            let message = format!("documents has more than {MAX_DOCUMENTS} items");
            return Err(ApiError::bad("documents", message));
        }
        Ok(documents.map(|documents| documents.iter().cloned().map(Value::from).collect()))
    }

    /// Returns true if responses have the reasoning.
    pub fn includes_reasoning(&self) -> bool {
        self.include_reasoning.unwrap_or(true)
    }

    /// Returns the text that outputs begin with.
    pub fn echoed(&self, messages: &[Value], ending: Ending) -> String {
        let text = messages.last().and_then(|message| message["content"].as_str());
        let echo = self.echo == Some(true) && ending == Ending::LastMessage;
        text.filter(|_| echo).unwrap_or_default().into()
    }

    /// Converts the messages for chat templates.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn messages(&mut self) -> Result<Vec<Value>, ApiError> {
        template_messages(std::mem::take(&mut self.messages))
    }
}

/// Converts messages for chat templates.
///
/// # Errors
/// Names the first invalid field.
pub fn template_messages(messages: Vec<ChatMessage>) -> Result<Vec<Value>, ApiError> {
    let answered = messages.iter().rposition(|message| !is_asked(&message.role));
    let first_asked = answered.map_or(0, |last| last + 1);
    let numbered = messages.into_iter().enumerate();
    numbered.map(|(index, message)| message.into_value(index, index >= first_asked)).collect()
}

impl ChatMessage {
    /// Converts message number `index` for chat templates. It is `asked` if no other role's follows.
    fn into_value(self, index: usize, asked: bool) -> Result<Value, ApiError> {
        let role = template_role(&self.role, &format!("messages[{index}].role"))?;
        let param = format!("messages[{index}].content");
        let content = self.content.map(|content| content.of_turn(asked, &param)).transpose()?;
        let mut message = Map::new();
        message.insert("role".into(), role.into());
        message.insert("content".into(), content.unwrap_or_default().into());
        let calls = self.tool_calls.into_iter().flatten().map(|call| call.into_value(index));
        let older = self.function_call.map(|call| Ok(call.into_value(None)));
        let calls: Vec<Value> = calls.chain(older).collect::<Result<_, _>>()?;
        if !calls.is_empty() {
            message.insert("tool_calls".into(), calls.into());
        }
        let named = [
            ("reasoning_content", self.reasoning_content.or(self.reasoning)),
            ("name", self.name),
            ("tool_call_id", self.tool_call_id),
        ];
        message
            .extend(named.into_iter().filter_map(|(key, text)| Some((key.into(), text?.into()))));
        Ok(message.into())
    }
}

impl CalledFunction {
    fn into_value(self, id: Option<String>) -> Value {
        tool_call(id, &self.name, called_arguments(self.arguments))
    }
}

impl ChatToolCall {
    /// Converts a call of message number `index`.
    fn into_value(self, index: usize) -> Result<Value, ApiError> {
        match (self.function, self.custom) {
            (Some(function), _) => Ok(function.into_value(self.id)),
            (None, Some(CalledCustomTool { name, input })) => {
                Ok(tool_call(self.id, &name, json!({"input": input})))
            }
            (None, None) => {
                let message = "a tool call needs its `function`";
                Err(ApiError::bad(format!("messages[{index}].tool_calls"), message))
            }
        }
    }
}
