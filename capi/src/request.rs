//! Requests: submitting them, polling their events, cancelling them.

use crate::engine::{required, wf_engine};
use crate::error::{Failure, c_string, run, wf_status};
use crate::memory;
use crate::options;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wrinklefree_easy::wrinklefree::chat::Snapshot;
use wrinklefree_easy::{
    CancelHandle, Chunk, Engine, FinishReason, GenerateOptions, Stream, ToolCallChunk,
};

/// A running request. Opaque.
pub struct wf_request {
    output: Mutex<Output>,
    cancel: CancelHandle,
}

/// The output of a request, and the memory of its latest event.
struct Output {
    stream: Stream,
    text: CString,
    reasoning: CString,
    top: Vec<wf_logprob>,
    calls: Calls,
    /// True once a call has begun.
    called: bool,
}

/// The parts of calls of an event, and the texts that they point to.
#[derive(Default)]
struct Calls {
    #[expect(dead_code, reason = "keeps the texts that `parts` points to")]
    texts: Vec<[Option<CString>; 3]>,
    parts: Vec<wf_tool_call>,
}

// SAFETY: the pointers in `parts` are to `texts`, which are neither changed nor freed while `parts` has them.
unsafe impl Send for Calls {}

/// The kind of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wf_event_kind {
    /// A token is final.
    Token = 0,
    /// The output is complete; no event follows.
    End = 1,
    /// With the option diffusing: text and reasoning are all of the output so far, and replace what the
    /// event of this kind before it had. The last one comes before the end and equals the output.
    Snapshot = 2,
}

/// The reason why an output ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wf_finish_reason {
    /// It has not ended.
    None = 0,
    /// An end-of-text token, or the grammar allows nothing more.
    Stop = 1,
    /// A stop string.
    StopString = 2,
    /// max_tokens is reached, or the context is full.
    Length = 3,
    /// wf_cancel was called.
    Cancelled = 4,
    /// As Stop or StopString, after calls of tools, whose results the model waits for.
    ToolCalls = 5,
}

/// A token and its log-probability.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wf_logprob {
    /// Id of the token.
    pub token: u32,
    /// Natural logarithm of its probability under the model's own distribution.
    pub logprob: f32,
}

/// A part of a call of a tool. Its texts are UTF-8 and NUL-terminated; a NUL of the model's output
/// becomes U+FFFD.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wf_tool_call {
    /// Number of the call in the output, from 0.
    pub index: usize,
    /// Id of the call in its first part, else NULL.
    pub id: *const c_char,
    /// Name of the function in the first part, else NULL.
    pub name: *const c_char,
    /// More of the arguments, which are JSON.
    pub arguments: *const c_char,
}

/// An event of a request. Its pointers live until the next wf_poll or wf_request_free of the request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wf_event {
    /// The kind.
    pub kind: wf_event_kind,
    /// Text of the answer that can be shown now: UTF-8, NUL-terminated, perhaps empty. A NUL of the
    /// model's output becomes U+FFFD.
    pub text: *const c_char,
    /// Bytes of the text, without the NUL.
    pub text_length: usize,
    /// Reasoning before the answer that can be shown now, in the same form. Only conversations have any.
    pub reasoning: *const c_char,
    /// Bytes of the reasoning, without the NUL.
    pub reasoning_length: usize,
    /// Parts of calls of tools. Only conversations with the option tools have any.
    pub tool_calls: *const wf_tool_call,
    /// Number of items in `tool_calls`.
    pub tool_call_count: usize,
    /// Token: the id and its log-probability, which is NaN unless the option logprobs is set.
    pub token: wf_logprob,
    /// Token: the most likely tokens, best first, if the option logprobs asks for some.
    pub top: *const wf_logprob,
    /// Number of items in `top`.
    pub top_count: usize,
    /// End: the reason.
    pub reason: wf_finish_reason,
    /// End: number of tokens in the prompt.
    pub prompt_tokens: usize,
    /// End: number of prompt tokens that earlier requests had computed.
    pub cached_tokens: usize,
    /// End: number of forward passes that the request took part in.
    pub passes: usize,
}

