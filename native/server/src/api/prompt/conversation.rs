//! A conversation to continue, independent of the API that it came through.

use super::history::{self, AnswerRecorder, KnownAnswers, MessageRecorder, OnAnswer};
use crate::access::keys::Tenant;
use crate::api::answer::aside::aside;
use crate::api::answer::generation::Generation;
use crate::api::answer::validation::OutputValidator;
use crate::api::body::{GenerationOptions, only_one};
use crate::engine::arrival::Arrival;
use crate::engine::exact_history::TenantHistory;
use crate::engine::grammars::{CallableTools, RequestedGrammar};
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use std::sync::Arc;
use wrinklefree::chat::tools::CallFormat;
use wrinklefree::chat::{
    ChatError, ChatModel, Conversation, Ending, OutputParser, RenderedChat, Snapshots,
};
use wrinklefree::engine::Request;
use wrinklefree::settings::{OutputReasoning, ReasoningError};
use wrinklefree::text::{Prompt, TextError};
use wrinklefree_easy::models::chat_prompt::today;

/// A conversation to continue, and the form of its answer.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// Name of the request field with the messages, for errors.
    pub field: &'static str,
    /// The conversation.
    pub chat: Conversation,
    /// Grammar of outputs without calls.
    pub grammar: Option<RequestedGrammar>,
}

/// Number and contents of the requested outputs.
#[derive(Clone, Copy, Debug)]
pub struct OutputRequest {
    /// Number of outputs.
    pub count: usize,
    /// Number of alternatives per token, or `None` for no log-probabilities.
    pub logprobs: Option<usize>,
    /// The same for the tokens of the prompt.
    pub prompt_logprobs: Option<usize>,
    /// Return the ids of tokens.
    pub token_ids: bool,
    /// Log-probabilities name tokens by their ids.
    pub by_id: bool,
    /// Return the reasoning before the answer.
    pub reasoning: bool,
}

/// A conversation as the model reads it.
struct KnownChat<'a> {
    rendered: RenderedChat<'a>,
    /// Answers in it that the model has written.
    known: KnownAnswers,
}

/// A conversation that is tokenized and waits for its grammar and the engine.
pub struct PreparedConversation {
    field: &'static str,
    request: Request,
    grammar: Option<RequestedGrammar>,
    reasoning: OutputReasoning,
    /// Tokens of the prompt that this server generated.
    generated: usize,
    /// Remembers the answer.
    recorder: Option<AnswerRecorder>,
    /// Parser of each output.
    pub parser: OutputParser,
}

impl PreparedConversation {
    /// Returns the tokens of the prompt.
    pub fn tokens(&self) -> &[u32] {
        &self.request.tokens
    }

    /// Returns the request without its grammar.
    pub fn into_request(self) -> Request {
        self.request
    }

    /// Calls this with each answer that is remembered as a message.
    pub fn on_answer(&mut self, then: OnAnswer) {
        if let Some(message) = self.recorder.as_mut().and_then(|own| own.message.as_mut()) {
            message.then = Some(then);
        }
    }

    /// Makes the stream have the whole answer after each pass.
    pub fn replaces(&mut self, replaces: bool) {
        self.request.watch = replaces;
    }

