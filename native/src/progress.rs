//! Progress on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for so many steps.
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left");
    ProgressBar::new(steps as u64).with_style(style.expect("a valid template"))
}
