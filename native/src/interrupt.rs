//! Ctrl-C, and what else asks the program to end (SIGTERM, SIGHUP): a flag where a loop looks at
//! it, the end at once elsewhere.

use anyhow::Context;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::NamedTempFile;

/// Nobody looks: Ctrl-C ends the program.
const AT_ONCE: u8 = 0;
/// Somebody looks: Ctrl-C is noted.
const LOOKING: u8 = 1;
/// Noted and not dealt with: another Ctrl-C ends the program.
const PRESSED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(AT_ONCE);

/// The unfinished file of this program, if there is one.
static DRAFT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From now on Ctrl-C leaves no unfinished file behind, and [`look`] works.
pub fn watch() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        let noted = STATE.compare_exchange(LOOKING, PRESSED, Ordering::Relaxed, Ordering::Relaxed);
        if noted.is_err() {
            end();
        }
    })
    .context("cannot watch for Ctrl-C")
}

/// From now on the caller looks at [`pressed`]. Forgets an earlier Ctrl-C.
pub fn look() {
    STATE.store(LOOKING, Ordering::Relaxed);
}

/// From now on nobody looks.
pub fn look_away() {
    STATE.store(AT_ONCE, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed since [`look`].
pub fn pressed() -> bool {
    STATE.load(Ordering::Relaxed) == PRESSED
}

/// Makes a temporary file that does not outlive the program, however that ends.
pub fn temporary(make: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<NamedTempFile> {
    let mut draft = draft(); // so that `end` cannot miss the new file
    let file = make()?;
    *draft = Some(file.path().into());
    Ok(file)
}

/// Ends the program, which runs no destructors.
fn end() -> ! {
    let draft = draft();
    if let Some(path) = &*draft {
        // A draft that became its target meanwhile is not there any more.
        let _ = std::fs::remove_file(path);
    }
    std::process::exit(130)
}

fn draft() -> MutexGuard<'static, Option<PathBuf>> {
    DRAFT.lock().unwrap_or_else(PoisonError::into_inner)
}
