//! Progress on standard error: bars on a terminal, plain lines elsewhere.

use super::{human, out};
use indicatif::{ProgressBar, ProgressStyle};
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use wrinklefree_easy::models;

/// Returns a bar for `steps` steps.
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left");
    ProgressBar::new(steps as u64).with_style(style.expect("a valid template"))
}

/// Shows downloads and loading of a model.
#[derive(Default)]
pub struct Progress {
    download: Option<Download>,
    spinner: Option<Spinner>,
}

/// One file, over all attempts to download it.
struct Download {
    file: String,
    bar: ProgressBar,
}

impl Download {
    fn new(file: &str) -> Self {
        let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(style).expect("a valid template");
        let bar = ProgressBar::new(0).with_style(style).with_message(file.to_string());
        Self { file: file.into(), bar }
    }
}

impl models::Progress for Progress {
    fn download_started(&mut self, file: &str, bytes: u64) {
        if self.download.as_ref().is_none_or(|download| download.file != file) {
            self.download = Some(Download::new(file));
            if !io::stderr().is_terminal() {
                out::note(format_args!("downloading {file} ({})", human::bytes(bytes)));
            }
        }
        if let Some(Download { bar, .. }) = &self.download {
            bar.set_length(bytes);
            bar.set_position(0);
        }
    }

    fn downloaded(&mut self, bytes: u64) {
        if let Some(Download { bar, .. }) = &self.download {
            bar.inc(bytes);
        }
    }

    fn download_interrupted(&mut self, file: &str, reason: &str) {
        let note = || out::note(format_args!("{file}: {reason}; resuming"));
        match &self.download {
            Some(Download { bar, .. }) => bar.suspend(note),
            None => note(),
        }
    }

    fn download_finished(&mut self) {
        if let Some(Download { bar, .. }) = &self.download {
            bar.finish();
        }
    }

    fn loading(&mut self, name: &str) {
        self.spinner = Some(spinner(format!("loading {name}")));
    }

    fn loaded(&mut self) {
        self.spinner = None;
    }
}

/// A writer that shows how much of a file is written.
pub struct BytesWritten<'a, W> {
    out: &'a mut W,
    bar: ProgressBar,
}

impl<'a, W: Write> BytesWritten<'a, W> {
    /// Starts the bar of a file of about `bytes` bytes.
    pub fn new(out: &'a mut W, bytes: u64) -> Self {
        let style = "writing {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(style).expect("a valid template");
        Self { out, bar: ProgressBar::new(bytes).with_style(style) }
    }
}

impl<W: Write> Write for BytesWritten<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bar.inc(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W> Drop for BytesWritten<'_, W> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns a spinner for a step without a measure. It ends when it is dropped.
pub fn spinner(message: impl Into<Cow<'static, str>>) -> Spinner {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    Spinner(bar)
}

/// A spinner that is cleared when it is dropped.
pub struct Spinner(ProgressBar);

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
