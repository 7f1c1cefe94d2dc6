//! A conversation with a model: messages in, answers out.

use crate::chat_prompt;
use crate::loaded::Loaded;
use crate::session::{self, Answer};
use anyhow::{Context, anyhow, bail};
use wrinklefree::cache::KvConfig;
use wrinklefree::decode::{DecodeMode, SamplingParams};
use wrinklefree::engine::{Engine, EngineConfig, Request};
use wrinklefree::model::Runtime;
use wrinklefree::text::{ChatTemplate, Message};

/// The model, what was said and how to answer.
pub struct Conversation {
    engine: Engine,
    template: ChatTemplate,
    sampling: SamplingParams,
    mode: DecodeMode,
    eos: Vec<u32>,
    context: usize,
    max_tokens: usize,
    /// All messages, a system message first if there is one.
    pub messages: Vec<Message>,
}

/// The message that makes `role` say `content`.
pub fn message(role: &str, content: String) -> Message {
    Message { role: role.into(), content }
}

impl Conversation {
    /// Needs a model with a tokenizer and a chat template.
    pub fn new(
        loaded: Loaded,
        runtime: Runtime,
        (sampling, mode): (SamplingParams, DecodeMode),
        (context, kv): (usize, KvConfig),
        max_tokens: usize,
    ) -> anyhow::Result<Self> {
        loaded.tokenizer()?;
        let Loaded { name, model, tokenizer, template, defaults, .. } = loaded;
        let template = template.ok_or_else(|| {
            anyhow!("{name} has no chat template: `wf-run generate --raw` continues text with it")
        })?;
        let sizes = session::sizes(&model, &runtime, (context, kv), std::slice::from_ref(&mode))?;
        // A conversation begins as it began the last time.
        let config = EngineConfig { prefix_cache: true, ..sizes };
        let engine = Engine::new(model, tokenizer, runtime, config)?;
        let (eos, messages) = (defaults.eos, Vec::new());
        Ok(Self { engine, template, sampling, mode, eos, context, max_tokens, messages })
    }

    /// Forgets everything and starts with this system message.
    pub fn restart(&mut self, system: Option<String>) {
        self.messages = system.into_iter().map(|s| message("system", s)).collect();
    }

    /// The system message.
    pub fn system(&self) -> Option<String> {
        let first = self.messages.first().filter(|m| m.role == "system");
        first.map(|m| m.content.clone())
    }

    /// Lets the model answer. When that fails, the message counts as not said.
    pub fn say(
        &mut self,
        text: String,
        show: impl FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Answer> {
        self.messages.push(message("user", text));
        match self.answer(show) {
            Ok(answer) => {
                self.messages.push(message("assistant", answer.text.clone()));
                Ok(answer)
            }
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    fn answer(&mut self, show: impl FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<Answer> {
        let text = chat_prompt::render(&self.template, &self.messages, None);
        let text = text.context("the chat template refuses the conversation")?;
        let tokenizer = self.engine.tokenizer().expect("checked in new");
        let tokens = tokenizer.encode(&text, false).context("cannot encode the message")?;
        if tokens.len() >= self.context {
            bail!(
                "the conversation has {} tokens and the context holds {}: /reset starts a new \
                 one, --context N makes room for a longer one",
                tokens.len(),
                self.context
            );
        }
        let request = Request {
            max_tokens: self.max_tokens.min(self.context - tokens.len()),
            sampling: self.sampling.clone(),
            mode: self.mode.clone(),
            eos: self.eos.clone(),
            tokens,
            ..Request::default()
        };
        session::run(&mut self.engine, request, show)
    }
}
