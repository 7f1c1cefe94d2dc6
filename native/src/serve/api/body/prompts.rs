//! Prompts in all forms that OpenAI's API accepts.

use crate::serve::error::ApiError;
use crate::serve::served_model::ServedModel;
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
    /// Returns the tokens of each prompt. The prompts came in the field `param`. Takes a while for
    /// long ones.
    ///
    /// # Errors
    /// If there is none, or more than `limit`.
    pub fn encode(
        self,
        model: &ServedModel,
        param: &str,
        limit: usize,
    ) -> Result<Vec<Vec<u32>>, ApiError> {
        let encode = |text: String| {
            let tokens = model.tokenizer.encode(&text, true);
            tokens.map_err(|e| ApiError::bad(param, e.to_string()))
        };
        let prompts = match self {
            Self::Text(text) => vec![encode(text)?],
            Self::Texts(texts) => texts.into_iter().map(encode).collect::<Result<_, _>>()?,
            Self::Tokens(tokens) => vec![tokens],
            Self::Many(prompts) => prompts,
        };
        match prompts.len() {
            0 => Err(ApiError::bad(param, format!("{param} is empty: send at least one text"))),
            n if n > limit => {
                Err(ApiError::bad(param, format!("{param} has {n} texts: send at most {limit}")))
            }
            _ => Ok(prompts),
        }
    }
}
