//! Streams of chunks.

use crate::errors::raised;
use crate::output::{Chunk, Completion};
use crate::process::ProcessOwned;
use crate::wait::TICK;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use wrinklefree_easy::{self as easy, CancelHandle, Error, PartialOutput};

/// The chunks of an output as they are generated: an iterator, also for `async for`, and a context manager
/// that cancels the request at its end. Dropping it cancels the request, too.
#[pyclass(frozen, module = "wrinklefree")]
pub struct Stream {
    stream: Mutex<ProcessOwned<easy::Stream>>,
    cancel: CancelHandle,
    /// True once a call has begun.
    called: AtomicBool,
}

impl Stream {
    pub fn new(stream: easy::Stream) -> Self {
        let cancel = stream.cancel_handle();
        let called = AtomicBool::new(false);
        Self { stream: Mutex::new(ProcessOwned::new(stream)), cancel, called }
    }

    fn chunk(&self, chunk: easy::Chunk) -> Chunk {
        let called = self.called.fetch_or(!chunk.tool_calls.is_empty(), Ordering::Relaxed);
        let called = called || !chunk.tool_calls.is_empty();
        Chunk::new(chunk, called)
    }

    fn lock(&self) -> MutexGuard<'_, ProcessOwned<easy::Stream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Stream {
    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Chunk>> {
        loop {
            // Other threads of Python run meanwhile, also one that waits for the same stream.
            let waited = py.detach(|| {
                let mut owned = self.lock();
                let stream = owned.get_mut()?;
                Ok::<_, PyErr>((stream.next_timeout(TICK), stream.is_finished()))
            })?;
            match waited {
                (Some(Ok(chunk)), _) => return Ok(Some(self.chunk(chunk))),
                (Some(Err(error)), _) => return Err(raised(&error)),
                (None, true) => return Ok(None),
                (None, false) => py.check_signals()?,
            }
        }
    }

    fn __aiter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __anext__(this: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        this.py().import("wrinklefree._asyncio")?.call_method1("next_chunk", (this,))
    }

    /// Cancels the request before the next forward pass, from any thread. The output then ends with
    /// the reason `cancelled`.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, pyo3::types::PyTuple>) {
        self.cancel();
    }
}

/// Waits for the end of an output without the GIL. A signal handler that raises cancels the request.
pub fn collect(py: Python<'_>, mut stream: easy::Stream) -> PyResult<Completion> {
    stream.require_no_snapshots().map_err(|error| raised(&error))?;
    let mut output = PartialOutput::default();
    loop {
        let finished = py.detach(|| {
            let begin = Instant::now();
            // Tokens may come faster than ticks: many are taken before the GIL is.
            while begin.elapsed() < TICK {
                let Some(chunk) = stream.next_timeout(TICK) else { break };
                if let Some(complete) = output.push(chunk?) {
                    return Ok(Some(complete));
                }
            }
            if stream.is_finished() { Err(Error::Stopped) } else { Ok(None) }
        });
        match finished.map_err(|error| raised(&error))? {
            Some(complete) => return Ok(complete.into()),
            None => py.check_signals()?,
        }
    }
}
