//! Waiting without the GIL, in which Ctrl-C still works.

use crate::errors::raised;
use pyo3::{PyResult, Python};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use wrinklefree_easy::Error;

/// Time between two looks for signals.
pub const TICK: Duration = Duration::from_millis(50);

/// Runs `work` on a thread of its own and waits for it without the GIL. A signal handler that raises,
/// such as that of Ctrl-C, ends the wait; the work is then finished in the background.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("wf-call".into());
    // A caller that is gone needs no result.
    let started = thread.spawn(move || drop(sender.send(work())));
    started.map_err(|error| raised(&Error::Threads(error.to_string())))?;
    loop {
        // A receiver is `Send` and not `Sync`, so the closure takes it mutably.
        let receiver = &mut receiver;
        match py.detach(move || receiver.recv_timeout(TICK)) {
            Ok(result) => return result.map_err(|error| raised(&error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(raised(&Error::Stopped)),
        }
    }
}
