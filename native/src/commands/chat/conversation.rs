//! A conversation with a model: messages in, answers out.

use super::settings::ChatSettings;
use anyhow::{anyhow, bail};
use wf_run_cli::session::{self, Answer, Watcher};
use wf_run_cli::typed::Typed;
use wf_run_cli::{open, out};
use wrinklefree::cache::KvConfig;
use wrinklefree::chat::{self, ChatModel, ChatPrompt};
use wrinklefree::decode::{Constraint, DecodeMode, SamplingParams};
use wrinklefree::engine::{Engine, EngineConfig, Request};
use wrinklefree::model::Runtime;
use wrinklefree::settings::Reasoning;
use wrinklefree::text::ChatTemplate;
use wrinklefree_easy::Message;
use wrinklefree_easy::models::Loaded;
use wrinklefree_easy::models::chat_prompt::today;
use wrinklefree_easy::models::engine::SingleSequence;

/// The model, what was said and how to answer.
pub struct Conversation {
    engine: Engine,
    template: ChatTemplate,
    /// Settings of sampling and the length of answers.
    pub settings: ChatSettings,
    mode: DecodeMode,
    eos: Vec<u32>,
    length: Length,
    /// Settings of reasoning.
    pub reasoning: Typed<Reasoning>,
    /// The form that answers must have.
    pub form: Option<Box<dyn Constraint>>,
    /// All messages, a system message first if there is one.
    pub messages: Vec<Message>,
    /// The oldest exchanges that the model does not see any more.
    forgotten: usize,
}

/// Limits of a conversation.
pub struct Length {
    /// Positions of the conversation.
    pub context: usize,
    /// Tokens that stay when it is full, if it goes on then.
    pub shift: Option<usize>,
}

impl Conversation {
    /// Needs a model with a tokenizer and a chat template.
    pub fn new(
        loaded: Loaded,
        runtime: Runtime,
        (settings, mode): (ChatSettings, DecodeMode),
        (length, kv): (Length, KvConfig),
    ) -> anyhow::Result<Self> {
        loaded.tokenizer()?;
        let Loaded { name, model, tokenizer, template, defaults, .. } = loaded;
        let template = template.ok_or_else(|| {
            anyhow!("{name} has no chat template: `wf-run generate --raw` continues text with it")
        })?;
        let (context, modes) = (length.context, std::slice::from_ref(&mode));
        let needs = SingleSequence { context, kv, modes };
        // A conversation begins as it began the last time.
        let config = EngineConfig { prefix_cache: true, ..needs.config(&model, &runtime)? };
        let engine = Engine::new(model, tokenizer, runtime, config)?;
        let (eos, messages, forgotten) = (defaults.eos, Vec::new(), 0);
        let (reasoning, form) = (Typed::default(), None);
        Ok(Self {
            engine,
            template,
            settings,
            mode,
            eos,
            length,
            reasoning,
            form,
            messages,
            forgotten,
        })
    }

    /// Forgets everything and starts with this system message.
    pub fn restart(&mut self, system: Option<String>) {
        if system.is_some() {
            open::warn_unheard(&self.template);
        }
        self.messages = system.into_iter().map(Message::system).collect();
        self.forgotten = 0;
    }

    /// Continues a conversation that was saved.
    ///
    /// # Errors
    /// If it is no exchange of messages, a system message first if there is one.
    pub fn load(&mut self, messages: Vec<Message>) -> anyhow::Result<()> {
        let first = usize::from(messages.first().is_some_and(|m| m.role == "system"));
        let turns = ["user", "assistant"].into_iter().cycle();
        if let Some(wrong) = messages[first..].iter().zip(turns).find(|(m, role)| m.role != *role) {
            bail!("expected a message of the {}, found one of {:?}", wrong.1, wrong.0.role);
        }
        if (messages.len() - first) % 2 == 1 {
            bail!("expected an answer to the last message, found none");
        }
        (self.messages, self.forgotten) = (messages, 0);
        Ok(())
    }

    /// Lets the model answer the last message again, with other random numbers. When that fails, the
    /// answer before stays.
    pub fn regenerate(&mut self, show: impl Watcher) -> anyhow::Result<Answer> {
        if self.messages.len() < self.first() + 2 {
            bail!("there is no answer yet");
        }
        let before = self.messages.clone();
        self.messages.pop();
        let text = self.messages.pop().map(|message| message.content).unwrap_or_default();
        self.forgotten = self.forgotten.min((self.messages.len() - self.first()) / 2);
        self.settings.next_seed();
        self.say(text, show).inspect_err(|_| self.messages = before)
    }

