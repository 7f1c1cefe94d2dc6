//! Opens a model.

use crate::convert::choice;
use crate::engine::Engine;
use crate::wait::interruptible;
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;
use std::ffi::CString;
use std::path::PathBuf;
use wrinklefree_easy::models::{ActivationBits, LayoutChoice, Logits, OpenOptions};
use wrinklefree_easy::{Engine as EasyEngine, EngineBuilder, KvType};

/// Opens a model and starts its engine: a file, a directory, a hub id, or the small model inside the
/// library.
#[pyfunction]
#[pyo3(signature = (
    model = None, *, revision = "main", threads = None, pinned = false, context = None,
    max_sequences = None, kv_dtype = "bf16", logits = "exact", activations = "auto",
    layout = "auto", allow_control_tokens = false,
))]
#[allow(clippy::too_many_arguments, reason = "keywords of one call in Python")]
pub fn load(
    py: Python<'_>,
    model: Option<PathBuf>,
    revision: &str,
    threads: Option<i64>,
    pinned: bool,
    context: Option<i64>,
    max_sequences: Option<i64>,
    kv_dtype: &str,
    logits: &str,
    activations: &str,
    layout: &str,
    allow_control_tokens: bool,
) -> PyResult<Engine> {
    let options = OpenOptions {
        revision: revision.into(),
        logits: choice("logits", logits, Logits::ALL, Logits::name)?,
        activations: choice("activations", activations, ActivationBits::ALL, ActivationBits::name)?,
        layout: choice("layout", layout, LayoutChoice::ALL, LayoutChoice::name)?,
        allow_control_tokens,
        ..OpenOptions::default()
    };
    let kv_dtype = choice("kv_dtype", kv_dtype, &KvType::ALL, KvType::name)?;
    let mut builder = match model {
        Some(model) => EasyEngine::builder(model),
        None => EasyEngine::builder_default(),
    };
    builder = builder.open_options(options).pinned(pinned).kv_dtype(kv_dtype);
    builder = number("threads", builder, threads, EngineBuilder::threads)?;
    builder = number("context", builder, context, EngineBuilder::context)?;
    builder = number("max_sequences", builder, max_sequences, EngineBuilder::max_sequences)?;
    let engine = interruptible(py, move || builder.build())?;
    for warning in engine.warnings() {
        // NUL ends a text of C.
        let text = CString::new(warning.replace('\0', "")).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)?;
    }
    Ok(Engine::new(engine))
}

/// Sets a number of the builder, which must be at least 1.
fn number(
    name: &str,
    builder: EngineBuilder,
    given: Option<i64>,
    set: impl FnOnce(EngineBuilder, usize) -> EngineBuilder,
) -> PyResult<EngineBuilder> {
    let Some(number) = given else { return Ok(builder) };
    match usize::try_from(number) {
        Ok(number) if number > 0 => Ok(set(builder, number)),
        _ => Err(PyValueError::new_err(format!("{name} must be at least 1, but is {number}"))),
    }
}
