//! Values that belong to the process that made them.

use crate::errors::Error;
use pyo3::PyResult;
use std::{mem, process};

/// A value whose thread a forked process lacks: there it can neither be used nor dropped.
pub struct ProcessOwned<T> {
    /// `None` only while it is dropped.
    value: Option<T>,
    process: u32,
}

impl<T> ProcessOwned<T> {
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: process::id() }
    }

    /// Returns true in a process that was forked from the owner.
    fn is_foreign(&self) -> bool {
        process::id() != self.process
    }

    /// Returns the value, or an error in a forked process.
    pub fn get(&self) -> PyResult<&T> {
        self.value.as_ref().filter(|_| !self.is_foreign()).ok_or_else(forked)
    }

    /// Returns the value, or an error in a forked process.
    pub fn get_mut(&mut self) -> PyResult<&mut T> {
        let foreign = self.is_foreign();
        self.value.as_mut().filter(|_| !foreign).ok_or_else(forked)
    }
}

fn forked() -> pyo3::PyErr {
    Error::new_err(
        "the engine runs in the parent process: load it after the fork, or start processes with \
         multiprocessing's method `spawn`",
    )
}

impl<T> Drop for ProcessOwned<T> {
    fn drop(&mut self) {
        if self.is_foreign() {
            // Dropping waits for a thread that does not exist here.
            mem::forget(self.value.take());
        }
    }
}
