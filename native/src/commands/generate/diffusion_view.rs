//! `--show-steps`: how a block or a draft comes about, a line for each pass.

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use std::io;
use wf_run_cli::out;
use wf_run_cli::session::Watcher;
use wrinklefree::decode::Slot;
use wrinklefree::engine::Engine;
use wrinklefree::text::Tokenizer;

/// Prints what each pass has left.
pub struct DiffusionView {
    /// Styles, or marks where the terminal has no styles.
    styled: bool,
    pass: usize,
    /// The slots after the last pass.
    before: Vec<Slot>,
}

impl DiffusionView {
    /// Before the first pass.
    pub fn new() -> Self {
        let styled = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        Self { styled, pass: 0, before: Vec::new() }
    }

    fn line(&self, slots: &[Slot], tokenizer: Option<&Tokenizer>) -> String {
        let text = |id: u32| text(id, tokenizer);
        // Where a token that was final is another one now, these are other places of the text, and all
        // that is final is new.
        let was_final = |slot: &Slot| matches!(slot, Slot::Final(..));
        let earlier = self.before.iter().enumerate();
        let same = earlier.filter(|(_, s)| was_final(s)).all(|(i, s)| slots.get(i) == Some(s));
        let pieces = slots.iter().enumerate().map(|(i, slot)| match *slot {
            Slot::Final(id, _) if same && self.before.get(i) == Some(slot) => text(id),
            Slot::Final(id, _) => self.mark(&text(id), Style::new().bold(), ["[", "]"]),
            Slot::Provisional(id, _) => self.mark(&text(id), Style::new().dimmed(), ["(", ")"]),
            Slot::Masked => self.mark("_", Style::new().dimmed(), ["", ""]),
        });
        pieces.collect()
    }

    fn mark(&self, text: &str, style: Style, [left, right]: [&str; 2]) -> String {
        if self.styled { format!("{style}{text}{style:#}") } else { format!("{left}{text}{right}") }
    }
}

/// A token on one line.
fn text(id: u32, tokenizer: Option<&Tokenizer>) -> String {
    match tokenizer {
        Some(t) if t.is_special(id) => t.token(id).unwrap_or_default(),
        Some(t) => String::from_utf8_lossy(t.bytes(id)).chars().map(printable).collect(),
        None => format!(" {id}"),
    }
}

/// A character that moves no cursor.
fn printable(c: char) -> char {
    match c {
        '\n' => '⏎',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

impl Watcher for DiffusionView {
    fn text(&mut self, _: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn slots(&mut self, engine: &Engine, slots: Vec<Slot>) -> anyhow::Result<()> {
        self.pass += 1;
        if !slots.is_empty() {
            let line = self.line(&slots, engine.tokenizer());
            out::print(&format!("{:>4} {line}\n", self.pass))?;
        }
        self.before = slots;
        Ok(())
    }
}
