//! Signals. After Ctrl-C, SIGTERM or SIGHUP, a loop that checks [`requested`] ends its work itself;
//! everywhere else the signal ends the program at once.

use anyhow::Context;
use std::io;
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wrinklefree_easy::models;

/// A signal ends the program.
const DISARMED: u8 = 0;
/// A signal is recorded, for a loop that checks.
const ARMED: u8 = 1;
/// A signal was recorded and not handled yet: another one ends the program.
const REQUESTED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(DISARMED);

/// The unfinished file or directory of this program, if there is one.
static DRAFT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Installs the handler: from now on a signal leaves no unfinished file behind, and [`arm`] works.
///
/// # Errors
/// If the system refuses a handler or its thread.
#[cfg(unix)]
pub fn watch() -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    const REFUSED: &str = "cannot watch for Ctrl-C";
    let mut signals =
        signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]).context(REFUSED)?;
    let wait = move || signals.forever().for_each(|_| record_or_end());
    std::thread::Builder::new().name("signals".into()).spawn(wait).context(REFUSED)?;
    Ok(())
}

/// See above.
#[cfg(windows)]
pub fn watch() -> anyhow::Result<()> {
    ctrlc::set_handler(record_or_end).context("cannot watch for Ctrl-C")
}

/// Records a signal where a loop checks for it, and ends the program otherwise.
fn record_or_end() {
    if STATE.compare_exchange(ARMED, REQUESTED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        end();
    }
}

/// Records signals for [`requested`] from now on, and forgets an earlier one.
pub fn arm() {
    STATE.store(ARMED, Ordering::Relaxed);
}

/// Lets signals end the program again.
pub fn disarm() {
    STATE.store(DISARMED, Ordering::Relaxed);
}

/// Returns true if a signal came since [`arm`].
pub fn requested() -> bool {
    STATE.load(Ordering::Relaxed) == REQUESTED
}

/// Makes a temporary file or directory that is removed when the program ends, also by a signal.
pub(crate) fn temporary<T>(
    make: impl FnOnce() -> io::Result<T>,
    path: impl FnOnce(&T) -> &Path,
) -> io::Result<T> {
    let mut draft = draft(); // so that `end` cannot miss the new one
    let made = make()?;
    *draft = Some(path(&made).into());
    Ok(made)
}

/// Makes failures with files errors: a file that grows too large (SIGXFSZ), and a mapped file that
/// is cut short (SIGBUS).
///
/// # Errors
/// If the system refuses.
pub fn report_file_failures() -> anyhow::Result<()> {
    models::mapped::report_lost_files(|| {
        // Another thread that makes a draft just now keeps it.
        if let Ok(draft) = DRAFT.try_lock() {
            remove(&draft);
        }
    });
    // With any handler, the write fails.
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())
        .context("cannot watch for SIGXFSZ")?;
    Ok(())
}

/// Waits until the system asks the program to end: Ctrl-C or SIGTERM, and on Windows Ctrl-Break, the
/// end of the console, or of the system.
#[cfg(unix)]
pub async fn termination() {
    use tokio::signal::unix::{SignalKind, signal};
    let interrupt = tokio::signal::ctrl_c();
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! { _ = interrupt => {}, _ = terminate.recv() => {} }
        }
        Err(_) => drop(interrupt.await),
    }
}

/// See above.
#[cfg(windows)]
pub async fn termination() {
    use tokio::signal::windows;
    // They fail together, for want of a handler.
    let (Ok(mut interrupt), Ok(mut stop), Ok(mut close), Ok(mut shutdown)) =
        (windows::ctrl_c(), windows::ctrl_break(), windows::ctrl_close(), windows::ctrl_shutdown())
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = stop.recv() => {}
        _ = close.recv() => {}
        _ = shutdown.recv() => {}
    }
}

/// Calls `act` for each SIGHUP, which then does not end the program. Never returns.
#[cfg(unix)]
pub async fn on_hangup(mut act: impl AsyncFnMut()) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        tracing::warn!("cannot handle SIGHUP: it ends the server");
        return std::future::pending().await;
    };
    while hangups.recv().await.is_some() {
        act().await;
    }
    std::future::pending().await
}

/// Other systems have no SIGHUP.
#[cfg(not(unix))]
pub async fn on_hangup(_: impl AsyncFnMut()) {
    std::future::pending().await
}

/// Ends the program without running destructors.
fn end() -> ! {
    remove(&draft());
    std::process::exit(130)
}

fn remove(draft: &Option<PathBuf>) {
    if let Some(path) = draft {
        // A draft that was moved to its target meanwhile is gone.
        let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
    }
}

fn draft() -> MutexGuard<'static, Option<PathBuf>> {
    DRAFT.lock().unwrap_or_else(PoisonError::into_inner)
}
