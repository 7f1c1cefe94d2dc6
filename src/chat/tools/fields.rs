//! Fields of a request about tools, in the form of OpenAI's API.

use super::{Tool, ToolChoice, Tools, ToolsError};
use serde::Deserialize;
use serde_json::{Value, json};

/// Fields about tools.
///
/// ```
/// use wrinklefree::chat::tools::ChatToolFields;
///
/// let fields = r#"{"tools": [{"type": "function", "function": {"name": "time"}}]}"#;
/// let fields: ChatToolFields = serde_json::from_str(fields).expect("valid");
/// assert!(fields.tools()?.callable());
/// # Ok::<(), wrinklefree::chat::tools::ToolsError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct ChatToolFields {
    /// Functions that the model may call.
    #[cfg_attr(feature = "utoipa", schema(max_items = 128))]
    tools: Option<Vec<ChatTool>>,
    /// Tool choice: `none`, `auto`, `required`, or one function by name.
    tool_choice: Option<ChatToolChoice>,
    /// Allow several calls in one output. Defaults to true.
    parallel_tool_calls: Option<bool>,
}

/// A tool of a chat.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
struct ChatTool {
    /// Type of the tool: `function`.
    #[cfg_attr(feature = "utoipa", schema(pattern = "^function$"))]
    #[serde(rename = "type")]
    kind: String,
    /// The function.
    function: FunctionDefinition,
}

/// Tool choice: a word, or one function by name.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(untagged, expecting = "expected `none`, `auto`, `required` or a function's name")]
enum ChatToolChoice {
    Mode(ToolChoiceMode),
    Function { function: FunctionName },
}

/// A function that the model may call.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct FunctionDefinition {
    /// Name of the function: up to 64 letters, digits, `_` and `-`.
    #[serde(default)]
    #[cfg_attr(
        feature = "utoipa",
        schema(required = true, min_length = 1, max_length = 64, pattern = "^[a-zA-Z0-9_-]+$")
    )]
    name: String,
    /// Description of the function, for the model.
    description: Option<String>,
    /// JSON schema of the arguments. Without it any JSON object is accepted.
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<Object>))]
    parameters: Option<Value>,
    /// Refuse schemas with unsupported keywords. Otherwise such keywords are ignored.
    strict: Option<bool>,
}

/// Tool choice as a word: `none`, `auto` or `required`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolChoiceMode {
    /// No call.
    None,
    /// Calls are optional.
    Auto,
    /// At least one call.
    Required,
}

/// Reference to a function by name.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct FunctionName {
    /// Name of the function.
    pub name: String,
}

impl ChatToolFields {
    /// Converts and checks the tools.
    ///
    /// # Errors
    /// Names the first invalid field.
    pub fn tools(self) -> Result<Tools, ToolsError> {
        let numbered = self.tools.unwrap_or_default().into_iter().enumerate();
        let tools = numbered.map(|(index, tool)| tool.function.into_tool(&tool.kind, index));
        let choice = match self.tool_choice {
            None => ToolChoice::Auto,
            Some(ChatToolChoice::Mode(mode)) => mode.into(),
            Some(ChatToolChoice::Function { function }) => ToolChoice::Named(function.name),
        };
        let parallel = self.parallel_tool_calls.unwrap_or(true);
        Tools::new(tools.collect::<Result<_, _>>()?, choice, parallel)
    }
}

impl FunctionDefinition {
    /// Converts the tool number `index`, whose `type` is `kind`.
    ///
    /// # Errors
    /// If `kind` is not `function`.
    pub fn into_tool(self, kind: &str, index: usize) -> Result<Tool, ToolsError> {
        if kind != "function" {
            return Err(ToolsError::Kind { index, kind: kind.into() });
        }
        let parameters = self.parameters.unwrap_or_else(|| json!({"type": "object"}));
        let strict = self.strict.unwrap_or(false);
        Ok(Tool { index, name: self.name, description: self.description, parameters, strict })
    }
}

impl From<ToolChoiceMode> for ToolChoice {
    fn from(mode: ToolChoiceMode) -> Self {
        match mode {
            ToolChoiceMode::None => Self::None,
            ToolChoiceMode::Auto => Self::Auto,
            ToolChoiceMode::Required => Self::Required,
        }
    }
}
