//! Prints an answer while it is generated, and the thinking before it.

use super::out;
use super::session::Watcher;

/// The way in which thinking is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// Dim, on standard error.
    Shown,
    /// As one line on standard error.
    Folded,
}

/// Prints text on standard output.
pub struct AnswerView {
    thinking: Thinking,
    /// True while the output is inside the thinking.
    thinks: bool,
}

impl AnswerView {
    /// Before the first token.
    pub fn new(thinking: Thinking) -> Self {
        Self { thinking, thinks: false }
    }
}

impl Watcher for AnswerView {
    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        if std::mem::take(&mut self.thinks) && self.thinking == Thinking::Shown {
            out::note("\n");
        }
        out::print(text)
    }

    fn reasoning(&mut self, text: &str) -> anyhow::Result<()> {
        match self.thinking {
            Thinking::Shown => out::dim(text),
            Thinking::Folded if !self.thinks => out::note("(thinking …)"),
            Thinking::Folded => {}
        }
        self.thinks = true;
        Ok(())
    }
}
