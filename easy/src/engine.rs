//! The engine: a handle of the thread that runs requests.

use crate::models::chat_prompt::today;
use crate::models::engine::MAX_BATCH_TOKENS;
#[cfg(feature = "grammar")]
use crate::models::grammar::{
    Grammar, Grammars, NOT_HELD, answers, call_grammar, without_annotations,
};
use crate::stream::{CancelHandle, Completion, Stream};
use crate::worker::{Client, Command, Submission};
use crate::{EngineBuilder, Error, GenerateOptions, Message, random_seed};
use std::ffi::OsString;
use std::sync::Arc;
#[cfg(feature = "grammar")]
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use wrinklefree::chat::tools::CallFormat;
use wrinklefree::chat::{
    ChatModel, ChatPrompt, Conversation, OutputParser, OutputPieces, Snapshots,
};
use wrinklefree::decode::{Constraint, DecodeMode, DraftNet, Pooling};
use wrinklefree::engine::{EngineStats, EventKind, FinishReason, Request};
use wrinklefree::format::{DlmConfig, GenerationDefaults};
use wrinklefree::settings::{Hole, ModelCapabilities, Reasoning, Settings};
use wrinklefree::text::{ChatTemplate, Tokenizer};

/// Most tokens of an output for requests that do not say.
const MAX_TOKENS: usize = 256;

/// Runs requests on one model. Clones share one thread, which batches the requests of all callers.
/// The thread ends when the last clone and the last [`Stream`] are dropped.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// The parts of a model that callers use on their own threads.
pub(crate) struct Served {
    pub name: String,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub defaults: GenerationDefaults,
    pub dlm: Option<DlmConfig>,
    pub settings: Settings,
    pub vocab: usize,
    /// The net that drafts from its hidden states, if it has one.
    pub draft_net: Option<DraftNet>,
    pub hidden: usize,
    /// True if the model has recurrent states, which the prefix cache keeps at few positions only.
    pub recurrent: bool,
    pub context: usize,
    pub warnings: Vec<String>,
    #[cfg(feature = "grammar")]
    pub grammars: OnceLock<Result<Grammars, String>>,
}

/// State of all clones of an engine.
pub(crate) struct Shared {
    /// `None` only while it is dropped.
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    served: Served,
}

impl Shared {
    pub fn new(commands: Sender<Command>, thread: JoinHandle<()>, served: Served) -> Self {
        Self { commands: Some(commands), thread: Some(thread), served }
    }

    fn send(&self, command: Command) -> Result<(), Error> {
        let commands = self.commands.as_ref().ok_or(Error::Stopped)?;
        commands.send(command).map_err(|_| Error::Stopped)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported to its callers already.
            let _ = thread.join();
        }
    }
}

impl Engine {
    /// Returns a builder for a model: a file, a directory, or a hub id (feature `hub`).
    pub fn builder(model: impl Into<OsString>) -> EngineBuilder {
        EngineBuilder::new(Some(model.into()))
    }

    /// Returns a builder for the small model inside the library.
    #[cfg(feature = "default-model")]
    pub fn builder_default() -> EngineBuilder {
        EngineBuilder::new(None)
    }

    /// Returns the name of the model.
    pub fn name(&self) -> &str {
        &self.shared.served.name
    }

    /// Returns the number of tokens in the vocabulary, which is the number of logits.
    pub fn vocab_size(&self) -> usize {
        self.shared.served.vocab
    }

    /// Returns the number of values in an embedding.
    pub fn hidden_size(&self) -> usize {
        self.shared.served.hidden
    }

    /// Returns the maximum number of positions (tokens) in a sequence.
    pub fn context(&self) -> usize {
        self.shared.served.context
    }

    /// Returns the special ids of the model and the sampling that its authors recommend.
    pub fn defaults(&self) -> &GenerationDefaults {
        &self.shared.served.defaults
    }

