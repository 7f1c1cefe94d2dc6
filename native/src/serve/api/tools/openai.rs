//! Functions and choices of them as both of OpenAI's APIs have them.

use super::{Choice, Tool};
use crate::serve::error::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// A function that the model may call.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct Function {
    /// Letters, digits, `_` and `-`, 64 at most.
    #[serde(default)]
    #[schema(required = true, min_length = 1, max_length = 64, pattern = "^[a-zA-Z0-9_-]+$")]
    name: String,
    /// What it does.
    description: Option<String>,
    /// A JSON schema of its arguments.
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
    /// Refuse a schema of which a part cannot be kept to, instead of leaving that part out.
    strict: Option<bool>,
}

impl Function {
    /// The tool at this place, which is of type `kind`.
    pub fn tool(self, kind: &str, index: usize) -> Result<Tool, ApiError> {
        if kind != "function" {
            let message = format!("a tool is of type `function`, not `{kind}`");
            return Err(ApiError::bad(format!("tools[{index}].type"), message));
        }
        let parameters = self.parameters.unwrap_or_else(|| json!({"type": "object"}));
        let strict = self.strict.unwrap_or(false);
        Ok(Tool { name: self.name, description: self.description, parameters, strict })
    }
}

/// Which tools may be called, in a word.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    None,
    Auto,
    Required,
}

impl From<Word> for Choice {
    fn from(word: Word) -> Self {
        match word {
            Word::None => Self::None,
            Word::Auto => Self::Auto,
            Word::Required => Self::Required,
        }
    }
}

/// A function's name.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct Name {
    pub name: String,
}
