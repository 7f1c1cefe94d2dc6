//! C interface of the runtime: `include/wrinklefree.h`, which is made from these functions.
//!
//! A program opens an engine, submits requests, and polls the events of each request. Options are JSON
//! objects with the field names of the server and of the npm package, so that a new option changes no
//! function. Errors are codes, with a message for each thread ([`wf_last_error`]).
//!
//! The header's introduction, in `cbindgen.toml`, has the rules of ownership and threads.
#![allow(non_camel_case_types, reason = "the names are those of the C header")]

mod engine;
mod error;
mod memory;
mod options;
mod request;

pub use engine::*;
pub use error::{wf_last_error, wf_status};
pub use request::*;

use std::ffi::{CStr, c_char};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL"),
    };

/// Returns the version of the library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn wf_version() -> *const c_char {
    VERSION.as_ptr()
}
