//! Tool definitions that both of OpenAI's APIs share.

use crate::serve::api::tools::{Tool, ToolChoice};
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// A function that the model may call.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct FunctionDefinition {
    /// Name of the function: up to 64 letters, digits, `_` and `-`.
    #[serde(default)]
    #[schema(required = true, min_length = 1, max_length = 64, pattern = "^[a-zA-Z0-9_-]+$")]
    name: String,
    /// Description of the function, for the model.
    description: Option<String>,
    /// JSON schema of the arguments. Without it any JSON object is accepted.
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
    /// Refuse schemas with unsupported keywords. Otherwise such keywords are ignored.
    strict: Option<bool>,
}

impl FunctionDefinition {
    /// Converts the tool number `index`, whose `type` is `kind`.
    ///
    /// # Errors
    /// If `kind` is not `function`.
    pub fn into_tool(self, kind: &str, index: usize) -> Result<Tool, ApiError> {
        if kind != "function" {
            let message = format!("unsupported tool type `{kind}`: expected `function`");
            return Err(ApiError::bad(format!("tools[{index}].type"), message));
        }
        let parameters = self.parameters.unwrap_or_else(|| json!({"type": "object"}));
        let strict = self.strict.unwrap_or(false);
        Ok(Tool { index, name: self.name, description: self.description, parameters, strict })
    }
}

/// Tool choice as a word: `none`, `auto` or `required`.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoiceMode {
    None,
    Auto,
    Required,
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

/// Reference to a function by name.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct FunctionName {
    /// Name of the function.
    pub name: String,
}
