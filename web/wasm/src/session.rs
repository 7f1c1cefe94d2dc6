//! A loaded model and the requests that run on it.

use crate::error::Error;
use crate::events::Requests;
use crate::model::{Loaded, Options};
use crate::request::{self, Request};
use crate::upload::Upload;
use serde_json::json;
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::decode::DecodeMode;
use wrinklefree::settings::{Mode, Settings};

/// A loaded model and the requests that run on it.
#[wasm_bindgen]
pub struct Session {
    loaded: Loaded,
    requests: Requests,
}

#[wasm_bindgen]
impl Session {
    /// Takes the files of a model. `options`: JSON, see [`Options`].
    pub fn open(files: Vec<Upload>, options: &str) -> Result<Session, Error> {
        let options: Options = serde_json::from_str(options)?;
        let files = files.into_iter().map(Upload::finish).collect();
        Ok(Self { loaded: Loaded::open(files, options)?, requests: Requests::default() })
    }

    /// What runs, as JSON.
    pub fn info(&self) -> String {
        let Loaded { name, threads, isa, engine, template, dlm, bytes, kv, kv_bytes, .. } =
            &self.loaded;
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
        })
        .to_string()
    }

    /// Takes a request, JSON; returns its number.
    pub fn submit(&mut self, request: &str) -> Result<u32, Error> {
        let request = Request::parse(request)?.build(&self.loaded, now())?;
        let prompt = request.tokens.len();
        let seq = self.loaded.engine.submit(request)?;
        Ok(self.requests.add(seq, prompt))
    }

    /// Ends a request early; one that has ended is left alone.
    pub fn cancel(&mut self, id: u32) {
        if let Some(seq) = self.requests.find(id) {
            self.loaded.engine.cancel(seq);
        }
    }

    /// Runs one pass over whatever is due; what happened is JSON.
    pub fn step(&mut self) -> Result<String, Error> {
        let step = self.loaded.engine.step();
        let passed = self.requests.collect(&mut self.loaded.engine, step);
        Ok(serde_json::to_string(&passed)?)
    }

    /// Token ids of a text; `special` frames it as the model is used to.
    pub fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, Error> {
        Ok(self.loaded.tokenizer()?.encode(text, special)?)
    }

    /// The text of token ids.
    pub fn detokenize(&self, ids: &[u32]) -> Result<String, Error> {
        Ok(self.loaded.tokenizer()?.decode(ids))
    }

    /// The prompt that makes the model answer these messages, a JSON array.
    #[wasm_bindgen(js_name = applyTemplate)]
    pub fn apply_template(&self, messages: &str) -> Result<String, Error> {
        request::render(&self.loaded, &serde_json::from_str(messages)?, now())
    }

    /// Modes that the model can be decoded in.
    fn modes(&self) -> Vec<&'static str> {
        let can = |mode| Settings { decode_mode: Some(mode), ..Settings::default() };
        [Mode::Ar, Mode::Greedy, Mode::Iterative, Mode::Adaptive, Mode::Verify]
            .into_iter()
            .filter(|&mode| can(mode).mode(&self.loaded.ability()).is_ok())
            .map(Mode::name)
            .collect()
    }

    fn default_mode(&self) -> &'static str {
        match Settings::default().mode(&self.loaded.ability()) {
            Ok(DecodeMode::Verify { .. }) => "verify",
            Ok(DecodeMode::Diffusion(_)) => "iterative",
            _ => "ar",
        }
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    (js_sys::Date::now() / 1e3) as i64
}

/// Bytes of wasm memory.
fn memory_bytes() -> f64 {
    use wasm_bindgen::JsCast;
    let memory: js_sys::WebAssembly::Memory = wasm_bindgen::memory().unchecked_into();
    js_sys::Reflect::get(&memory.buffer(), &"byteLength".into())
        .ok()
        .and_then(|length| length.as_f64())
        .unwrap_or(0.0)
}
