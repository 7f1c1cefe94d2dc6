//! A conversation that the model goes on with, whichever API it came through.

use super::format::Asked;
use super::generation::Generation;
use super::options::Options;
use super::tools::{self, Tools};
use crate::models::chat_prompt;
use crate::models::grammar::Grammar;
use crate::serve::auth::Tenant;
use crate::serve::error::ApiError;
use crate::serve::state::{Ready, Server};
use serde_json::Value;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use wrinklefree::engine::Request;

/// What was said, and what may be answered.
#[derive(Clone, Debug, Default)]
pub struct Dialogue {
    /// The field that it came in, for errors.
    pub field: Field,
    /// Messages as chat templates know them.
    pub messages: Vec<Value>,
    /// What the model may call.
    pub tools: Tools,
    /// What an answer without calls looks like.
    pub grammar: Option<Asked>,
}

/// The name of an API's field for conversations.
#[derive(Clone, Copy, Debug)]
pub struct Field(pub &'static str);

impl Default for Field {
    fn default() -> Self {
        Self("messages")
    }
}

impl Dialogue {
    /// Starts `n` answers.
    pub async fn start(
        self,
        server: &Server,
        ready: &Arc<Ready>,
        tenant: Tenant,
        options: &Options,
        (n, logprobs): (usize, Option<usize>),
    ) -> Result<Generation, ApiError> {
        let (Field(field), options, own) = (self.field, options.clone(), ready.clone());
        // Long prompts take a while, and nothing else may wait for them.
        let request = spawn_blocking(move || self.request(&own, &tenant, &options, logprobs));
        let request = request.await.map_err(ApiError::internal)??;
        let time = server.limits.time;
        Generation::start(&ready.worker, (&[request], n), field, time).await
    }

    /// How many tokens its prompt has.
    pub async fn count(self, ready: &Arc<Ready>) -> Result<usize, ApiError> {
        let own = ready.clone();
        let tokens = spawn_blocking(move || self.tokens(&own)).await;
        Ok(tokens.map_err(ApiError::internal)??.len())
    }

    /// The text that the model continues.
    pub fn render(&self, ready: &Ready) -> Result<String, ApiError> {
        let Field(param) = self.field;
        if self.messages.is_empty() {
            return Err(ApiError::bad(param, format!("{param} is empty: say at least one")));
        }
        let Some(template) = &ready.template else {
            return Err(ApiError::bad(
                param,
                format!(
                    "{} has no chat template: /v1/completions continues plain text",
                    ready.name
                ),
            ));
        };
        let (messages, described) =
            tools::conversation(template, self.messages.clone(), self.tools.described());
        chat_prompt::render(template, &messages, described)
            .map_err(|e| ApiError::bad(param, format!("the chat template refuses them: {e}")))
    }

    fn tokens(&self, ready: &Ready) -> Result<Vec<u32>, ApiError> {
        let text = self.render(ready)?;
        let tokens = ready.tokenizer.encode(&text, false);
        tokens.map_err(|e| ApiError::bad(self.field.0, e.to_string()))
    }

    fn request(
        &self,
        ready: &Ready,
        tenant: &Tenant,
        options: &Options,
        logprobs: Option<usize>,
    ) -> Result<Request, ApiError> {
        let mut request = options.request(ready, tenant, self.tokens(ready)?, logprobs)?;
        request.sampling.constraint =
            self.asked()?.map(|asked| ready.constraint(asked)).transpose()?;
        Ok(request)
    }

    /// The grammar of calls and answers together.
    fn asked(&self) -> Result<Option<Asked>, ApiError> {
        if !self.tools.callable() {
            return Ok(self.grammar.clone());
        }
        let answer = match &self.grammar {
            None => None,
            Some(Asked { grammar: Grammar::JsonSchema(schema), .. }) => Some(schema.clone()),
            Some(_) => {
                let message = "tools go with a JSON format only, not with guided_regex and \
                               guided_grammar";
                return Err(ApiError::bad("tools", message));
            }
        };
        let grammar = self.tools.grammar(answer).map_err(|e| ApiError::bad("tools", e))?;
        Ok(Some(Asked { grammar, field: "tools" }))
    }
}