    /// The system message.
    pub fn system(&self) -> Option<String> {
        let first = self.messages.first().filter(|m| m.role == "system");
        first.map(|m| m.content.clone())
    }

    /// Lets the model answer. When that fails, the message counts as not said.
    pub fn say(&mut self, text: String, show: impl Watcher) -> anyhow::Result<Answer> {
        self.messages.push(Message::user(text));
        match self.answer(show) {
            Ok(answer) => {
                let reasoning = Some(&answer.reasoning).filter(|text| !text.is_empty()).cloned();
                self.messages.push(Message { reasoning, ..Message::assistant(&answer.text) });
                Ok(answer)
            }
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    fn answer(&mut self, show: impl Watcher) -> anyhow::Result<Answer> {
        let ChatPrompt { tokens, prefixes, reasoning, parser, .. } = self.prompt()?;
        let tokenizer = self.engine.tokenizer().expect("checked in new");
        let constraint = reasoning.constrain(tokenizer, &self.eos, self.form.clone())?;
        let request = Request {
            max_tokens: self.settings.max_tokens.get(),
            context_shift: self.length.shift,
            sampling: SamplingParams { constraint, ..self.settings.params(tokenizer)? },
            mode: self.mode.clone(),
            eos: self.eos.clone(),
            tokens,
            stable_prefix: prefixes.stable,
            message_ends: prefixes.message_ends,
            ..Request::default()
        };
        let answer = session::run(&mut self.engine, request, parser, show);
        open::warn(&std::iter::from_fn(|| self.engine.weak_drafter()).collect::<Vec<_>>());
        answer
    }

    /// Returns the prompt that the model reads. If texts shift and this one does not fit, the oldest
    /// exchanges are left out until it takes half of the context, so that this does not come with
    /// every message.
    fn prompt(&mut self) -> anyhow::Result<ChatPrompt> {
        let Length { context, shift, .. } = self.length;
        let (mut prompt, seen) = (self.encode(true)?, self.forgotten);
        if prompt.tokens.len() >= context && shift.is_some() {
            // Only the prompt that is read needs its prefixes.
            while self.encode(false)?.tokens.len() > context / 2 && self.forget() {}
            prompt = self.encode(true)?;
        }
        if prompt.tokens.len() >= context {
            // The message counts as not said, so nothing makes room for it.
            self.forgotten = seen;
            let shorter = match shift {
                Some(_) => "",
                None => ", --context-shift forgets the oldest messages",
            };
            bail!(
                "the conversation has {} tokens and the context holds {context}: /reset starts a \
                 new one, --context N makes room for a longer one{shorter}",
                prompt.tokens.len(),
            );
        }
        if self.forgotten > seen {
            out::note("(the conversation is too long: its oldest messages are left out)");
        }
        Ok(prompt)
    }

    /// Leaves one more exchange out; the last message always stays.
    fn forget(&mut self) -> bool {
        let more = 2 * (self.forgotten + 1) < self.messages.len() - self.first();
        self.forgotten += usize::from(more);
        more
    }

    /// Returns the index of the first message after the system message.
    fn first(&self) -> usize {
        usize::from(self.system().is_some())
    }

    /// The messages that the model sees.
    fn seen(&self) -> Vec<Message> {
        let (system, rest) = self.messages.split_at(self.first());
        [system, &rest[2 * self.forgotten..]].concat()
    }

    /// Returns the prompt of what the model sees, with the prefixes that other prompts share if `shares`.
    fn encode(&self, shares: bool) -> anyhow::Result<ChatPrompt> {
        let tokenizer = self.engine.tokenizer().expect("checked in new");
        let recurrent = shares && self.engine.model().spec().linear_attention.is_some();
        let (template, date) = (&self.template, Some(today()));
        let (reasoning, configured) = self.reasoning.parts();
        let (context, configured) = (None, configured);
        let chat =
            ChatModel { template, tokenizer, recurrent, context, date, reasoning: configured };
        Ok(chat
            .prompt(&chat::Conversation { reasoning, ..chat::Conversation::new(self.seen())? })?)
    }
}
