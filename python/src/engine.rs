//! The engine's class.

use crate::convert;
use crate::errors::{RequestError, raised};
use crate::floats;
use crate::output::Completion;
use crate::process::ProcessOwned;
use crate::stream::{self, Stream};
use crate::wait::interruptible;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use wrinklefree_easy::{self as easy, Error, GenerateOptions, Pooling};

/// Runs requests on one model. Threads share it; their requests run in one batch.
#[pyclass(frozen, module = "wrinklefree")]
pub struct Engine {
    engine: ProcessOwned<easy::Engine>,
}

impl Engine {
    pub fn new(engine: easy::Engine) -> Self {
        Self { engine: ProcessOwned::new(engine) }
    }

    /// Starts a request without the GIL: grammars take their time.
    fn start(
        &self,
        py: Python<'_>,
        options: Option<&Bound<'_, PyDict>>,
        start: impl FnOnce(&easy::Engine, &GenerateOptions) -> Result<easy::Stream, Error> + Send,
    ) -> PyResult<easy::Stream> {
        let (engine, options) = (self.engine.get()?, convert::options(options)?);
        py.detach(|| start(engine, &options)).map_err(|error| raised(&error))
    }
}

#[pymethods]
impl Engine {
    /// Continues a prompt (text or token ids), as it is, to its end.
    #[doc = include_str!("options.txt")]
    #[pyo3(signature = (prompt, **options))]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Completion> {
        let prompt = convert::prompt(prompt)?;
        stream::collect(py, self.start(py, options, |e, o| prompt.stream(e, o))?)
    }

    /// Continues a prompt (text or token ids), as it is, chunk by chunk.
    #[doc = include_str!("options.txt")]
    #[pyo3(signature = (prompt, **options))]
    fn stream(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Stream> {
        let prompt = convert::prompt(prompt)?;
        Ok(Stream::new(self.start(py, options, |e, o| prompt.stream(e, o))?))
    }

    /// Answers a conversation: dictionaries with `role` and `content`, and for earlier calls `tool_calls` and
    /// `tool_call_id`. `reasoning` of the result is what the model thought before its answer, `tool_calls`
    /// are its calls.
    #[doc = include_str!("options.txt")]
    #[pyo3(signature = (messages, **options))]
    fn chat(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Completion> {
        let messages = convert::messages(messages)?;
        stream::collect(py, self.start(py, options, |e, o| e.chat_stream(&messages, o))?)
    }

    /// Answers a conversation, chunk by chunk.
    #[doc = include_str!("options.txt")]
    #[pyo3(signature = (messages, **options))]
    fn chat_stream(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Stream> {
        let messages = convert::messages(messages)?;
        Ok(Stream::new(self.start(py, options, |e, o| e.chat_stream(&messages, o))?))
    }

    /// Computes the embedding of a text, of length 1: a float32 array of `hidden_size` values.
    /// `pooling` is `mean` or `last`.
    #[pyo3(signature = (text, *, pooling = "mean"))]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyAny>,
        pooling: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let text = convert::text("text", text)?;
        let all = [Pooling::Mean, Pooling::Last];
        let name = |pooling| if pooling == Pooling::Mean { "mean" } else { "last" };
        let pooling = convert::choice("pooling", pooling, &all, name)?;
        let engine = self.engine.get()?.clone();
        floats::array(py, interruptible(py, move || engine.embed_with(&text, pooling))?)
    }

    /// Computes the logits of the token that follows `tokens`: a float32 array of `vocab_size`
    /// values, which is the engine's own memory and may be changed. A call with one more token than
    /// the last one costs about one pass of one token.
    fn logits<'py>(
        &self,
        py: Python<'py>,
        tokens: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tokens = convert::tokens("tokens", tokens)?;
        let engine = self.engine.get()?.clone();
        floats::array(py, interruptible(py, move || engine.logits(&tokens))?)
    }

    /// Returns the token ids of a text, with the special tokens that begin one.
    fn tokenize(&self, py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let (engine, text) = (self.engine.get()?, convert::text("text", text)?);
        py.detach(|| engine.tokenize(&text)).map_err(|error| raised(&error))
    }

    /// Returns the text of token ids.
    fn detokenize(&self, py: Python<'_>, tokens: &Bound<'_, PyAny>) -> PyResult<String> {
        let (engine, tokens) = (self.engine.get()?, convert::tokens("tokens", tokens)?);
        let vocab = engine.vocab_size();
        if let Some(&id) = tokens.iter().find(|&&token| token as usize >= vocab) {
            let message = format!("tokens: {id} is outside the vocabulary of {vocab} tokens");
            return Err(RequestError::new_err(message));
        }
        Ok(py.detach(|| engine.detokenize(&tokens)))
    }

    /// Returns the number of sequences and the use of KV pages at this moment.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.engine.get()?;
        let stats = py.detach(|| engine.stats()).map_err(|error| raised(&error))?;
        let dict = PyDict::new(py);
        dict.set_item("running", stats.running)?;
        dict.set_item("waiting", stats.waiting)?;
        dict.set_item("free_pages", stats.free_pages)?;
        dict.set_item("idle_pages", stats.idle_pages)?;
        dict.set_item("kv_pages", stats.kv_pages)?;
        dict.set_item("preempted", stats.preempted)?;
        Ok(dict)
    }

    /// Name of the model.
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(self.engine.get()?.name())
    }

    /// Number of tokens in the vocabulary, which is the number of logits.
    #[getter]
    fn vocab_size(&self) -> PyResult<usize> {
        Ok(self.engine.get()?.vocab_size())
    }

    /// Number of values in an embedding.
    #[getter]
    fn hidden_size(&self) -> PyResult<usize> {
        Ok(self.engine.get()?.hidden_size())
    }

    /// Maximum number of positions (tokens) in a sequence.
    #[getter]
    fn context(&self) -> PyResult<usize> {
        Ok(self.engine.get()?.context())
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<wrinklefree.Engine of {}>", self.name()?))
    }
}
