//! Python values as those of the library.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString,
};
use serde::de::DeserializeOwned;
use wrinklefree_easy::fields::{self, FieldKind, explain_json_error, names_its_place, wrong_item};
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

/// A field and its value.
type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

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
    let unknown =
        |name: &str| format!("there is no option {name}: help(Engine.generate) lists them");
    read(options, "", unknown)
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

/// Reads a dictionary. Errors name the field whose value is wrong by itself, after `place`; `unknown` says
/// that a field does not exist.
fn read<T: DeserializeOwned>(
    fields: &Bound<'_, PyAny>,
    place: &str,
    unknown: impl Fn(&str) -> String,
) -> PyResult<T> {
    pythonize::depythonize(fields).map_err(|error| {
        let pairs = fields.cast::<PyMapping>().ok().and_then(|fields| fields.items().ok());
        let pairs = pairs.into_iter().flat_map(|pairs| pairs.extract::<Vec<Pair<'_>>>());
        let wrong = pairs.flatten().find_map(|(name, value)| {
            let name = name.to_string();
            let json = pythonize::depythonize(&value).ok();
            if let Some(why) = json.and_then(|json| wrong_item::<T>(&name, &json)) {
                return Some(PyValueError::new_err(format!("{place}{why}")));
            }
            let kind = wrong_field::<T>(&name, &value)?;
            Some(kind.map_or_else(
                || PyValueError::new_err(format!("{place}{}", unknown(&name))),
                |kind| wrong_value(&format!("{place}{name}"), &kind, &value),
            ))
        });
        wrong.unwrap_or_else(|| {
            PyValueError::new_err(format!("{place}{}", explain_json_error(error)))
        })
    })
}

/// Returns what a field takes if its value is wrong by itself, and `Some(None)` if there is no such field.
/// Other fields may be missing.
fn wrong_field<T: DeserializeOwned>(
    name: &str,
    value: &Bound<'_, PyAny>,
) -> Option<Option<FieldKind>> {
    let alone = PyDict::new(value.py());
    alone.set_item(name, value).ok()?;
    let error = pythonize::depythonize::<T>(&alone).err()?.to_string();
    let elsewhere = error.starts_with("missing field") || names_its_place(&error);
    (!elsewhere).then(|| FieldKind::of::<T>(name))
}

/// Reads the text of an argument.
pub fn text(argument: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    given.extract().map_err(|_| wrong_value(argument, &FieldKind::Text, given))
}

/// Returns the error of a value that a field or an argument does not take.
pub fn wrong_value(name: &str, kind: &FieldKind, value: &Bound<'_, PyAny>) -> PyErr {
    let expected = match kind {
        FieldKind::Boolean => "True or False".into(),
        FieldKind::Texts => "a text or texts".into(),
        FieldKind::Object => "a dictionary".into(),
        other => other.to_string(),
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
    if right_type { PyValueError::new_err(message) } else { PyTypeError::new_err(message) }
}

/// Reads a conversation: a sequence of dictionaries with `role` and `content`.
pub fn messages(messages: &Bound<'_, PyAny>) -> PyResult<Vec<Message>> {
    let expected = "with `role` and `content`";
    let list = (!messages.is_instance_of::<PyString>() && !messages.is_instance_of::<PyDict>())
        .then(|| messages.try_iter().ok())
        .flatten();
    let Some(list) = list else {
        let kind = messages.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "messages: expected a list of dictionaries {expected}, not {kind}"
        )));
    };
    let read = |(index, message): (usize, PyResult<Bound<'_, PyAny>>)| {
        let (place, message) = (format!("messages[{index}]"), message?);
        if message.cast::<PyMapping>().is_err() {
            return Err(PyTypeError::new_err(format!(
                "{place}: expected a dictionary {expected}, not {}",
                shown(&message)
            )));
        }
        let unknown = |name: &str| {
            format!(
                "there is no field {name}, only role, content, reasoning_content, tool_calls, \
                 tool_call_id and name"
            )
        };
        read(&message, &format!("{place}: "), unknown)
    };
    list.enumerate().map(read).collect()
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
