//! The field `allowed_token_ids`: outputs of some tokens alone.

use super::options::GenerationOptions;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use std::sync::Arc;
use wrinklefree::decode::{Constraint, Next};

/// Name of the field.
const FIELD: &str = "allowed_token_ids";

/// Allows the same tokens everywhere.
#[derive(Clone, Debug)]
struct AllowedTokens(Arc<[u32]>);

impl Constraint for AllowedTokens {
    fn next(&mut self) -> Next {
        Next::Tokens(self.0.to_vec())
    }

    fn accept(&mut self, _: u32) {}

    fn rewind(&mut self, _: usize) {}

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

impl GenerationOptions {
    /// Returns the constraint that allows some tokens alone, if the field is set.
    ///
    /// # Errors
    /// If it names no token, or one that is outside the vocabulary.
    pub(super) fn allowed_tokens(
        &self,
        model: &ServedModel,
    ) -> Result<Option<Box<dyn Constraint>>, ApiError> {
        let Some(ids) = &self.allowed_token_ids else { return Ok(None) };
        if ids.is_empty() {
            let message = "allowed_token_ids is empty: name at least one token, or leave it out";
            return Err(ApiError::bad(FIELD, message));
        }
        let mut set = vec![0; model.vocab.div_ceil(32)];
        for &id in ids {
            if id as usize >= model.vocab {
                let vocab = model.vocab;
                let message = format!("token id {id} is outside the vocabulary of {vocab} tokens");
                return Err(ApiError::bad(FIELD, message));
            }
            set[id as usize / 32] |= 1 << (id % 32);
        }
        Ok(Some(Box::new(AllowedTokens(set.into()))))
    }
}

/// Returns the constraint of an output: that of the allowed tokens, or that of its form and its reasoning.
///
/// # Errors
/// If there are both.
pub fn only_one(
    allowed: Option<Box<dyn Constraint>>,
    form: Option<Box<dyn Constraint>>,
) -> Result<Option<Box<dyn Constraint>>, ApiError> {
    if allowed.is_some() && form.is_some() {
        let message = "allowed_token_ids cannot be combined with tools, an output format, a grammar or \
                       a thinking budget: leave one of them out";
        return Err(ApiError::bad(FIELD, message));
    }
    Ok(allowed.or(form))
}
