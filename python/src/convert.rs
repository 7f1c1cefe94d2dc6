//! Python values as those of the library.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use wrinklefree_easy::{Engine, Error, GenerateOptions, Message, Stream};

/// A prompt: text, or token ids.
#[derive(FromPyObject)]
pub enum Prompt {
    #[pyo3(transparent, annotation = "str")]
    Text(String),
    #[pyo3(transparent, annotation = "Sequence[int]")]
    Tokens(Vec<u32>),
}

impl Prompt {
    /// Starts a request.
    pub fn stream(self, engine: &Engine, options: &GenerateOptions) -> Result<Stream, Error> {
        match self {
            Self::Text(text) => engine.stream(&text, options),
            Self::Tokens(tokens) => engine.stream_tokens(tokens, options),
        }
    }
}

/// Reads the options of a request. Besides the forms of JSON, `stop` may be one text, and
/// `logit_bias` may be a dictionary.
pub fn options(options: Option<&Bound<'_, PyDict>>) -> PyResult<GenerateOptions> {
    let Some(options) = options else { return Ok(GenerateOptions::default()) };
    for name in ["stop", "logit_bias", "seed"] {
        let Some(value) = options.get_item(name)? else { continue };
        if value.is_none() {
            options.del_item(name)?;
        } else if value.is_instance_of::<PyString>() && name == "stop" {
            options.set_item(name, PyList::new(options.py(), [value])?)?;
        } else if let Ok(biases) = value.cast::<PyDict>() {
            options.set_item(name, biases.items())?;
        }
    }
    let read = pythonize::depythonize(options);
    read.map_err(|error| invalid(options.py(), "options", &error.into()))
}

/// Reads a conversation: a sequence of dictionaries with `role` and `content`.
pub fn messages(messages: &Bound<'_, PyAny>) -> PyResult<Vec<Message>> {
    let read = pythonize::depythonize(messages);
    read.map_err(|error| invalid(messages.py(), "messages", &error.into()))
}

/// Returns an error of the same kind, which names the argument.
fn invalid(py: Python<'_>, argument: &str, error: &PyErr) -> PyErr {
    let message = format!("{argument}: {}", error.value(py));
    match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(message),
        false => PyValueError::new_err(message),
    }
}

/// Returns the value of this name.
pub fn choice<T: Copy>(
    argument: &str,
    given: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> PyResult<T> {
    let found = all.iter().copied().find(|&value| name(value) == given);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|&value| name(value)).collect();
        PyValueError::new_err(format!("{argument}: {given:?} is none of {}", names.join(", ")))
    })
}
