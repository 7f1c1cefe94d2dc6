//! The session: a loaded model and the requests in progress on it.

use crate::error::Error;
use crate::events::Requests;
use crate::model::{LoadedModel, SessionOptions};
use crate::request::{self, Request};
use crate::upload::Upload;
use serde_json::json;
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::decode::DecodeMode;
use wrinklefree::format::DrafterConfig;
use wrinklefree::settings::{Mode, Settings};

/// A loaded model and the requests in progress on it.
#[wasm_bindgen]
pub struct Session {
    loaded: LoadedModel,
    requests: Requests,
}

#[wasm_bindgen]
impl Session {
    /// Loads a model from its files, and the drafter whose files these are, if there are any. `options` is a
    /// JSON object, see [`SessionOptions`].
    pub fn open(files: Vec<Upload>, drafter: Vec<Upload>, options: &str) -> Result<Session, Error> {
        let options: SessionOptions = request::read(&serde_json::from_str(options)?)?;
        let [files, drafter] =
            [files, drafter].map(|files| files.into_iter().map(Upload::finish).collect());
        let loaded = LoadedModel::open(files, drafter, options)?;
        Ok(Self { loaded, requests: Requests::default() })
    }

    /// Returns a description of the model and the engine as JSON.
    pub fn info(&self) -> String {
        let LoadedModel { name, threads, isa, engine, template, dlm, bytes, flushed, .. } =
            &self.loaded;
        let LoadedModel { kv, kv_bytes, end_tokens, notes, .. } = &self.loaded;
        let (model, spec) = (engine.model(), engine.model().spec());
        let modes = self.modes();
        json!({
            "name": name,
            "architecture": spec.architecture,
            "parameters": model.parameters(),
            "layers": spec.layers,
            "hidden_size": spec.hidden_size,
            "vocab_size": spec.vocab_size,
            "context_length": spec.context_length,
            "context": engine.context(),
            "weights_bytes": bytes,
            "subnormal_weights": flushed,
            "end_tokens": end_tokens,
            "notes": notes,
            "kv_bytes": kv_bytes,
            "kv_types": { "keys": kv.keys.name(), "values": kv.values.name() },
            "attention": kv.selection.to_string(),
            "memory_bytes": memory_bytes(),
            "simd": isa,
            "threads": threads,
            "default_decode_mode": self.default_mode(),
            "decode_modes": modes,
            "chat": template.is_some(),
            "block_size": dlm.as_ref().map(|d| d.bd_size),
            "mask_token_id": dlm.as_ref().and_then(|d| d.mask_token_id),
            "drafter": model.drafter().map(DrafterConfig::describe),
        })
        .to_string()
    }

    /// Submits a request in JSON and returns its id.
    pub fn submit(&mut self, request: &str) -> Result<u32, Error> {
        let request = Request::parse(request)?;
        request.check_length(&self.loaded)?;
        let mut built = request.build(&self.loaded, now())?;
        let prompt = built.request.tokens.len();
        let seq = self.loaded.engine.submit(std::mem::take(&mut built.request))?;
        Ok(self.requests.add(seq, prompt, built))
    }

    /// Cancels a request. It has no effect on one that has ended.
    pub fn cancel(&mut self, id: u32) {
        if let Some(seq) = self.requests.find(id) {
            self.loaded.engine.cancel(seq);
        }
    }

    /// Runs one forward pass over all requests that are due and returns the events as JSON.
    pub fn step(&mut self) -> Result<String, Error> {
        let step = self.loaded.engine.step();
        let report = self.requests.collect(&mut self.loaded.engine, step);
        Ok(serde_json::to_string(&report)?)
    }

    /// Returns the token ids of a text; `special` adds the tokens that frame a text for this model.
    pub fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, Error> {
        Ok(self.loaded.tokenizer()?.encode(text, special)?)
    }

    /// Returns the token ids of a request's prompt, as [`Self::submit`] would read it.
    pub fn encode(&self, request: &str) -> Result<Vec<u32>, Error> {
        Request::parse(request)?.tokens(&self.loaded, now())
    }

    /// Returns the text of token ids.
    pub fn detokenize(&self, ids: &[u32]) -> Result<String, Error> {
        Ok(self.loaded.tokenizer()?.decode(ids))
    }

    /// Returns the names of the decode modes that the model supports.
    fn modes(&self) -> Vec<&'static str> {
        let can = |mode| Settings { decode_mode: Some(mode), ..Settings::default() };
        [Mode::Ar, Mode::Greedy, Mode::Iterative, Mode::Adaptive, Mode::Verify]
            .into_iter()
            .filter(|&mode| can(mode).mode(&self.loaded.capabilities()).is_ok())
            .map(Mode::name)
            .collect()
    }

    /// Returns the name of the mode that `auto` selects.
    fn default_mode(&self) -> &'static str {
        match Settings::default().mode(&self.loaded.capabilities()) {
            Ok(DecodeMode::Verify { .. }) => "verify",
            Ok(DecodeMode::Diffusion(_)) => "iterative",
            _ => "ar",
        }
    }
}

/// Returns the Unix time in seconds.
fn now() -> i64 {
    (js_sys::Date::now() / 1e3) as i64
}

/// Returns the bytes of wasm memory.
fn memory_bytes() -> f64 {
    use wasm_bindgen::JsCast;
    let memory: js_sys::WebAssembly::Memory = wasm_bindgen::memory().unchecked_into();
    js_sys::Reflect::get(&memory.buffer(), &"byteLength".into())
        .ok()
        .and_then(|length| length.as_f64())
        .unwrap_or(0.0)
}
