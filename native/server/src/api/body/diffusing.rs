//! The field of Inception's API that asks for the whole answer after each pass.

use super::options::GenerationOptions;
use crate::error::ApiError;
use serde::Deserialize;
use utoipa::ToSchema;

/// Content of the chunks of a stream.
#[derive(Deserialize, ToSchema)]
pub struct DiffusingFields {
    /// Each chunk of a stream has the whole answer so far, which replaces the one before. `\u{2591}` stands
    /// for a token that block diffusion has not decided. The last one is the answer.
    diffusing: Option<bool>,
}

impl DiffusingFields {
    /// Returns true if the chunks of a stream have the whole answer so far. `others` are fields that do not
    /// work with that, and whether they are set.
    ///
    /// # Errors
    /// If the response is not streamed, or names the first of the other fields that is set.
    pub fn replaces(
        &self,
        options: &GenerationOptions,
        others: &[(&'static str, bool)],
    ) -> Result<bool, ApiError> {
        if self.diffusing != Some(true) {
            return Ok(false);
        }
        if !options.streams() {
            let message = "diffusing is for streams: set `stream`, or leave it out";
            return Err(ApiError::bad("diffusing", message));
        }
        let own = [
            ("return_token_ids", options.returns_token_ids()),
            ("return_tokens_as_token_ids", options.names_tokens_by_id()),
        ];
        match own.iter().chain(others).find(|(_, set)| *set) {
            None => Ok(true),
            Some((field, _)) => {
                let message = format!(
                    "`{field}` does not work with `diffusing`, whose chunks have the whole answer: \
                     leave one of them out"
                );
                Err(ApiError { code: "unsupported", ..ApiError::bad(*field, message) })
            }
        }
    }
}
