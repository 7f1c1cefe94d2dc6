//! Progress on standard error: bars on a terminal, plain lines elsewhere.

use super::{human, out};
use crate::models;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Returns a bar for `steps` steps.
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left");
    ProgressBar::new(steps as u64).with_style(style.expect("a valid template"))
}

/// Shows downloads and loading of a model.
#[derive(Default)]
pub struct Progress {
    download: Option<Download>,
    spinner: Option<ProgressBar>,
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
        let spinner = ProgressBar::new_spinner().with_message(format!("loading {name}"));
        spinner.enable_steady_tick(Duration::from_millis(100));
        self.spinner = Some(spinner);
    }

    fn loaded(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        models::Progress::loaded(self);
    }
}