/// Starts a request.
fn submit(
    engine: Option<&wf_engine>,
    options: Option<&str>,
    request: Option<&mut MaybeUninit<*mut wf_request>>,
    start: impl FnOnce(&Engine, &GenerateOptions) -> Result<Stream, Failure>,
) -> Result<wf_status, Failure> {
    let place = required("request", request)?;
    place.write(ptr::null_mut());
    let options = options::parse::<GenerateOptions>(options)?;
    let stream = start(&required("engine", engine)?.engine, &options)?;
    let cancel = stream.cancel_handle();
    let (text, reasoning) = (CString::default(), CString::default());
    let (top, calls) = (Vec::new(), Calls::default());
    let output = Mutex::new(Output { stream, text, reasoning, top, calls, called: false });
    Ok(memory::hand_out(place, wf_request { output, cancel }))
}

/// Continues a prompt, as it is. Writes NULL to `request` on errors.
///
/// `options` is a JSON object or NULL. Its fields have the names of the server's and the npm package's:
/// max_tokens (256), temperature, top_k, top_p, min_p, seed, repetition_penalty, frequency_penalty,
/// presence_penalty, logit_bias (pairs of id and bias), stop (texts), logprobs (number of most likely
/// tokens), suffix (text after the output, which fills the hole), one of json_schema, regex and grammar
/// (Lark), best_effort (leaves out what no grammar can hold of a schema), and the decode settings, for
/// example {"decode_mode": "verify"}. The library's own are context_shift (number of first tokens that stay
/// when the context is full) and diffusing (events with the whole output so far after each pass, in which
/// U+2591 stands for a token that block diffusion has not decided). An unknown field is an error.
///
/// # Safety
/// `prompt` is a NUL-terminated string, and `options` is one or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_submit(
    engine: Option<&wf_engine>,
    prompt: *const c_char,
    options: *const c_char,
    request: Option<&mut MaybeUninit<*mut wf_request>>,
) -> wf_status {
    run(|| {
        // SAFETY: the caller promises strings.
        let (prompt, options) = unsafe {
            (memory::text("prompt", prompt)?, memory::optional_text("options", options)?)
        };
        submit(engine, options, request, |engine, options| Ok(engine.stream(prompt, options)?))
    })
}

/// Continues token ids. The rest is as for wf_submit.
///
/// # Safety
/// `tokens` has `count` numbers, and `options` is a NUL-terminated string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_submit_tokens(
    engine: Option<&wf_engine>,
    tokens: *const u32,
    count: usize,
    options: *const c_char,
    request: Option<&mut MaybeUninit<*mut wf_request>>,
) -> wf_status {
    run(|| {
        // SAFETY: the caller promises the numbers and the string.
        let (tokens, options) =
            unsafe { (memory::tokens(tokens, count)?, memory::optional_text("options", options)?) };
        submit(engine, options, request, |engine, options| {
            Ok(engine.stream_tokens(tokens.to_vec(), options)?)
        })
    })
}

/// Answers a conversation with the model's chat template. `messages` is a JSON array:
/// `[{"role": "user", "content": "Hello!"}]`. The options also have enable_thinking, thinking_budget
/// (tokens), reasoning_effort, preserve_thinking, chat_template_kwargs, and in the form of OpenAI's API
/// tools, tool_choice, parallel_tool_calls and documents. A message may have reasoning_content, tool_calls
/// and tool_call_id. The rest is as for wf_submit.
///
/// # Safety
/// `messages` is a NUL-terminated string, and `options` is one or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_submit_chat(
    engine: Option<&wf_engine>,
    messages: *const c_char,
    options: *const c_char,
    request: Option<&mut MaybeUninit<*mut wf_request>>,
) -> wf_status {
    run(|| {
        // SAFETY: the caller promises strings.
        let (messages, options) = unsafe {
            (memory::text("messages", messages)?, memory::optional_text("options", options)?)
        };
        submit(engine, options, request, |engine, options| {
            Ok(engine.chat_stream(&options::messages(messages)?, options)?)
        })
    })
}

/// Waits for the next event of a request, at most `timeout_ms` milliseconds: 0 returns at once, a
/// negative number waits as long as it takes. Writes `event` if the status is OK.
#[unsafe(no_mangle)]
pub extern "C" fn wf_poll(
    request: Option<&wf_request>,
    timeout_ms: i64,
    event: Option<&mut MaybeUninit<wf_event>>,
) -> wf_status {
    run(|| {
        let (request, place) = (required("request", request)?, required("event", event)?);
        let mut output = request.output.lock().unwrap_or_else(PoisonError::into_inner);
        if output.stream.is_finished() {
            return Ok(wf_status::Finished);
        }
        let chunk = match u64::try_from(timeout_ms) {
            Ok(timeout) => output.stream.next_timeout(Duration::from_millis(timeout)),
            Err(_) => output.stream.next(),
        };
        match chunk {
            Some(chunk) => place.write(output.event(chunk?)),
            None => return Ok(wf_status::NoEvent),
        };
        Ok(wf_status::Ok)
    })
}