    /// Starts generating `count` outputs.
    ///
    /// # Errors
    /// If the grammar cannot be used, or the engine does not accept the request.
    pub async fn start(
        self,
        model: &Arc<ServedModel>,
        arrival: Arrival,
        count: usize,
    ) -> Result<Generation, ApiError> {
        let Self { field, mut request, grammar, reasoning, generated, recorder, parser } = self;
        let (mut answer, mut left_out) = (None, Vec::new());
        if let Some(requested) = &grammar {
            let ready = model.grammars.compile(requested, &arrival).await?;
            answer = Some(aside(|| ready.compiled.constraint.clone()));
            left_out.clone_from(&ready.not_enforced);
        }
        let compiler = &model.grammars;
        let grammar = grammar.as_ref();
        let snapshots = request.watch.then(|| {
            let one = Snapshots::new(&request, parser.clone(), Some(&model.tokenizer));
            vec![one; count]
        });
        let validator = OutputValidator::new(compiler, grammar, left_out, arrival, Some(parser));
        let form = reasoning.constrain(&model.tokenizer, &model.defaults.eos, answer);
        let allowed = request.sampling.constraint.take();
        request.sampling.constraint = only_one(allowed, form.map_err(reasoning_error)?)?;
        let requests = [request];
        let started = Generation::start(model, arrival, &requests, count, field).await?;
        let started = started.with_history(generated, recorder);
        let started = started.with_snapshots(snapshots.unwrap_or_default());
        Ok(started.with_reasoning(reasoning.parser()).with_validator(validator))
    }
}

impl ChatRequest {
    /// Renders and tokenizes the conversation of a tenant. Takes a while for long ones.
    ///
    /// # Errors
    /// If the conversation or an option is invalid.
    pub fn prepare_for(
        &self,
        model: &ServedModel,
        tenant: &Tenant,
        options: &GenerationOptions,
        logprobs: Option<usize>,
    ) -> Result<PreparedConversation, ApiError> {
        let salt = options.salt(tenant)?;
        let history = model.history.as_ref();
        let history = history.map(|history| TenantHistory::new(history, tenant, &salt));
        let generated = history.as_ref().and_then(|own| self.as_generated(own));
        let given = self.render_known(model, history.as_ref())?;
        // What a client changed of an answer matters where the template shows it.
        let restored =
            generated.as_ref().and_then(|all| all.render_known(model, history.as_ref()).ok());
        let restored = restored.filter(|restored| restored.known.count() > given.known.count());
        let KnownChat { rendered, known } = restored.unwrap_or(given);
        let tokens =
            known.encode(&rendered.prompt, &model.tokenizer).map_err(|e| self.not_encoded(&e))?;
        let request = options.request(model, tenant, tokens.clone(), logprobs)?;
        let chat_model = self.chat_model(model)?;
        // The sizes of schemas are checked before anything is made of them.
        let grammar = self.output_grammar(chat_model.call_format())?;
        let chat = chat_model.with_tokens(&self.chat, &rendered, tokens);
        let chat = chat.map_err(|error| self.refused(model, error))?;
        let request = Request {
            stable_prefix: chat.prefixes.stable,
            message_ends: chat.prefixes.message_ends,
            stop_scope: chat.stop_scope(&request.stop),
            ..request
        };
        let message = history.filter(|_| self.chat.ending == Ending::NewMessage).map(|own| {
            let spelled = self.chat.tools.spelling_parser(chat.format);
            MessageRecorder {
                before: history::last_key(&own, &self.chat.messages),
                parser: chat.parser.clone(),
                spelled: OutputParser::new(chat.reasoning.parser(), spelled),
                in_json: chat.format.json().is_some(),
                then: None,
            }
        });
        let generated = known.count();
        let place = known.place(request.eos.clone());
        let tokenizer = model.tokenizer.clone();
        Ok(PreparedConversation {
            field: self.field,
            request,
            grammar,
            reasoning: chat.reasoning,
            generated,
            recorder: place.map(|place| AnswerRecorder { place, message, tokenizer }),
            parser: chat.parser,
        })
    }

    /// Returns the conversation with what the model wrote and the client does not send; `None` if that is
    /// nothing.
    fn as_generated(&self, history: &TenantHistory) -> Option<Self> {
        let messages = history::as_generated(history, &self.chat.messages)?;
        let chat = Conversation { messages, ..self.chat.clone() };
        Some(Self { chat, ..self.clone() })
    }

