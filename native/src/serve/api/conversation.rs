//! A conversation to continue, independent of the API that it came through.

use super::body::{Body, GenerationOptions, only_one};
use super::generation::{Generation, aside};
use super::history::{self, AnswerRecorder, KnownAnswers, MessageRecorder};
use super::template_messages::{Ending, TemplateMessages};
use super::tools::{self, CallFormat, OutputParser, Tools};
use super::validation::OutputValidator;
use crate::models::chat_prompt::{self, Inputs};
use crate::serve::client::Arrival;
use crate::serve::error::ApiError;
use crate::serve::exact_history::TenantHistory;
use crate::serve::grammars::{CallableTools, RequestedGrammar};
use crate::serve::served_model::ServedModel;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use wrinklefree::chat::{AnswerScope, SharedPrefixes};
use wrinklefree::engine::Request;
use wrinklefree::settings::{OutputReasoning, Reasoning, ReasoningError};
use wrinklefree::text::{ChatTemplate, Prompt, ReasoningMarkers, StopScope, TextError};

/// Changes messages; `None` if there is nothing to change.
type Repair = fn(&[Value]) -> Option<Vec<Value>>;

/// Changes of messages that a template refuses, in this order: many templates write the members of
/// arguments, allow one system message, and only as the first one, and want turns to alternate.
const REPAIRS: [Repair; 3] =
    [TemplateMessages::with_objects, TemplateMessages::with_one_system, TemplateMessages::joined];

/// Messages and tools in a form that a template can read.
struct Readable<'a> {
    messages: Cow<'a, [Value]>,
    tools: Vec<Value>,
}

/// Returns the tools with an empty description where one has none, for templates that write it anyway.
/// `None` if all have one.
fn described(mut tools: Vec<Value>) -> Option<Vec<Value>> {
    let mut changed = false;
    for function in tools.iter_mut().filter_map(|tool| tool["function"].as_object_mut()) {
        let known = function.len();
        function.entry("description").or_insert_with(|| "".into());
        changed |= function.len() > known;
    }
    changed.then_some(tools)
}

/// A conversation and the constraints on its continuation.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Name of the request field with the messages, for errors.
    pub field: &'static str,
    /// Messages in the format of chat templates.
    pub messages: Vec<Value>,
    /// Tools that the model may call.
    pub tools: Tools,
    /// Documents to answer from.
    pub documents: Option<Vec<Value>>,
    /// Grammar of outputs without calls.
    pub grammar: Option<RequestedGrammar>,
    /// Settings of reasoning.
    pub reasoning: Reasoning,
    /// End of the prompt.
    pub ending: Ending,
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
struct RenderedConversation<'a> {
    prompt: Prompt,
    readable: Readable<'a>,
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
        let validator = OutputValidator::new(compiler, grammar, left_out, arrival, Some(parser));
        let form = reasoning.constrain(&model.tokenizer, &model.defaults.eos, answer);
        let allowed = request.sampling.constraint.take();
        request.sampling.constraint = only_one(allowed, form.map_err(reasoning_error)?)?;
        let requests = [request];
        let started = Generation::start(model, arrival, &requests, count, field).await?;
        let started = started.with_history(generated, recorder);
        Ok(started.with_reasoning(reasoning.parser()).with_validator(validator))
    }
}