    /// Returns remarks on the options for this model, for the caller to print or log: those without
    /// effect, and a context longer than the trained one.
    pub fn warnings(&self) -> &[String] {
        &self.shared.served.warnings
    }

    /// Continues a prompt, as it is, to its end.
    ///
    /// # Errors
    /// If the request is invalid, or the output cannot follow its grammar.
    pub fn generate(&self, prompt: &str, options: &GenerateOptions) -> Result<Completion, Error> {
        self.stream(prompt, options)?.collect_all()
    }

    /// Continues a prompt, as it is, chunk by chunk.
    ///
    /// # Errors
    /// If the request is invalid. Later errors are items of the stream.
    pub fn stream(&self, prompt: &str, options: &GenerateOptions) -> Result<Stream, Error> {
        let Some(suffix) = &options.suffix else {
            return self.stream_tokens(self.tokenize(prompt)?, options);
        };
        let Served { name, tokenizer, dlm, .. } = &self.shared.served;
        let (hole, tokens) = Hole::new((name, tokenizer, dlm.is_some()), prompt, suffix)?;
        self.run(plain(tokens, options)?, Some(hole), options)
    }

    /// Continues token ids chunk by chunk.
    ///
    /// # Errors
    /// If the request is invalid. Later errors are items of the stream.
    pub fn stream_tokens(
        &self,
        tokens: Vec<u32>,
        options: &GenerateOptions,
    ) -> Result<Stream, Error> {
        if options.suffix.is_some() {
            return Err(Error::Suffix);
        }
        self.run(plain(tokens, options)?, None, options)
    }

    fn run(
        &self,
        prompt: ChatPrompt,
        hole: Option<Hole>,
        options: &GenerateOptions,
    ) -> Result<Stream, Error> {
        let Served { name, tokenizer, defaults, dlm, settings, vocab, draft_net, .. } =
            &self.shared.served;
        let capabilities = ModelCapabilities {
            name,
            dlm: dlm.as_ref(),
            tokenizer: Some(tokenizer),
            vocab: *vocab,
            rows: MAX_BATCH_TOKENS,
            draft_net: *draft_net,
        };
        let form = self.constraint(options, prompt.format)?;
        let constraint = prompt.reasoning.constrain(tokenizer, &defaults.eos, form)?;
        let stop_scope = prompt.stop_scope(&options.stop);
        let ChatPrompt { tokens, prefixes, parser, .. } = prompt;
        let sampling = wrinklefree::decode::SamplingParams {
            logprobs: options.logprobs,
            constraint,
            seed: options.sampling.seed.unwrap_or_else(random_seed),
            ..options.sampling.params(defaults)
        };
        let settings = match &hole {
            Some(hole) => hole.settings(options.settings.clone(), settings)?,
            None => options.settings.clone().or(settings.clone()),
        };
        let mut request = Request {
            tokens,
            max_tokens: options.max_tokens.unwrap_or(MAX_TOKENS),
            sampling,
            stop: options.stop.clone(),
            stop_scope,
            eos: defaults.eos.clone(),
            mode: settings.mode(&capabilities)?,
            context_shift: options.context_shift,
            watch: options.diffusing,
            stable_prefix: prefixes.stable,
            message_ends: prefixes.message_ends,
            ..Request::default()
        };
        if let Some(hole) = hole {
            let room = hole.shape(&mut request.mode, &mut request.eos, request.tokens.len());
            request.max_tokens = options.max_tokens.or(room).unwrap_or(MAX_TOKENS);
        }
        self.submit(request, parser)
    }

    /// Answers a conversation.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), or if the model has no chat template, a message has no known
    /// role, or the template refuses the conversation.
    pub fn chat(
        &self,
        messages: &[Message],
        options: &GenerateOptions,
    ) -> Result<Completion, Error> {
        self.chat_stream(messages, options)?.collect_all()
    }

