//! A conversation that the model goes on with, whichever API it came through.

use super::options::Options;
use super::tools::{self, Tools};
use crate::chat_prompt;
use crate::grammar::Grammar;
use crate::serve::auth::Tenant;
use crate::serve::error::ApiError;
use crate::serve::state::Ready;
use serde_json::Value;
use wrinklefree::engine::Request;

/// What was said, and what may be answered.
#[derive(Clone, Debug, Default)]
pub struct Dialogue {
    /// Messages as chat templates know them.
    pub messages: Vec<Value>,
    /// What the model may call.
    pub tools: Tools,
    /// What an answer without calls looks like.
    pub grammar: Option<Grammar>,
}

impl Dialogue {
    /// The text that the model continues.
    pub fn render(&self, ready: &Ready) -> Result<String, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::bad("messages", "messages is empty: say at least one"));
        }
        let Some(template) = &ready.template else {
            return Err(ApiError::bad(
                "messages",
                format!(
                    "{} has no chat template: /v1/completions continues plain text",
                    ready.name
                ),
            ));
        };
        let (messages, described) =
            tools::conversation(template, self.messages.clone(), self.tools.described());
        chat_prompt::render(template, &messages, described)
            .map_err(|e| ApiError::bad("messages", format!("the chat template refuses them: {e}")))
    }

    /// The request for an answer. Takes a while for long conversations and large grammars.
    pub fn request(
        &self,
        ready: &Ready,
        tenant: &Tenant,
        options: &Options,
        logprobs: Option<usize>,
    ) -> Result<Request, ApiError> {
        let text = self.render(ready)?;
        let tokens = ready.tokenizer.encode(&text, false);
        let tokens = tokens.map_err(|e| ApiError::bad("messages", e.to_string()))?;
        let mut request = options.request(ready, tenant, tokens, logprobs)?;
        let (grammar, param) = self.constraint()?;
        request.sampling.constraint =
            grammar.map(|grammar| ready.constraint(grammar, param)).transpose()?;
        Ok(request)
    }

    /// The grammar of calls and answers together, and the field behind it.
    fn constraint(&self) -> Result<(Option<Grammar>, &'static str), ApiError> {
        if !self.tools.callable() {
            return Ok((self.grammar.clone(), "response_format"));
        }
        let answer = match &self.grammar {
            None => None,
            Some(Grammar::JsonSchema(schema)) => Some(schema.clone()),
            Some(_) => {
                let message = "tools go with a JSON format only, not with guided_regex and \
                               guided_grammar";
                return Err(ApiError::bad("tools", message));
            }
        };
        let grammar = self.tools.grammar(answer).map_err(|e| ApiError::bad("tools", e))?;
        Ok((Some(grammar), "tools"))
    }
}