impl Conversation {
    /// Renders and tokenizes the conversation. Takes a while for long ones.
    ///
    /// # Errors
    /// If the conversation or an option is invalid.
    pub fn prepare(
        &self,
        model: &ServedModel,
        body: &Body,
        options: &GenerationOptions,
        logprobs: Option<usize>,
    ) -> Result<PreparedConversation, ApiError> {
        let salt = options.salt(&body.tenant)?;
        let history = model.history.as_ref();
        let history = history.map(|history| TenantHistory::new(history, &body.tenant, &salt));
        let generated = history.as_ref().and_then(|own| self.as_generated(own));
        let given = self.render_known(model, history.as_ref())?;
        // What a client changed of an answer matters where the template shows it.
        let restored =
            generated.as_ref().and_then(|all| all.render_known(model, history.as_ref()).ok());
        let restored = restored.filter(|restored| restored.known.count() > given.known.count());
        let RenderedConversation { prompt, readable, known } = restored.unwrap_or(given);
        let tokens = known.encode(&prompt, &model.tokenizer).map_err(|e| self.not_encoded(&e))?;
        let request = options.request(model, &body.tenant, tokens, logprobs)?;
        let prefixes = self.prefixes(model, &readable, (&prompt, &request.tokens));
        let (mut reasoning, mut format) = (OutputReasoning::default(), CallFormat::default());
        if let Some(template) = &model.template {
            let settings = self.reasoning(model);
            let end = self.end_of_reasoning(template).unwrap_or(prompt.text());
            reasoning = settings.of_output(template, end).map_err(reasoning_error)?;
            format = CallFormat::of_template(template).unwrap_or_default();
        }
        let parser = OutputParser::new(reasoning.parser(), self.tools.parser(format));
        let scoped = !request.stop.is_empty() && !parser.is_plain();
        let stop_scope =
            scoped.then(|| Box::new(AnswerScope::new(parser.clone())) as Box<dyn StopScope>);
        let SharedPrefixes { stable: stable_prefix, message_ends } = prefixes;
        let request = Request { stable_prefix, message_ends, stop_scope, ..request };
        let grammar = self.output_grammar(format)?;
        let generated = known.count();
        let message = history.filter(|_| self.ending == Ending::NewMessage).map(|own| {
            let spelled = OutputParser::new(reasoning.parser(), self.tools.spelling_parser(format));
            MessageRecorder {
                before: history::last_key(&own, &self.messages),
                parser: parser.clone(),
                spelled,
                in_json: format.json().is_some(),
            }
        });
        let place = known.place(request.eos.clone());
        let tokenizer = model.tokenizer.clone();
        let recorder = place.map(|place| AnswerRecorder { place, message, tokenizer });
        let field = self.field;
        Ok(PreparedConversation { field, request, grammar, reasoning, generated, recorder, parser })
    }

    /// Returns the conversation with what the model wrote and the client does not send; `None` if that is
    /// nothing.
    fn as_generated(&self, history: &TenantHistory) -> Option<Self> {
        let messages = history::as_generated(history, &self.messages)?;
        Some(Self { messages, ..self.clone() })
    }

