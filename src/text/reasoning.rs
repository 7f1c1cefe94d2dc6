//! Reasoning in a model's output: the text between `<think>` and `</think>`, apart from the answer.

use super::ChatTemplate;
use serde_json::Value;

/// Names of a message's reasoning.
pub(super) const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Returns the reasoning of a message, whatever its name.
pub(super) fn reasoning_of(message: &Value) -> Option<&Value> {
    REASONING_FIELDS.iter().find_map(|name| message.get(name).filter(|value| !value.is_null()))
}

/// Strings around the reasoning of models that think before they answer, as their templates write them.
pub(super) const MARKERS: [ReasoningMarkers; 3] = [
    ReasoningMarkers { open: "<think>", close: "</think>" },
    ReasoningMarkers { open: "[THINK]", close: "[/THINK]" },
    ReasoningMarkers { open: "<seed:think>", close: "</seed:think>" },
];

/// Strings around the reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningMarkers {
    /// String before the reasoning.
    pub open: &'static str,
    /// String after it.
    pub close: &'static str,
}

/// Place of the reasoning in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningStart {
    /// The prompt has closed the reasoning: the output is the answer.
    Closed,
    /// The output may begin with the opening marker.
    Optional,
    /// The prompt ends after the opening marker: the output begins inside the reasoning.
    Open,
}

impl ReasoningMarkers {
    /// Returns the markers that a template writes; `None` if its model does not reason.
    #[must_use]
    pub fn of_template(template: &ChatTemplate) -> Option<Self> {
        let written = |m: &Self| template.source().contains(m.close);
        MARKERS.into_iter().find(written)
    }

    /// Returns where the output after a rendered prompt has its reasoning.
    #[must_use]
    pub fn start(&self, prompt: &str) -> ReasoningStart {
        let end = prompt.trim_end();
        if end.ends_with(self.open) {
            ReasoningStart::Open
        } else if end.ends_with(self.close) {
            ReasoningStart::Closed
        } else {
            ReasoningStart::Optional
        }
    }
}

/// A part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputPart {
    /// More of the reasoning.
    Reasoning(String),
    /// More of the answer.
    Answer(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far, and an opening marker may come.
    Start,
    Reasoning,
    /// After the closing marker: line breaks are dropped.
    Gap,
    Answer,
}

/// Splits an output into reasoning and answer while it is generated.
///
/// Text that may be a marker is held back, and so are line breaks at the end of the reasoning. The
/// result does not depend on how the output is cut.
///
/// ```
/// use wrinklefree::text::{OutputPart, ReasoningMarkers, ReasoningParser, ReasoningStart};
///
/// let markers = ReasoningMarkers { open: "<think>", close: "</think>" };
/// let mut parser = ReasoningParser::new(markers, ReasoningStart::Open);
/// assert_eq!(parser.push("6 times 7.\n</thi"), [OutputPart::Reasoning("6 times 7.".into())]);
/// assert_eq!(parser.push("nk>\n\n42"), [OutputPart::Answer("42".into())]);
/// ```
#[derive(Clone, Debug)]
pub struct ReasoningParser {
    markers: ReasoningMarkers,
    state: State,
    held: String,
    /// True if some reasoning has been returned.
    reasoned: bool,
}

impl ReasoningParser {
    /// Makes a parser of one output.
    #[must_use]
    pub fn new(markers: ReasoningMarkers, start: ReasoningStart) -> Self {
        let state = match start {
            ReasoningStart::Closed => State::Answer,
            ReasoningStart::Optional => State::Start,
            ReasoningStart::Open => State::Reasoning,
        };
        Self { markers, state, held: String::new(), reasoned: false }
    }

    /// Returns true while the output is inside the reasoning.
    #[must_use]
    pub fn reasons(&self) -> bool {
        self.state == State::Reasoning
    }

    /// Returns the end of the output that is not parsed yet: it may be the beginning of a marker.
    #[must_use]
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Parses more of the output.
    pub fn push(&mut self, text: &str) -> Vec<OutputPart> {
        self.held += text;
        let mut parts = Vec::new();
        while self.advance(&mut parts) {}
        parts
    }

    /// Returns the text that was held back, at the end of the output.
    pub fn finish(&mut self) -> Vec<OutputPart> {
        let rest = std::mem::take(&mut self.held);
        let part = match self.state {
            State::Reasoning => OutputPart::Reasoning(self.trimmed(rest.trim_end_matches('\n'))),
            State::Gap => OutputPart::Answer(rest.trim_start_matches('\n').into()),
            State::Start | State::Answer => OutputPart::Answer(rest),
        };
        Some(part).filter(|part| !part.text().is_empty()).into_iter().collect()
    }

