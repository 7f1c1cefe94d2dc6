//! Python values as those of the library.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};
use wrinklefree_easy::fields::{self, FieldKind};
use wrinklefree_easy::{Engine, Error, GenerateOptions, Message, Stream};

/// A prompt: text, or token ids.
pub enum Prompt {
    Text(String),
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

/// Reads a prompt.
pub fn prompt(given: &Bound<'_, PyAny>) -> PyResult<Prompt> {
    match given.cast::<PyString>() {
        Ok(text) => Ok(Prompt::Text(text.extract()?)),
        Err(_) => ids("prompt", "a text or token ids", given).map(Prompt::Tokens),
    }
}

/// Reads the token ids of an argument.
pub fn tokens(argument: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    ids(argument, "token ids", given)
}

fn ids(argument: &str, expected: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let refused = || {
        let kind = given.get_type().name().map_or_else(|_| "this".into(), |name| name.to_string());
        PyTypeError::new_err(format!("{argument}: expected {expected}, not {kind}"))
    };
    // Bytes and texts are sequences too, and sets have no order.
    if given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyByteArray>()
        || given.is_instance_of::<PyDict>()
        || is_set(given)?
    {
        return Err(refused());
    }
    let items = given.try_iter().map_err(|_| refused())?;
    items.enumerate().map(|(index, item)| id(&item?, || format!("{argument}[{index}]"))).collect()
}

/// Returns true for sets and views of dictionaries.
fn is_set(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    if given.is_instance_of::<PyList>() {
        return Ok(false);
    }
    given.is_instance(&given.py().import("collections.abc")?.getattr("Set")?)
}

/// Reads the token id at a place.
fn id(given: &Bound<'_, PyAny>, place: impl FnOnce() -> String) -> PyResult<u32> {
    match given.extract::<u32>() {
        Ok(id) if !given.is_instance_of::<PyBool>() => Ok(id),
        _ => {
            let message = format!("{}: {} is not a token id", place(), shown(given));
            let number = given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>();
            Err(if number { PyValueError::new_err(message) } else { PyTypeError::new_err(message) })
        }
    }
}

/// Returns the representation of a value in an error.
fn shown(value: &Bound<'_, PyAny>) -> String {
    value.repr().map_or_else(|_| "a value".into(), |text| fields::shown(&text.to_string()))
}

/// Reads the options of a request. Besides the forms of JSON, `stop` may be one text, and
/// `logit_bias` may be a dictionary.
pub fn options(options: Option<&Bound<'_, PyDict>>) -> PyResult<GenerateOptions> {
    let Some(options) = options else { return Ok(GenerateOptions::default()) };
    for name in ["stop", "logit_bias"] {
        let Some(value) = options.get_item(name)? else { continue };
        if value.is_none() {
            options.del_item(name)?;
        } else if value.is_instance_of::<PyString>() && name == "stop" {
            options.set_item(name, PyList::new(options.py(), [value])?)?;
        } else if let Ok(biases) = value.cast::<PyDict>() {
            let pairs = biases.iter().map(|(token, bias)| pair(&token, &bias));
            options.set_item(name, pairs.collect::<PyResult<Vec<_>>>()?)?;
        }
    }
    read(options).map_err(|error| {
        options.iter().find_map(|(name, value)| wrong_option(&name, &value)).unwrap_or(error)
    })
}

/// Reads a pair of `logit_bias`. JSON has the ids of tokens as texts.
fn pair(token: &Bound<'_, PyAny>, bias: &Bound<'_, PyAny>) -> PyResult<(u32, f32)> {
    let text = token.extract::<String>().ok().and_then(|text| text.parse().ok());
    let token = text.map_or_else(|| id(token, || "logit_bias".into()), Ok)?;
    let bias = bias.extract().map_err(|_| {
        let message =
            format!("logit_bias: expected a number for token {token}, not {}", shown(bias));
        PyTypeError::new_err(message)
    })?;
    Ok((token, bias))
}

fn read(options: &Bound<'_, PyDict>) -> PyResult<GenerateOptions> {
    let read = pythonize::depythonize(options);
    read.map_err(|error| invalid(options.py(), "options", &error.into()))
}

/// Returns an error that says what an option takes, if its value is wrong by itself.
fn wrong_option(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Option<PyErr> {
    let alone = PyDict::new(name.py());
    alone.set_item(name, value).ok()?;
    let failed = read(&alone).err()?;
    let error = failed.value(name.py()).to_string();
    if fields::names_its_place(error.trim_start_matches("options: ")) {
        return None;
    }
    let Some(kind) = FieldKind::of::<GenerateOptions>(&name.to_string()) else {
        let message = format!("there is no option {name}: help(Engine.generate) lists them");
        return Some(PyValueError::new_err(message));
    };
    let expected = match kind {
        FieldKind::Boolean => "True or False".into(),
        FieldKind::Texts => "a text or texts".into(),
        FieldKind::Object => "a dictionary".into(),
        ref other => other.to_string(),
    };
    let message = format!("{name}: expected {expected}, not {}", shown(value));
    let number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    let right_type = match kind {
        FieldKind::Number | FieldKind::WholeNumber { .. } => {
            number && !value.is_instance_of::<PyBool>()
        }
        FieldKind::OneOf(_) => value.is_instance_of::<PyString>(),
        _ => false,
    };
    Some(if right_type { PyValueError::new_err(message) } else { PyTypeError::new_err(message) })
}

/// Reads a conversation: a sequence of dictionaries with `role` and `content`.
pub fn messages(messages: &Bound<'_, PyAny>) -> PyResult<Vec<Message>> {
    let py = messages.py();
    if messages.is_instance_of::<PyString>() || messages.is_instance_of::<PyDict>() {
        let kind = messages.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "messages: expected a list of dictionaries with `role` and `content`, not {kind}"
        )));
    }
    let read = |(index, message): (usize, PyResult<Bound<'_, PyAny>>)| {
        let place = format!("messages[{index}]");
        pythonize::depythonize(&message?).map_err(|error| invalid(py, &place, &error.into()))
    };
    messages.try_iter()?.enumerate().map(read).collect()
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
