//! Progress on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Something that turns until it is dropped, with a text beside it.
pub fn spinner(text: impl Into<String>) -> Spinner {
    let bar = ProgressBar::new_spinner().with_message(text.into());
    bar.enable_steady_tick(Duration::from_millis(100));
    Spinner(bar)
}

/// Turns until it is dropped.
pub struct Spinner(ProgressBar);

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar for so many steps.
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left");
    ProgressBar::new(steps as u64).with_style(style.expect("a valid template"))
}
