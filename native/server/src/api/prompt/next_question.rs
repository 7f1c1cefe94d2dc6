//! The prompt of a conversation's next question, as far as it is known before the question: it is computed
//! while the engine has nothing else to do (`--read-ahead`).

use super::conversation::{ChatRequest, PreparedConversation};
use crate::access::admission::BodyPermit;
use crate::access::keys::Tenant;
use crate::api::body::{Body, GenerationOptions};
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use serde_json::json;
use std::iter::zip;
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;
use wrinklefree::chat::OutputBlocks;
use wrinklefree::decode::DecodeMode;
use wrinklefree::engine::{MessageEnds, Request};

/// Questions with different beginnings, which no prompt can know.
const QUESTIONS: [&str; 2] = ["1", "a"];

/// A conversation that waits for its answer.
struct NextQuestion {
    chat: ChatRequest,
    options: GenerationOptions,
    tenant: Tenant,
    /// Keeps the conversation's part of the server's memory.
    _permit: Arc<BodyPermit>,
    /// The model, which can be unloaded meanwhile.
    model: Weak<ServedModel>,
}

impl ChatRequest {
    /// Renders and tokenizes the conversation of a body, whose next prompt may be read ahead. Takes a while for
    /// long ones.
    ///
    /// # Errors
    /// If the conversation or an option is invalid.
    pub fn prepare(
        &self,
        model: &Arc<ServedModel>,
        body: &Body,
        options: &GenerationOptions,
        logprobs: Option<usize>,
    ) -> Result<PreparedConversation, ApiError> {
        let mut prepared = self.prepare_for(model, &body.tenant, options, logprobs)?;
        if model.reading_ahead.is_some() {
            let next = Arc::new(NextQuestion {
                chat: self.clone(),
                options: options.clone(),
                tenant: body.tenant.clone(),
                _permit: body.permit.clone(),
                model: Arc::downgrade(model),
            });
            prepared.on_answer(Box::new(move |answer| next.clone().read_ahead(answer)));
        }
        Ok(prepared)
    }
}

impl NextQuestion {
    /// Computes the prompt up to the next question after an answer without calls: their results come at once.
    /// Returns at once.
    fn read_ahead(self: Arc<Self>, answer: OutputBlocks) {
        if answer.calls().next().is_some() {
            return;
        }
        tokio::task::spawn_blocking(move || {
            let Some(model) = self.model.upgrade() else { return };
            // Work that nobody asked for: one prompt at a time, and only for an idle engine.
            let Some(Ok(_permit)) = model.reading_ahead.as_ref().map(Semaphore::try_acquire) else {
                return;
            };
            if model.engine.active() == 0
                && let Some(request) = self.known_part(&model, &answer)
            {
                model.engine.read_ahead(request);
            }
        });
    }

    /// Returns what prompts with any next question begin with. `None` if the template takes none, or the mode
    /// computes whole blocks.
    fn known_part(&self, model: &ServedModel, answer: &OutputBlocks) -> Option<Request> {
        let said = json!({"role": "assistant", "content": answer.text(),
            "reasoning_content": answer.reasoning()});
        let prompt = |question: &str| {
            let mut chat = self.chat.clone();
            chat.chat.messages.push(said.clone());
            chat.chat.messages.push(json!({"role": "user", "content": question}));
            let prepared = chat.prepare_for(model, &self.tenant, &self.options, None).ok()?;
            Some(prepared.into_request())
        };
        let [one, other] = QUESTIONS.map(prompt);
        let (mut request, other) = (one?, other?);
        let known = zip(&request.tokens, &other.tokens).take_while(|(one, other)| one == other);
        let known = known.count();
        request.tokens.truncate(known);
        let is_whole = !matches!(request.mode, DecodeMode::Diffusion(_));
        let ends = MessageEnds { question: None, ..request.message_ends };
        let Request { tokens, mode, cache_salt, .. } = request;
        let rest = Request { message_ends: ends, max_tokens: 1, ..Request::default() };
        (is_whole && known > 0).then_some(Request { tokens, mode, cache_salt, ..rest })
    }
}
