//! Conversion of the core's errors to JavaScript: an `Error` with a stable `code`.

use js_sys::Reflect;
use wasm_bindgen::JsValue;
use wrinklefree::cache::NoMemory;
use wrinklefree::chat::ChatError;
use wrinklefree::engine::SubmitError;
use wrinklefree::format::LoadError;
use wrinklefree::model::{ModelError, PassCostsError};
use wrinklefree::par::ThreadPoolError;
use wrinklefree::settings::{HoleError, ReasoningError, SettingsError};
use wrinklefree::text::TextError;

/// An error with its stable code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: &'static str,
    message: String,
}

impl Error {
    /// An error with this code and message.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// An error about an invalid option or request of the caller.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new("bad_request", message)
    }
}

impl From<Error> for JsValue {
    fn from(error: Error) -> Self {
        let js = js_sys::Error::new(&error.message);
        Reflect::set(&js, &"code".into(), &error.code.into()).expect("errors take properties");
        js.into()
    }
}

/// Converts errors that have a code.
macro_rules! with_code {
    ($($kind:ty),+) => {
        $(impl From<$kind> for Error {
            fn from(error: $kind) -> Self {
                Self::new(error.code(), error.to_string())
            }
        })+
    };
}
with_code!(LoadError, TextError, ChatError, HoleError, SubmitError, SettingsError);

/// Converts errors whose type has a single code.
macro_rules! as_code {
    ($($kind:ty => $code:literal),+) => {
        $(impl From<$kind> for Error {
            fn from(error: $kind) -> Self {
                Self::new($code, error.to_string())
            }
        })+
    };
}
as_code!(
    ReasoningError => "bad_request",
    ModelError => "bad_shape",
    NoMemory => "out_of_memory",
    PassCostsError => "out_of_memory",
    ThreadPoolError => "no_threads",
    serde_json::Error => "bad_request"
);
