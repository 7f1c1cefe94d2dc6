//! Errors as Python exceptions.

use pyo3::exceptions::PyException;
use pyo3::{PyErr, create_exception};
use wrinklefree_easy::Error as EasyError;

create_exception!(wrinklefree, Error, PyException, "Base of the errors of this module.");
create_exception!(
    wrinklefree,
    OpenError,
    Error,
    "The model could not be found, read or used, or memory or threads are missing."
);
create_exception!(
    wrinklefree,
    RequestError,
    Error,
    "The request cannot run: for example the prompt is too long, or the grammar has an error."
);

/// Converts an error of the library into an exception.
pub fn raised(error: &EasyError) -> PyErr {
    let message = error.to_string();
    match error {
        EasyError::Open { .. }
        | EasyError::Threads(_)
        | EasyError::RowCost(_)
        | EasyError::NoMemory(_)
        | EasyError::NotEnoughMemory(_)
        | EasyError::NoTokenizer(_) => OpenError::new_err(message),
        EasyError::Stopped | EasyError::NotFinite => Error::new_err(message),
        _ => RequestError::new_err(message),
    }
}
