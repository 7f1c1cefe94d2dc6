//! Opens a model.

use crate::convert::{choice, wrong_value};
use crate::engine::Engine;
use crate::wait::interruptible;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::ffi::CString;
use std::path::PathBuf;
use wrinklefree_easy::fields::FieldKind;
use wrinklefree_easy::models::{ActivationBits, LayoutChoice, Logits, OpenOptions};
use wrinklefree_easy::wrinklefree::format::DraftLayout;
use wrinklefree_easy::{Engine as EasyEngine, EngineBuilder, KvType};

/// Opens a model and starts its engine: a file, a directory, a hub id, or the small model inside the
/// library. `draft_model` is a drafter that was trained for the model; the text stays the same with it.
#[pyfunction]
#[pyo3(signature = (
    model = None, *, revision = "main", threads = None, pinned = false, context = None,
    max_sequences = None, kv_dtype = "bf16", logits = "exact", activations = "auto",
    layout = "auto", allow_control_tokens = false, draft_model = None, draft_layout = None,
))]
#[allow(clippy::too_many_arguments, reason = "keywords of one call in Python")]
pub fn load(
    py: Python<'_>,
    model: Option<PathBuf>,
    revision: &str,
    threads: Option<&Bound<'_, PyAny>>,
    pinned: bool,
    context: Option<&Bound<'_, PyAny>>,
    max_sequences: Option<&Bound<'_, PyAny>>,
    kv_dtype: &str,
    logits: &str,
    activations: &str,
    layout: &str,
    allow_control_tokens: bool,
    draft_model: Option<PathBuf>,
    draft_layout: Option<&str>,
) -> PyResult<Engine> {
    let options = OpenOptions {
        revision: revision.into(),
        logits: choice("logits", logits, Logits::ALL, Logits::name)?,
        activations: choice("activations", activations, ActivationBits::ALL, ActivationBits::name)?,
        layout: choice("layout", layout, LayoutChoice::ALL, LayoutChoice::name)?,
        allow_control_tokens,
        ..OpenOptions::default()
    };
    let draft_layout = draft_layout
        .map(|name| choice("draft_layout", name, &DraftLayout::ALL, DraftLayout::name))
        .transpose()?;
    let kv_dtype = choice("kv_dtype", kv_dtype, &KvType::ALL, KvType::name)?;
    let mut builder = match model {
        Some(model) => EasyEngine::builder(model),
        None => EasyEngine::builder_default(),
    };
    builder = builder.open_options(options).pinned(pinned).kv_dtype(kv_dtype);
    if let Some(drafter) = draft_model {
        builder = builder.draft_model(drafter);
    }
    if let Some(layout) = draft_layout {
        builder = builder.draft_layout(layout);
    }
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
    given: Option<&Bound<'_, PyAny>>,
    set: impl FnOnce(EngineBuilder, usize) -> EngineBuilder,
) -> PyResult<EngineBuilder> {
    let Some(given) = given else { return Ok(builder) };
    match given.extract::<usize>() {
        Ok(number) if number > 0 && !given.is_instance_of::<PyBool>() => Ok(set(builder, number)),
        _ => Err(wrong_value(name, &FieldKind::WholeNumber { least: 1, most: None }, given)),
    }
}
