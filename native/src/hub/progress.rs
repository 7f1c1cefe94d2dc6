//! A progress bar on a terminal, one line per file elsewhere.

use crate::{human, out};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Progress of one file over all attempts.
pub struct Progress {
    bar: ProgressBar,
    name: String,
    terminal: bool,
    announced: bool,
}

impl Progress {
    /// Of the file `name`.
    pub fn new(name: &str) -> Self {
        let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(style).expect("a valid template");
        let bar = ProgressBar::new(0).with_style(style).with_message(name.to_string());
        let terminal = std::io::stderr().is_terminal();
        Self { bar, name: name.into(), terminal, announced: false }
    }

    /// The connection broke; another attempt follows.
    pub fn interrupted(&self, why: &str) {
        self.bar.suspend(|| out::note(format_args!("{}: {why}; resuming", self.name)));
    }
}

impl hf_hub::api::Progress for &mut Progress {
    fn init(&mut self, size: usize, _name: &str) {
        self.bar.set_length(size as u64);
        self.bar.set_position(0);
        if !self.terminal && !self.announced {
            let size = human::bytes(size as u64);
            out::note(format_args!("downloading {} ({size})", self.name));
        }
        self.announced = true;
    }

    fn update(&mut self, size: usize) {
        self.bar.inc(size as u64);
    }

    fn finish(&mut self) {
        self.bar.finish();
    }
}