    /// Renders the prompt, and finds answers in it.
    fn render_known(
        &self,
        model: &ServedModel,
        history: Option<&TenantHistory>,
    ) -> Result<KnownChat<'_>, ApiError> {
        let rendered = self.rendered(model)?;
        self.check_length(model, &rendered.prompt)?;
        let known = KnownAnswers::find(history, &rendered.prompt, &model.tokenizer);
        Ok(KnownChat { rendered, known })
    }

    /// Renders the prompt with the model's chat template.
    ///
    /// # Errors
    /// If there are no messages, or no template, or the template refuses the messages.
    pub fn render(&self, model: &ServedModel) -> Result<Prompt, ApiError> {
        self.rendered(model).map(|rendered| rendered.prompt)
    }

    fn rendered(&self, model: &ServedModel) -> Result<RenderedChat<'_>, ApiError> {
        if self.chat.messages.is_empty() {
            return Err(self.refused(model, ChatError::Empty));
        }
        let rendered = self.chat_model(model)?.render(&self.chat);
        rendered.map_err(|error| self.refused(model, error))
    }

    /// Returns what turns the conversation into a prompt.
    fn chat_model<'m>(&self, model: &'m ServedModel) -> Result<ChatModel<'m>, ApiError> {
        let template = model.template.as_ref().ok_or_else(|| {
            let message = format!(
                "{} has no chat template: use /v1/completions to continue plain text",
                model.name
            );
            ApiError::bad(self.field, message)
        })?;
        Ok(ChatModel {
            template,
            tokenizer: &model.tokenizer,
            recurrent: model.is_recurrent(),
            context: None,
            date: Some(today()),
            reasoning: Some(&model.reasoning),
        })
    }

    /// Returns the tokens of the prompt.
    ///
    /// # Errors
    /// If the conversation cannot be rendered or is longer than the context.
    pub fn tokens(&self, model: &ServedModel) -> Result<Vec<u32>, ApiError> {
        let prompt = self.render(model)?;
        self.check_length(model, &prompt)?;
        prompt.encode(&model.tokenizer).map_err(|e| self.not_encoded(&e))
    }

    fn check_length(&self, model: &ServedModel, prompt: &Prompt) -> Result<(), ApiError> {
        model.check_length(prompt.text(), model.context, self.field)
    }

    fn not_encoded(&self, error: &TextError) -> ApiError {
        ApiError::bad(self.field, error.to_string())
    }

    /// Names the field of an error.
    fn refused(&self, model: &ServedModel, error: ChatError) -> ApiError {
        let field = self.field;
        match error {
            ChatError::Empty => {
                ApiError::bad(field, format!("{field} is empty: send at least one message"))
            }
            ChatError::Documents => {
                let message = format!("the chat template of {} takes no documents", model.name);
                ApiError::bad("documents", message)
            }
            ChatError::Refused(_) | ChatError::NotContinued => {
                ApiError::bad(field, format!("the chat template failed: {error}"))
            }
            ChatError::Reasoning(error) => reasoning_error(error),
            ChatError::Role { .. }
            | ChatError::Message { .. }
            | ChatError::TooLong { .. }
            | ChatError::Text(_)
            | ChatError::Tools(_) => ApiError::bad(field, error.to_string()),
        }
    }

    /// Returns what outputs with and without calls must look like.
    fn output_grammar(&self, format: CallFormat) -> Result<Option<RequestedGrammar>, ApiError> {
        let answer = self.grammar.clone();
        let Some(tools) = self.chat.tools.of_grammar(answer.is_some()) else { return Ok(answer) };
        let tools = CallableTools { tools, format };
        RequestedGrammar::with_tools(answer, tools)?.checked().map(Some)
    }
}

/// Names the field of a setting that does not fit the model.
fn reasoning_error(error: ReasoningError) -> ApiError {
    let field = match error {
        ReasoningError::Reserved(_) | ReasoningError::NotBoolean(_) => "chat_template_kwargs",
        ReasoningError::NoReasoning => "enable_thinking",
        ReasoningError::NoToken(_) => "thinking_budget",
    };
    ApiError::bad(field, error.to_string())
}
