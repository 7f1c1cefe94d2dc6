//! Ctrl-C as a flag that loops look at.

use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};

static PRESSED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C sets the flag; pressed again before anyone looked, it ends the program.
pub fn watch() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if PRESSED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .context("cannot watch for Ctrl-C")
}

/// Whether Ctrl-C was pressed.
pub fn pressed() -> bool {
    PRESSED.load(Ordering::Relaxed)
}

/// Forgets an earlier Ctrl-C.
pub fn clear() {
    PRESSED.store(false, Ordering::Relaxed);
}
