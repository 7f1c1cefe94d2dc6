//! Errors as JavaScript has them: an `Error` with a `code` that never changes.

use js_sys::Reflect;
use wasm_bindgen::JsValue;
use wrinklefree::cache::NoMemory;
use wrinklefree::engine::Rejected;
use wrinklefree::format::LoadError;
use wrinklefree::model::{ModelError, RowCostError};
use wrinklefree::par::ThreadPoolError;
use wrinklefree::settings::SettingsError;
use wrinklefree::text::TextError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: &'static str,
    message: String,
}

impl Error {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The caller said something that makes no sense.
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

/// Errors that bring their code.
macro_rules! coded {
    ($($kind:ty),+) => {
        $(impl From<$kind> for Error {
            fn from(error: $kind) -> Self {
                Self::new(error.code(), error.to_string())
            }
        })+
    };
}
coded!(LoadError, TextError, Rejected, SettingsError);

/// Errors of one code.
macro_rules! all_coded {
    ($($kind:ty => $code:literal),+) => {
        $(impl From<$kind> for Error {
            fn from(error: $kind) -> Self {
                Self::new($code, error.to_string())
            }
        })+
    };
}
all_coded!(
    ModelError => "bad_shape",
    NoMemory => "out_of_memory",
    RowCostError => "out_of_memory",
    ThreadPoolError => "no_threads",
    serde_json::Error => "bad_request"
);
