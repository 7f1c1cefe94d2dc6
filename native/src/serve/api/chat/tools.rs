//! Tools as OpenAI's chat API has them.

use crate::serve::api::tools::openai::{Function, Name, Word};
use crate::serve::api::tools::{Choice, Tools};
use crate::serve::error::ApiError;
use serde::Deserialize;
use utoipa::ToSchema;

/// The fields that only requests with tools have.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct ToolFields {
    /// Functions that the model may call.
    #[schema(max_items = 128)]
    tools: Option<Vec<ChatTool>>,
    /// `none`, `auto`, `required`, or one function.
    tool_choice: Option<ToolChoice>,
    /// Whether one answer may hold several calls.
    parallel_tool_calls: Option<bool>,
}

/// A tool of a chat.
#[derive(Clone, Debug, Deserialize, ToSchema)]
struct ChatTool {
    /// `function`.
    #[schema(pattern = "^function$")]
    #[serde(rename = "type")]
    kind: String,
    function: Function,
}

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected `none`, `auto`, `required` or a function's name")]
enum ToolChoice {
    Word(Word),
    Function { function: Name },
}

impl ToolFields {
    /// The tools.
    pub fn tools(self) -> Result<Tools, ApiError> {
        let numbered = self.tools.unwrap_or_default().into_iter().enumerate();
        let tools = numbered.map(|(index, tool)| tool.function.tool(&tool.kind, index));
        let choice = match self.tool_choice {
            None => Choice::Auto,
            Some(ToolChoice::Word(word)) => word.into(),
            Some(ToolChoice::Function { function }) => Choice::Named(function.name),
        };
        let parallel = self.parallel_tool_calls.unwrap_or(true);
        Tools::new(tools.collect::<Result<_, _>>()?, choice, parallel)
    }
}
