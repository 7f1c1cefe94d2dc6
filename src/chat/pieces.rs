//! The parts of an output that arrive together.

use super::OutputParser;
use super::output::{OutputDelta, ToolCall};
use crate::engine::FinishReason;

/// Parts of an output that can be shown now; each may be empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputPiece {
    /// More of the answer.
    pub text: String,
    /// More of the reasoning before it.
    pub reasoning: String,
    /// More of the calls.
    pub calls: Vec<CallPiece>,
}

/// A part of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPiece {
    /// Number of the call in the output, from 0.
    pub index: usize,
    /// Name of the function, in the first part.
    pub name: Option<String>,
    /// More of the arguments, which are JSON.
    pub arguments: String,
}

impl CallPiece {
    /// Adds this part to the calls of an output, of which it is the next one.
    pub fn add_to(self, calls: &mut Vec<ToolCall>) {
        let Self { name, arguments, .. } = self;
        match (name, calls.last_mut()) {
            (None, Some(call)) => call.arguments += &arguments,
            (name, _) => calls.push(ToolCall { name: name.unwrap_or_default(), arguments }),
        }
    }
}

/// Parses an output while it is generated.
///
/// ```
/// use wrinklefree::chat::tools::CallParser;
/// use wrinklefree::chat::{OutputParser, OutputPieces};
///
/// let mut pieces = OutputPieces::new(OutputParser::new(None, CallParser::Plain));
/// assert_eq!(pieces.push("Hello").text, "Hello");
/// ```
#[derive(Clone, Debug, Default)]
pub struct OutputPieces {
    parser: OutputParser,
    calls: usize,
}

impl OutputPieces {
    /// Begins with an output that `parser` parses.
    #[must_use]
    pub fn new(parser: OutputParser) -> Self {
        Self { parser, calls: 0 }
    }

    /// Parses more of the output.
    pub fn push(&mut self, text: &str) -> OutputPiece {
        let deltas = self.parser.push(text);
        self.piece(deltas)
    }

    /// Parses the end of the output.
    pub fn finish(&mut self, text: &str) -> OutputPiece {
        let mut deltas = self.parser.push(text);
        deltas.extend(self.parser.finish());
        self.piece(deltas)
    }

    /// Returns the reason why the output ended, as [`OutputParser::end`].
    #[must_use]
    pub fn end(&self, reason: FinishReason) -> FinishReason {
        self.parser.end(reason)
    }

    fn piece(&mut self, deltas: Vec<OutputDelta>) -> OutputPiece {
        let mut piece = OutputPiece::default();
        for delta in deltas {
            match delta {
                OutputDelta::Text(text) => piece.text += &text,
                OutputDelta::Reasoning(text) => piece.reasoning += &text,
                OutputDelta::CallStart(name) => {
                    let (index, name) = (self.calls, Some(name));
                    self.calls += 1;
                    piece.calls.push(CallPiece { index, name, arguments: String::new() });
                }
                OutputDelta::Arguments(more) => {
                    let index = self.calls.saturating_sub(1);
                    match piece.calls.last_mut() {
                        Some(call) => call.arguments += &more,
                        None => piece.calls.push(CallPiece { index, name: None, arguments: more }),
                    }
                }
            }
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::tools::CallFormat;

    #[test]
    fn pieces_number_their_calls() {
        let call = |name: &str| {
            format!(
                "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"a\": 1}}}}\n</tool_call>"
            )
        };
        let output = format!("So:\n{}\n{}", call("f"), call("g"));
        let parser =
            || OutputParser::new(None, CallFormat::Hermes.parser(std::iter::empty(), false));
        let whole = OutputPieces::new(parser()).finish(&output);
        let of = |index, name: &str| CallPiece {
            index,
            name: Some(name.into()),
            arguments: "{\"a\": 1}".into(),
        };
        assert_eq!(whole.calls, [of(0, "f"), of(1, "g")]);
        let mut pieces = OutputPieces::new(parser());
        let mut parts: Vec<OutputPiece> =
            output.chars().map(|c| pieces.push(&c.to_string())).collect();
        parts.push(pieces.finish(""));
        let mut calls = Vec::new();
        parts.into_iter().flat_map(|piece| piece.calls).for_each(|part| part.add_to(&mut calls));
        let call = |name: &str| ToolCall { name: name.into(), arguments: "{\"a\": 1}".into() };
        assert_eq!(calls, [call("f"), call("g")]);
    }
}
