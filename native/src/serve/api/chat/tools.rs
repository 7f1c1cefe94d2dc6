//! Tools as OpenAI's chat API has them.

use crate::serve::api::tools::{Choice, Tool, Tools};
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};

/// The fields that only requests with tools have.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ToolFields {
    tools: Vec<ChatTool>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct ChatTool {
    #[serde(rename = "type")]
    kind: String,
    function: Function,
}

#[derive(Clone, Debug, Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected `none`, `auto`, `required` or a function's name")]
enum ToolChoice {
    Word(Word),
    Function { function: Name },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    None,
    Auto,
    Required,
}

#[derive(Clone, Debug, Deserialize)]
struct Name {
    name: String,
}

impl ToolFields {
    /// The tools.
    pub fn tools(self) -> Result<Tools, ApiError> {
        let tool = |(index, ChatTool { kind, function }): (usize, ChatTool)| {
            if kind != "function" {
                let message = format!("a tool is of type `function`, not `{kind}`");
                return Err(ApiError::bad(format!("tools[{index}].type"), message));
            }
            let Function { name, description, parameters } = function;
            let parameters = parameters.unwrap_or_else(|| json!({"type": "object"}));
            Ok(Tool { name, description, parameters })
        };
        let list = self.tools.into_iter().enumerate().map(tool).collect::<Result<_, _>>()?;
        let choice = match self.tool_choice {
            None | Some(ToolChoice::Word(Word::Auto)) => Choice::Auto,
            Some(ToolChoice::Word(Word::None)) => Choice::None,
            Some(ToolChoice::Word(Word::Required)) => Choice::Required,
            Some(ToolChoice::Function { function }) => Choice::Named(function.name),
        };
        Tools::new(list, choice, self.parallel_tool_calls.unwrap_or(true))
    }
}