    /// Renders the prompt, and finds answers in it.
    fn render_known(
        &self,
        model: &ServedModel,
        history: Option<&TenantHistory>,
    ) -> Result<RenderedConversation<'_>, ApiError> {
        let (prompt, readable) = self.render_readable(model)?;
        self.check_length(model, &prompt)?;
        let known = KnownAnswers::find(history, &prompt, &model.tokenizer);
        Ok(RenderedConversation { prompt, readable, known })
    }

    /// Renders the prompt with the model's chat template.
    ///
    /// # Errors
    /// If there are no messages, or no template, or the template refuses the messages.
    pub fn render(&self, model: &ServedModel) -> Result<Prompt, ApiError> {
        self.render_readable(model).map(|(prompt, _)| prompt)
    }

    /// Renders the prompt. Also returns the messages and tools in the form that the template could read.
    fn render_readable(&self, model: &ServedModel) -> Result<(Prompt, Readable<'_>), ApiError> {
        let param = self.field;
        if self.messages.is_empty() {
            let message = format!("{param} is empty: send at least one message");
            return Err(ApiError::bad(param, message));
        }
        let Some(template) = &model.template else {
            let message = format!(
                "{} has no chat template: use /v1/completions to continue plain text",
                model.name
            );
            return Err(ApiError::bad(param, message));
        };
        let inputs = self.inputs(model, None)?;
        if inputs.documents.is_some() && !template.source().contains("documents") {
            let message = format!("the chat template of {} takes no documents", model.name);
            return Err(ApiError::bad("documents", message));
        }
        let render = |messages: &[Value], tools: &[Value]| {
            self.render_messages(template, messages, tools, inputs.clone())
        };
        let (mut messages, mut tools) = (Cow::from(&self.messages), self.tools.definitions());
        let first = match render(&messages, &tools) {
            Ok(prompt) => return Ok((prompt, Readable { messages, tools })),
            Err(error) => error,
        };
        if let Some(described) = described(tools.clone()) {
            tools = described;
            if let Ok(prompt) = render(&messages, &tools) {
                return Ok((prompt, Readable { messages, tools }));
            }
        }
        for repair in REPAIRS {
            let Some(repaired) = repair(&messages) else { continue };
            messages = repaired.into();
            if let Ok(prompt) = render(&messages, &tools) {
                return Ok((prompt, Readable { messages, tools }));
            }
        }
        Err(ApiError::bad(param, format!("the chat template failed: {first}")))
    }

    fn render_messages(
        &self,
        template: &ChatTemplate,
        messages: &[Value],
        tools: &[Value],
        inputs: Inputs,
    ) -> Result<Prompt, String> {
        let (messages, tools) = tools::for_template(template, messages.to_vec(), tools.to_vec());
        let inputs = Inputs { tools, ..inputs };
        let rendered = match self.ending {
            Ending::NewMessage => chat_prompt::render(template, &messages, inputs),
            Ending::Bare | Ending::LastMessage => {
                chat_prompt::render_bare(template, &messages, inputs)
            }
        };
        let prompt = rendered.map_err(|error| error.to_string())?;
        if self.ending != Ending::LastMessage {
            return Ok(prompt);
        }
        let last = messages.last().and_then(|message| message["content"].as_str());
        chat_prompt::open_end(prompt, last.unwrap_or_default()).ok_or_else(|| {
            "it does not write the last message as it is, so the message cannot be continued".into()
        })
    }

    /// Returns the marker of reasoning that decides where a continued message is, if the template has any.
    fn end_of_reasoning(&self, template: &ChatTemplate) -> Option<&'static str> {
        let markers = ReasoningMarkers::of_template(template)?;
        if self.ending != Ending::LastMessage {
            return None;
        }
        let text = self.messages.last()?["content"].as_str()?;
        let open = text.contains(markers.open) && !text.contains(markers.close);
        Some(if open { markers.open } else { markers.close })
    }

    /// Prefixes that other prompts share, where the prefix cache needs to know them.
    fn prefixes(
        &self,
        model: &ServedModel,
        Readable { messages, tools }: &Readable<'_>,
        prompt: (&Prompt, &[u32]),
    ) -> SharedPrefixes {
        let Some(template) = model.template.as_ref().filter(|_| model.is_recurrent()) else {
            return SharedPrefixes::default();
        };
        let render = |messages: &[Value]| {
            let (messages, definitions) =
                tools::for_template(template, messages.to_vec(), tools.clone());
            let inputs = self.inputs(model, definitions).ok()?;
            chat_prompt::render_bare(template, &messages, inputs).ok()
        };
        let preserves = self.reasoning(model).preserves() == Some(true);
        SharedPrefixes::find(prompt, messages, &model.tokenizer, preserves, render)
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

    /// Inputs of the template next to the messages.
    fn inputs(&self, model: &ServedModel, tools: Option<Value>) -> Result<Inputs, ApiError> {
        let variables = self.reasoning(model).variables().map_err(reasoning_error)?;
        Ok(Inputs { tools, documents: self.documents.clone().map(Value::from), variables })
    }

    /// Settings of reasoning, with those of the server for unset ones.
    fn reasoning(&self, model: &ServedModel) -> Reasoning {
        self.reasoning.clone().or(model.reasoning.clone())
    }

    /// Returns what outputs with and without calls must look like.
    fn output_grammar(&self, format: CallFormat) -> Result<Option<RequestedGrammar>, ApiError> {
        let answer = self.grammar.clone();
        let tools = match self.tools.callable() {
            true => self.tools.clone(),
            // A model that sees tools may call them where it is told not to.
            false if self.tools.any() && answer.is_none() => Tools::none(),
            false => return Ok(answer),
        };
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
