//! Prints an answer while it is generated, and the thinking before it.

use super::markdown::Markdown;
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
    /// Formats Markdown, if that is what the answer is shown as.
    markdown: Option<Markdown>,
    /// True while the output is inside the thinking.
    thinks: bool,
}

impl AnswerView {
    /// Before the first token.
    pub fn new(thinking: Thinking) -> Self {
        Self { thinking, markdown: None, thinks: false }
    }

    /// Shows Markdown with styles and broken lines where standard output is a terminal.
    #[must_use]
    pub fn with_markdown(self) -> Self {
        Self { markdown: out::terminal_columns().map(|_| Markdown::default()), ..self }
    }

    /// Prints what a terminal of its present width shows.
    fn format(
        &mut self,
        format: impl FnOnce(&mut Markdown, usize) -> String,
    ) -> anyhow::Result<()> {
        let Some(markdown) = &mut self.markdown else { return Ok(()) };
        out::styled(&format(markdown, out::terminal_columns().unwrap_or(usize::MAX)))
    }
}

impl Watcher for AnswerView {
    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        if std::mem::take(&mut self.thinks) && self.thinking == Thinking::Shown {
            out::note("\n");
        }
        match self.markdown {
            Some(_) => self.format(|markdown, columns| markdown.push(text, columns)),
            None => out::print(text),
        }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.format(Markdown::finish)
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
