//! Tools as Anthropic's API has them.

use crate::serve::api::tools::{Choice, Tool, Tools};
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The fields that only requests with tools have.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = AnthropicToolFields)]
pub struct ToolFields {
    /// Functions that the model may call.
    #[schema(max_items = 128)]
    tools: Option<Vec<ToolField>>,
    tool_choice: Option<ToolChoice>,
}

/// A tool.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicTool)]
struct ToolField {
    /// `custom`, if anything: tools that run in the server are not supported.
    #[schema(pattern = "^custom$")]
    #[serde(rename = "type", default)]
    kind: Option<String>,
    /// Letters, digits, `_` and `-`, 64 at most.
    #[schema(min_length = 1, max_length = 64, pattern = "^[a-zA-Z0-9_-]+$")]
    name: String,
    /// What it does.
    #[serde(default)]
    description: Option<String>,
    /// A JSON schema of its input.
    #[serde(default = "object")]
    #[schema(value_type = Object, required = true)]
    input_schema: Value,
}

fn object() -> Value {
    serde_json::json!({"type": "object"})
}

/// Which tools may be called.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = AnthropicToolChoice)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: Kind,
    /// The tool, for `tool`.
    #[serde(default)]
    name: Option<String>,
    /// One call at most.
    #[serde(default)]
    disable_parallel_tool_use: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnthropicToolChoiceKind)]
enum Kind {
    Auto,
    Any,
    Tool,
    None,
}

impl ToolChoice {
    fn choice(self) -> Result<Choice, ApiError> {
        Ok(match (self.kind, self.name) {
            (Kind::Auto, _) => Choice::Auto,
            (Kind::Any, _) => Choice::Required,
            (Kind::None, _) => Choice::None,
            (Kind::Tool, Some(name)) => Choice::Named(name),
            (Kind::Tool, None) => {
                let message = "a tool_choice of type `tool` needs the tool's `name`";
                return Err(ApiError::bad("tool_choice.name", message));
            }
        })
    }
}

impl ToolFields {
    /// The tools.
    pub fn tools(self) -> Result<Tools, ApiError> {
        let tool = |(index, tool): (usize, ToolField)| match tool.kind.as_deref() {
            None | Some("custom") => {
                let ToolField { name, description, input_schema: parameters, .. } = tool;
                Ok(Tool { name, description, parameters, strict: false })
            }
            Some(kind) => {
                let message = format!("a tool is of type `custom`, not `{kind}`");
                Err(ApiError::bad(format!("tools[{index}].type"), message))
            }
        };
        let list = self
            .tools
            .unwrap_or_default()
            .into_iter()
            .enumerate()
            .map(tool)
            .collect::<Result<_, _>>()?;
        let parallel = self.tool_choice.as_ref().is_none_or(|c| !c.disable_parallel_tool_use);
        let choice = self.tool_choice.map(ToolChoice::choice).transpose()?.unwrap_or_default();
        Tools::new(list, choice, parallel)
    }
}
