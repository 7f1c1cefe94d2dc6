//! Helpers of the thread pool: the host starts a worker for each and lets it call [`helper`].

use std::sync::{Mutex, PoisonError};
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::par::{ThreadPool, ThreadPoolError, Worker};

/// Helpers that nobody works as yet.
static WAITING: Mutex<Vec<Worker>> = Mutex::new(Vec::new());

fn waiting() -> std::sync::MutexGuard<'static, Vec<Worker>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread pool of `threads`; the host is to start `threads - 1` helpers.
pub fn thread_pool(threads: usize) -> Result<ThreadPool, ThreadPoolError> {
    waiting().clear();
    ThreadPool::with_spawn(threads, |helper| {
        waiting().push(helper);
        Ok(())
    })
}

/// A helper's life: returns when the session is gone, at once where no helper is wanted.
#[wasm_bindgen]
pub fn helper() {
    let helper = waiting().pop();
    if let Some(helper) = helper {
        helper.work();
    }
}