    /// Answers a conversation, chunk by chunk.
    ///
    /// # Errors
    /// As [`chat`](Self::chat). Later errors are items of the stream.
    pub fn chat_stream(
        &self,
        messages: &[Message],
        options: &GenerateOptions,
    ) -> Result<Stream, Error> {
        let Served { template, tokenizer, name, recurrent, context, .. } = &self.shared.served;
        let template =
            template.as_ref().ok_or_else(|| Error::NoChatTemplate { model: name.clone() })?;
        if options.suffix.is_some() {
            return Err(Error::Suffix);
        }
        let (recurrent, context, date) = (*recurrent, Some(*context), Some(today()));
        let model = ChatModel { template, tokenizer, recurrent, context, date, reasoning: None };
        let conversation = Conversation {
            tools: options.tools.clone(),
            documents: options.documents.clone(),
            reasoning: options.reasoning.clone(),
            ..Conversation::new(messages)?
        };
        self.run(model.prompt(&conversation)?, None, options)
    }

    /// Computes the embedding of a text: the mean of its hidden states, `[hidden_size]`, of length 1.
    ///
    /// # Errors
    /// If the text is empty or too long.
    pub fn embed(&self, text: &str) -> Result<Vec<f32>, Error> {
        self.embed_with(text, Pooling::Mean)
    }

    /// Computes the embedding of a text, `[hidden_size]`, of length 1, with a choice of pooling.
    ///
    /// # Errors
    /// If the text is empty or too long.
    pub fn embed_with(&self, text: &str, pooling: Pooling) -> Result<Vec<f32>, Error> {
        self.read(self.tokenize(text)?, DecodeMode::Embed(pooling))
    }

