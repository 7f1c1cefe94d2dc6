//! The Python module `wrinklefree._native`, which `wrinklefree` re-exports. It is a thin layer on
//! `wrinklefree-easy`: it converts values, releases the GIL, and lets Ctrl-C end what waits.

mod convert;
mod engine;
mod errors;
mod floats;
mod load;
mod output;
mod process;
mod stream;
mod wait;

use pyo3::prelude::*;

/// The compiled part of `wrinklefree`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::errors::{Error, OpenError, RequestError};
    #[pymodule_export]
    use crate::load::load;
    #[pymodule_export]
    use crate::output::{Chunk, Completion, ToolCall, ToolCallChunk};
    #[pymodule_export]
    use crate::stream::Stream;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
