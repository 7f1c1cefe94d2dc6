//! Codes of errors, and their messages.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use wrinklefree_easy::Error;

/// Result of a call. Values from 3 on are errors, which wf_last_error explains.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wf_status {
    /// The call succeeded.
    Ok = 0,
    /// wf_poll: there was no event within the time.
    NoEvent = 1,
    /// wf_poll: the last event was delivered before.
    Finished = 2,
    /// A pointer is NULL that must not be, a text is not UTF-8, or JSON cannot be read.
    InvalidArgument = 3,
    /// The model could not be found, read or used, or the engine could not start.
    OpenFailed = 4,
    /// The request cannot run: for example the prompt is too long, or the grammar has an error.
    InvalidRequest = 5,
    /// The model lacks what the call needs: a chat template.
    Unsupported = 6,
    /// The buffer is too small; the needed size was written.
    BufferTooSmall = 7,
    /// The engine has stopped.
    Stopped = 8,
    /// A fault of the library. Please report it.
    Internal = 9,
    /// The model computed a number that is not finite: its weights are broken.
    ModelFailed = 10,
}

/// An error on its way to C.
pub struct Failure {
    pub status: wf_status,
    pub message: String,
}

impl Failure {
    pub fn argument(message: impl Into<String>) -> Self {
        Self { status: wf_status::InvalidArgument, message: message.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Open { .. }
            | Error::Threads(_)
            | Error::RowCost(_)
            | Error::NoMemory(_)
            | Error::NotEnoughMemory(_)
            | Error::NoTokenizer(_) => wf_status::OpenFailed,
            Error::NoChatTemplate { .. } => wf_status::Unsupported,
            Error::Stopped => wf_status::Stopped,
            Error::NotFinite => wf_status::ModelFailed,
            _ => wf_status::InvalidRequest,
        };
        Self { status, message: error.to_string() }
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Returns the message of the last error on this thread, in UTF-8; empty if there was none. It says what
/// happened, to what, and what to do. The string lives until the next error on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn wf_last_error() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// Runs a call: keeps the message of an error, and lets no panic reach C.
pub fn run(call: impl FnOnce() -> Result<wf_status, Failure>) -> wf_status {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(_) => Failure {
            status: wf_status::Internal,
            message: "the library has a fault; standard error has details".into(),
        },
    };
    MESSAGE.set(c_string(failure.message));
    failure.status
}

/// Makes a C string; NULs become replacement characters.
pub fn c_string(text: String) -> CString {
    CString::new(text).unwrap_or_else(|error| {
        let text = String::from_utf8_lossy(&error.into_vec()).replace('\0', "\u{fffd}");
        CString::new(text).unwrap_or_default()
    })
}
