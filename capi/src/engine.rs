//! The engine: opening, tokens, embeddings, logits.

use crate::error::{Failure, c_string, run, wf_status};
use crate::memory::{self, Buffer};
use crate::options::{self, OpenFields};
use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;
use wrinklefree_easy::{Engine, Pooling};

/// A model that is ready to run, and the threads that compute. Opaque.
pub struct wf_engine {
    pub(crate) engine: Engine,
    name: CString,
    warnings: Vec<CString>,
}

/// Pooling of hidden states to an embedding.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum wf_pooling {
    /// The mean over all tokens.
    Mean = 0,
    /// The hidden state of the last token.
    Last = 1,
}

/// Returns an argument, or the error that it is NULL.
pub(crate) fn required<T>(name: &str, value: Option<T>) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::argument(format!("{name} is NULL")))
}

/// Opens a model and starts an engine. Writes NULL to `engine` on errors.
///
/// `model` is a file, a directory, or a hub id if the library was built with the feature `hub`; NULL
/// opens the model inside the library. `options` is a JSON object or NULL: {"threads": 4, "context":
/// 2048, "max_sequences": 4, "pinned": false, "draft_model": null, "draft_layout": null}. By default there
/// is a thread for each core, the context is the trained one (at most 4096), and 4 sequences run at a
/// time. "draft_model" names a drafter of the model, as `model` does a model: it drafts tokens, and the
/// text stays the same. "draft_layout" is "dflash" or "dspark", instead of what the drafter's files state.
///
/// # Safety
/// `model` and `options` are NULL or NUL-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_open(
    model: *const c_char,
    options: *const c_char,
    engine: Option<&mut MaybeUninit<*mut wf_engine>>,
) -> wf_status {
    run(|| {
        let place = required("engine", engine)?;
        place.write(ptr::null_mut());
        // SAFETY: the caller promises strings.
        let model = unsafe { memory::optional_text("model", model) }?;
        // SAFETY: as above.
        let options: OpenFields =
            options::parse(unsafe { memory::optional_text("options", options) }?)?;
        let builder = match model {
            Some(model) => Engine::builder(model),
            #[cfg(feature = "default-model")]
            None => Engine::builder_default(),
            #[cfg(not(feature = "default-model"))]
            None => return Err(Failure::argument("model is NULL, and this build has none inside")),
        };
        let engine = options.apply(builder).build()?;
        let name = c_string(engine.name().into());
        let warnings = engine.warnings().iter().cloned().map(c_string).collect();
        Ok(memory::hand_out(place, wf_engine { engine, name, warnings }))
    })
}

/// Frees an engine; NULL does nothing. Its threads end when its last request is freed too.
///
/// # Safety
/// `engine` comes from wf_open, was not freed before, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_engine_free(engine: *mut wf_engine) {
    // SAFETY: the caller promises that this is the last use.
    unsafe { memory::take_back(engine) };
}

/// Returns the name of the model. The string lives as long as the engine. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn wf_name(engine: Option<&wf_engine>) -> *const c_char {
    engine.map_or(ptr::null(), |engine| engine.name.as_ptr())
}

/// Returns a remark on the options, to print or log: for example a context longer than the trained one.
/// NULL after the last one. The string lives as long as the engine.
#[unsafe(no_mangle)]
pub extern "C" fn wf_warning(engine: Option<&wf_engine>, index: usize) -> *const c_char {
    let warning = engine.and_then(|engine| engine.warnings.get(index));
    warning.map_or(ptr::null(), |warning| warning.as_ptr())
}

/// Returns the maximum number of tokens in a sequence, prompt and output together; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn wf_context(engine: Option<&wf_engine>) -> usize {
    engine.map_or(0, |engine| engine.engine.context())
}

/// Returns the number of tokens in the vocabulary, which is the number of logits; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn wf_vocab_size(engine: Option<&wf_engine>) -> usize {
    engine.map_or(0, |engine| engine.engine.vocab_size())
}

/// Returns the number of values in an embedding; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn wf_embedding_size(engine: Option<&wf_engine>) -> usize {
    engine.map_or(0, |engine| engine.engine.hidden_size())
}

/// Writes the token ids of a text, with the special tokens that begin one, and their number to `count`.
/// If `capacity` is too small, only `count` is written: call it with 0 to learn the size.
///
/// # Safety
/// `text` is a NUL-terminated string, and `tokens` has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_tokenize(
    engine: Option<&wf_engine>,
    text: *const c_char,
    tokens: *mut u32,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> wf_status {
    run(|| {
        // SAFETY: the caller promises the string.
        let text = unsafe { memory::text("text", text) }?;
        let ids = required("engine", engine)?.engine.tokenize(text)?;
        // SAFETY: the caller promises the room.
        unsafe { Buffer::new(tokens, capacity, count) }.fill(&ids, ids.len())
    })
}

/// Writes the text of token ids, NUL-terminated, and its bytes without the NUL to `length`. If
/// `capacity` is too small for text and NUL, only `length` is written.
///
/// # Safety
/// `tokens` has `count` numbers, and `text` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_detokenize(
    engine: Option<&wf_engine>,
    tokens: *const u32,
    count: usize,
    text: *mut c_char,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> wf_status {
    run(|| {
        // SAFETY: the caller promises the numbers.
        let tokens = unsafe { memory::tokens(tokens, count) }?;
        let mut bytes = required("engine", engine)?.engine.detokenize(tokens).into_bytes();
        bytes.push(0);
        // SAFETY: the caller promises the room.
        unsafe { Buffer::new(text.cast::<u8>(), capacity, length) }.fill(&bytes, bytes.len() - 1)
    })
}

/// Writes the logits of the token that follows `tokens`, wf_vocab_size of them, for programs that sample
/// themselves. The engine keeps what it computed: a call with one more token costs about one pass of
/// one token.
///
/// # Safety
/// `tokens` has `count` numbers, and `logits` has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_logits(
    engine: Option<&wf_engine>,
    tokens: *const u32,
    count: usize,
    logits: *mut f32,
    capacity: usize,
) -> wf_status {
    run(|| {
        // SAFETY: the caller promises the numbers.
        let tokens = unsafe { memory::tokens(tokens, count) }?;
        let values = required("engine", engine)?.engine.logits(tokens)?;
        // SAFETY: the caller promises the room.
        unsafe { Buffer::new(logits, capacity, None) }.fill(&values, values.len())
    })
}

/// Writes the embedding of a text, wf_embedding_size values of length 1 together. `pooling` is a
/// wf_pooling.
///
/// # Safety
/// `text` is a NUL-terminated string, and `embedding` has room for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_embed(
    engine: Option<&wf_engine>,
    text: *const c_char,
    pooling: c_int,
    embedding: *mut f32,
    capacity: usize,
) -> wf_status {
    run(|| {
        // SAFETY: the caller promises the string.
        let text = unsafe { memory::text("text", text) }?;
        // A number, because C may pass any to an enumeration.
        let pooling = match pooling {
            0 => Pooling::Mean,
            1 => Pooling::Last,
            other => return Err(Failure::argument(format!("there is no pooling {other}"))),
        };
        let values = required("engine", engine)?.engine.embed_with(text, pooling)?;
        // SAFETY: the caller promises the room.
        unsafe { Buffer::new(embedding, capacity, None) }.fill(&values, values.len())
    })
}
