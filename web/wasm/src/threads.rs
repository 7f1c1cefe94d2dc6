//! The thread pool's workers. The host starts a thread for each one and calls [`run_pool_worker`] in it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::par::{ThreadPool, ThreadPoolError, Worker};

/// Workers of the last pool that no thread runs yet.
static UNCLAIMED: Mutex<Vec<Worker>> = Mutex::new(Vec::new());

fn unclaimed() -> MutexGuard<'static, Vec<Worker>> {
    UNCLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a pool of `threads` threads. The host must start `threads - 1` workers for it.
pub fn thread_pool(threads: usize) -> Result<ThreadPool, ThreadPoolError> {
    unclaimed().clear();
    ThreadPool::with_spawn(threads, |worker| {
        unclaimed().push(worker);
        Ok(())
    })
}

/// Runs one worker until the session is freed. Returns at once if the pool needs no more workers.
#[wasm_bindgen(js_name = runPoolWorker)]
pub fn run_pool_worker() {
    let worker = unclaimed().pop();
    if let Some(worker) = worker {
        worker.work();
    }
}