    /// Moves on in the held text; returns true if the state has changed.
    fn advance(&mut self, parts: &mut Vec<OutputPart>) -> bool {
        match self.state {
            State::Start => self.start(),
            State::Reasoning => self.reason(parts),
            State::Gap => {
                self.held.drain(..self.held.len() - self.held.trim_start_matches('\n').len());
                self.go(State::Answer, !self.held.is_empty())
            }
            State::Answer => {
                let text = std::mem::take(&mut self.held);
                parts.extend(Some(text).filter(|t| !t.is_empty()).map(OutputPart::Answer));
                false
            }
        }
    }

    fn start(&mut self) -> bool {
        let text = self.held.trim_start();
        if let Some(rest) = text.strip_prefix(self.markers.open) {
            self.held = rest.into();
            return self.go(State::Reasoning, true);
        }
        let may_come = self.markers.open.starts_with(text);
        self.go(State::Answer, !may_come)
    }

    fn reason(&mut self, parts: &mut Vec<OutputPart>) -> bool {
        let close = self.markers.close;
        let (text, found) = match self.held.split_once(close) {
            Some((text, rest)) => {
                let (text, rest) = (text.trim_end_matches('\n').to_string(), rest.to_string());
                self.held = rest;
                (text, true)
            }
            None => {
                let may_close = |&at: &usize| {
                    let end = self.held[at..].trim_start_matches('\n');
                    close.starts_with(end)
                };
                let mut borders = self.held.char_indices().map(|(at, _)| at);
                let keep = borders.find(may_close).unwrap_or(self.held.len());
                let held = self.held.split_off(keep);
                (std::mem::replace(&mut self.held, held), false)
            }
        };
        let text = self.trimmed(&text);
        self.reasoned |= !text.is_empty();
        parts.extend(Some(text).filter(|t| !t.is_empty()).map(OutputPart::Reasoning));
        self.go(State::Gap, found)
    }

    /// Returns reasoning without line breaks at its very beginning.
    fn trimmed(&self, text: &str) -> String {
        if self.reasoned { text.into() } else { text.trim_start_matches('\n').into() }
    }

    fn go(&mut self, state: State, moves: bool) -> bool {
        if moves {
            self.state = state;
        }
        moves
    }
}

impl OutputPart {
    /// Returns the text of the part.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Reasoning(text) | Self::Answer(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THINK: ReasoningMarkers = MARKERS[0];

    /// Returns reasoning and answer of an output, whatever its cuts.
    fn parse(start: ReasoningStart, output: &str) -> (String, String) {
        let mut results = Vec::new();
        for size in 1..=output.chars().count().max(1) {
            let mut parser = ReasoningParser::new(THINK, start);
            let (mut reasoning, mut answer) = (String::new(), String::new());
            let chars: Vec<char> = output.chars().collect();
            let mut parts: Vec<OutputPart> = chars
                .chunks(size)
                .flat_map(|chunk| parser.push(&chunk.iter().collect::<String>()))
                .collect();
            parts.extend(parser.finish());
            for part in parts {
                match part {
                    OutputPart::Reasoning(text) => reasoning += &text,
                    OutputPart::Answer(text) => answer += &text,
                }
            }
            results.push((reasoning, answer));
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{output}: {results:?}");
        results.swap_remove(0)
    }

    #[test]
    fn reasoning_and_answer_are_separated() {
        use ReasoningStart::{Closed, Open, Optional};
        for (start, output, reasoning, answer) in [
            (Open, "Hm.\n\nSo.\n</think>\n\n42\n", "Hm.\n\nSo.", "42\n"),
            (Open, "\nHm.</think>42", "Hm.", "42"),
            (Open, "a </think b\n\n</think>\n", "a </think b", ""),
            (Open, "cut off\n</thi", "cut off\n</thi", ""),
            (Open, "", "", ""),
            (Optional, "<think>\nHm ä.\n</think>\n\n4</think>2", "Hm ä.", "4</think>2"),
            (Optional, "\n<think></think>42", "", "42"),
            (Optional, "<thin air", "", "<thin air"),
            (Optional, " 42 <think>", "", " 42 <think>"),
            (Optional, "<think", "", "<think"),
            (Closed, "<think>42", "", "<think>42"),
        ] {
            let want = (reasoning.into(), answer.into());
            assert_eq!(parse(start, output), want, "{start:?} {output:?}");
        }
    }

    #[test]
    fn the_prompt_says_where_the_reasoning_is() {
        let prompt = "<think>x</think><|im_start|>assistant\n";
        assert_eq!(THINK.start(prompt), ReasoningStart::Optional);
        assert_eq!(THINK.start(&format!("{prompt}<think>\n")), ReasoningStart::Open);
        let closed = format!("{prompt}<think>\n\n</think>\n\n");
        assert_eq!(THINK.start(&closed), ReasoningStart::Closed);
    }
}
