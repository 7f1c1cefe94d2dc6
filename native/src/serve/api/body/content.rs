//! Contents and roles of messages, as several APIs have them.

use crate::serve::error::ApiError;
use serde::Deserialize;
use utoipa::ToSchema;

/// Roles in OpenAI's APIs.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Returns the role that chat templates use for `role`, which came in the field `param`.
///
/// # Errors
/// If the role is unknown: templates would silently drop the message.
pub fn template_role<'a>(role: &'a str, param: &str) -> Result<&'a str, ApiError> {
    match role {
        // OpenAI's newer name for `system`; templates know the older one.
        "developer" => Ok("system"),
        known if ROLES.contains(&known) => Ok(known),
        other => {
            let message = format!("unknown role `{other}`: expected one of {}", ROLES.join(", "));
            Err(ApiError::bad(param, message))
        }
    }
}

/// A text, or an array of text parts.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an array of text parts")]
pub enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// A part of a message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ContentPart {
    /// Type of the part: `text`, or `input_text`, `output_text`, `reasoning_text` and `summary_text` in
    /// the Responses API. Images and other types are not supported.
    #[schema(pattern = "^(text|input_text|output_text|reasoning_text|summary_text)$")]
    #[serde(rename = "type")]
    kind: String,
    /// The text.
    #[schema(value_type = String, required = true)]
    text: Option<String>,
}

impl Content {
    /// Returns the text; parts are joined by line breaks. The content came in the field `param`.
    ///
    /// # Errors
    /// If a part is not text.
    pub fn text(self, param: &str) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let text = |part: ContentPart| match part.kind.as_str() {
            kind @ ("text" | "input_text" | "output_text" | "reasoning_text" | "summary_text") => {
                super::required(part.text, param, kind, "text")
            }
            kind => Err(text_only(param, kind)),
        };
        Ok(parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

/// Creates the error for a part that is not text.
pub fn text_only(param: &str, kind: &str) -> ApiError {
    ApiError::bad(param, format!("a part of type `{kind}` is not supported: send text only"))
}