    /// Computes the logits, `[vocab_size]`, of the token that follows `tokens`, for programs that
    /// sample themselves. The prefix cache keeps what was computed, so a call with one more token
    /// costs about one pass of one token.
    ///
    /// # Errors
    /// If there are no tokens, too many, or some outside the vocabulary.
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.read(tokens.to_vec(), DecodeMode::Logits)
    }

    /// Returns the token ids of a text, with the special tokens that begin one.
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>, Error> {
        Ok(self.shared.served.tokenizer.encode(text, true)?)
    }

    /// Returns the text of token ids.
    pub fn detokenize(&self, tokens: &[u32]) -> String {
        self.shared.served.tokenizer.decode(tokens)
    }

    /// Returns the number of sequences and the use of KV pages at this moment.
    ///
    /// # Errors
    /// If the engine's thread has ended.
    pub fn stats(&self) -> Result<EngineStats, Error> {
        let (reply, stats) = mpsc::channel();
        self.shared.send(Command::Stats(reply))?;
        stats.recv().map_err(|_| Error::Stopped)
    }

    /// Reads a prompt and returns the vector that the mode gives.
    fn read(&self, tokens: Vec<u32>, mode: DecodeMode) -> Result<Vec<f32>, Error> {
        let stream =
            self.submit(Request { tokens, mode, ..Request::default() }, OutputParser::default())?;
        let result = stream.events.iter().find_map(|event| match event {
            EventKind::Embedded(vector) | EventKind::Logits(vector) => Some(Ok(vector)),
            EventKind::Finished { reason: FinishReason::NotFinite, .. } => {
                Some(Err(Error::NotFinite))
            }
            _ => None,
        });
        result.unwrap_or(Err(Error::Stopped))
    }

    #[cfg(not(feature = "grammar"))]
    fn constraint(
        &self,
        options: &GenerateOptions,
        _: CallFormat,
    ) -> Result<Option<Box<dyn Constraint>>, Error> {
        match options.tools.needs_grammar() {
            Some(field) => Err(Error::NoGrammars(field)),
            None => Ok(None),
        }
    }

    /// Compiles the grammar of a request, whose calls have this format.
    #[cfg(feature = "grammar")]
    fn constraint(
        &self,
        options: &GenerateOptions,
        format: CallFormat,
    ) -> Result<Option<Box<dyn Constraint>>, Error> {
        let Some(tools) = options.tools.of_grammar(options.grammar.is_some()) else {
            return self.answer_constraint(options);
        };
        let tools = tools.with_parameters(without_annotations).map_err(Error::Grammar)?;
        let (grammars, mut failed) = (self.grammars()?, String::new());
        for answer in answers(options.grammar.as_ref(), options.best_effort) {
            let whole = answer.is_none();
            let compiled =
                call_grammar(&tools, format, answer).and_then(|grammar| grammars.compile(grammar));
            match compiled {
                // Schemas of tools are held as far as they can be, unless they are strict.
                Ok(compiled) if whole || compiled.warnings.is_empty() || options.best_effort => {
                    return Ok(Some(compiled.constraint));
                }
                Ok(compiled) => failed = compiled.warnings.join("; "),
                Err(error) => failed = error,
            }
        }
        Err(Error::Grammar(failed))
    }

    #[cfg(feature = "grammar")]
    fn grammars(&self) -> Result<&Grammars, Error> {
        let Served { tokenizer, vocab, defaults, grammars, .. } = &self.shared.served;
        let grammars = grammars.get_or_init(|| {
            Grammars::new(tokenizer, *vocab, &defaults.eos).map_err(|error| format!("{error:#}"))
        });
        grammars.as_ref().map_err(|error| Error::Grammar(error.clone()))
    }

    /// Compiles the grammar of an answer without calls.
    #[cfg(feature = "grammar")]
    fn answer_constraint(
        &self,
        options: &GenerateOptions,
    ) -> Result<Option<Box<dyn Constraint>>, Error> {
        let Some(grammar) = options.grammar.clone() else { return Ok(None) };
        let grammars = self.grammars()?;
        if let (Grammar::JsonSchema(schema), true) = (&grammar, options.best_effort) {
            let (compiled, _) = grammars.compile_best_effort(schema).map_err(Error::Grammar)?;
            return Ok(Some(compiled.constraint));
        }
        let compiled = grammars.compile(grammar).map_err(|error| {
            Error::Grammar(if error.starts_with(NOT_HELD) {
                format!("{error}; the option `best_effort` does that")
            } else {
                error
            })
        })?;
        // A part that is not enforced would break the promise of the option.
        if compiled.warnings.is_empty() {
            Ok(Some(compiled.constraint))
        } else {
            Err(Error::Grammar(compiled.warnings.join("; ")))
        }
    }

    /// Runs a request, whose output `parser` parses.
    fn submit(&self, request: Request, parser: OutputParser) -> Result<Stream, Error> {
        let (prompt_tokens, cancel) = (request.tokens.len(), CancelHandle::default());
        let tokenizer = Some(&*self.shared.served.tokenizer);
        let snapshots = request.watch.then(|| Snapshots::new(&request, parser.clone(), tokenizer));
        let ((events, receiver), (reply, replied)) = (mpsc::channel(), mpsc::channel());
        let client = Client { events, cancel: cancel.clone() };
        let submission = Submission { request, reply, client };
        self.shared.send(Command::Submit(Box::new(submission)))?;
        replied.recv().map_err(|_| Error::Stopped)??;
        let (pieces, _engine) = (OutputPieces::new(parser), self.clone());
        let (last, done) = (None, false);
        Ok(Stream {
            events: receiver,
            cancel,
            prompt_tokens,
            pieces,
            snapshots,
            last,
            done,
            _engine,
        })
    }
}

/// Returns a prompt of tokens alone, whose output has no reasoning.
fn plain(tokens: Vec<u32>, options: &GenerateOptions) -> Result<ChatPrompt, Error> {
    if options.reasoning != Reasoning::default() {
        return Err(Error::PlainReasoning);
    }
    if options.tools.any() || options.documents.is_some() {
        return Err(Error::PlainTools);
    }
    Ok(ChatPrompt { tokens, ..ChatPrompt::default() })
}
