//! Texts in a body, in all the ways that OpenAI's API takes them.

use crate::serve::error::ApiError;
use crate::serve::state::Ready;
use serde::Deserialize;
use utoipa::ToSchema;

/// One prompt or several, as texts or as token ids.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "expected a string, an array of strings, an array of token ids, or an array of those"
)]
pub enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    Many(Vec<Vec<u32>>),
}

impl Prompts {
    /// The tokens of each of `most` prompts at most, which came in the field `param`. Takes a while
    /// for long ones.
    pub fn encode(
        self,
        ready: &Ready,
        param: &str,
        most: usize,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let encode = |text: String| {
            let tokens = ready.tokenizer.encode(&text, true);
            tokens.map_err(|e| ApiError::bad(param, e.to_string()))
        };
        let prompts = match self {
            Self::Text(text) => vec![encode(text)?],
            Self::Texts(texts) => texts.into_iter().map(encode).collect::<Result<_, _>>()?,
            Self::Tokens(tokens) => vec![tokens],
            Self::Many(prompts) => prompts,
        };
        match prompts.len() {
            0 => Err(ApiError::bad(param, format!("{param} is empty: give at least one text"))),
            n if n > most => Err(ApiError::bad(param, format!("{n} texts, {most} at most"))),
            _ => Ok(prompts),
        }
    }
}