/// Cancels a request from any thread, before its next forward pass; NULL does nothing. Events that are
/// there already and an end event follow.
#[unsafe(no_mangle)]
pub extern "C" fn wf_cancel(request: Option<&wf_request>) {
    if let Some(request) = request {
        request.cancel.cancel();
    }
}

/// Frees a request, and cancels it if it has not ended; NULL does nothing.
///
/// # Safety
/// `request` comes from a submit function, was not freed before, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wf_request_free(request: *mut wf_request) {
    // SAFETY: the caller promises that this is the last use.
    unsafe { memory::take_back(request) };
}

impl Calls {
    fn new(chunks: Vec<ToolCallChunk>) -> Self {
        let indices: Vec<usize> = chunks.iter().map(|chunk| chunk.index).collect();
        let texts = |chunk: ToolCallChunk| {
            [chunk.id, chunk.name, Some(chunk.arguments)].map(|text| text.map(c_string))
        };
        let texts: Vec<_> = chunks.into_iter().map(texts).collect();
        let place =
            |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let part = |(index, [id, name, arguments]): (usize, &[Option<CString>; 3])| wf_tool_call {
            index,
            id: place(id),
            name: place(name),
            arguments: place(arguments),
        };
        let parts = indices.into_iter().zip(&texts).map(part).collect();
        Self { texts, parts }
    }
}

impl Output {
    /// Keeps the memory of an event and returns the event.
    fn event(&mut self, chunk: Chunk) -> wf_event {
        let kind = match (&chunk.snapshot, &chunk.finished) {
            (Some(_), _) => wf_event_kind::Snapshot,
            (None, Some(_)) => wf_event_kind::End,
            (None, None) => wf_event_kind::Token,
        };
        let new = Snapshot { text: chunk.text, reasoning: chunk.reasoning };
        let Snapshot { text, reasoning } = chunk.snapshot.unwrap_or(new);
        (self.text, self.reasoning) = (c_string(text), c_string(reasoning));
        self.called |= !chunk.tool_calls.is_empty();
        self.calls = Calls::new(chunk.tool_calls);
        let token = match chunk.token {
            Some(sampled) => {
                let pair = |(token, logprob)| wf_logprob { token, logprob };
                self.top = sampled.top.into_iter().map(pair).collect();
                pair((sampled.token, sampled.logprob.unwrap_or(f32::NAN)))
            }
            None => {
                self.top.clear();
                wf_logprob { token: 0, logprob: f32::NAN }
            }
        };
        let end = chunk.finished;
        wf_event {
            kind,
            text: self.text.as_ptr(),
            text_length: self.text.count_bytes(),
            reasoning: self.reasoning.as_ptr(),
            reasoning_length: self.reasoning.count_bytes(),
            tool_calls: self.calls.parts.as_ptr(),
            tool_call_count: self.calls.parts.len(),
            token,
            top: self.top.as_ptr(),
            top_count: self.top.len(),
            reason: end.map_or(wf_finish_reason::None, |end| reason(end.reason, self.called)),
            prompt_tokens: end.map_or(0, |end| end.prompt_tokens),
            cached_tokens: end.map_or(0, |end| end.cached_tokens),
            passes: end.map_or(0, |end| end.passes),
        }
    }
}

fn reason(reason: FinishReason, called: bool) -> wf_finish_reason {
    match reason {
        FinishReason::Stop | FinishReason::StopString(_) if called => wf_finish_reason::ToolCalls,
        // A grammar that is too complex and a number that is not finite are errors before.
        FinishReason::Stop | FinishReason::Constraint | FinishReason::NotFinite => {
            wf_finish_reason::Stop
        }
        FinishReason::StopString(_) => wf_finish_reason::StopString,
        FinishReason::Length => wf_finish_reason::Length,
        FinishReason::Cancelled => wf_finish_reason::Cancelled,
    }
}
