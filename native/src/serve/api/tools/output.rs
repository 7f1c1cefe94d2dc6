//! Reasoning, text and tool calls of an output.

use super::json_calls::JsonCallParser;
use super::xml::XmlParser;
use wrinklefree::chat::AnswerParser;
use wrinklefree::engine::FinishReason;
use wrinklefree::text::{OutputPart, ReasoningParser};

/// An increment of an output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputDelta {
    /// More of the reasoning.
    Reasoning(String),
    /// More text.
    Text(String),
    /// A call of this function begins.
    CallStart(String),
    /// More of the arguments of the last call, as JSON.
    Arguments(String),
}

impl OutputDelta {
    /// Returns the new text of the answer.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Reasoning(_) | Self::CallStart(_) | Self::Arguments(_) => None,
        }
    }
}

/// A part of a complete output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputBlock {
    /// A part of the reasoning.
    Reasoning(String),
    /// A text.
    Text(String),
    /// A call.
    Call(ToolCall),
}

/// The parts of an output, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputBlocks(pub Vec<OutputBlock>);

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    /// Name of the function.
    pub name: String,
    /// Arguments, as JSON.
    pub arguments: String,
}

/// Splits an output into reasoning, text and calls while it is generated. Text that may be the beginning
/// of a marker is held back.
#[derive(Clone, Debug)]
pub struct OutputParser {
    reasoning: Option<ReasoningParser>,
    calls: CallParser,
}

/// Parser of the text after the reasoning, by the format of calls.
#[derive(Clone, Debug)]
pub enum CallParser {
    /// Calls are not allowed: everything is text.
    Plain,
    /// Calls with arguments in JSON.
    Json(JsonCallParser),
    /// Calls in XML.
    Xml(XmlParser),
}

impl CallParser {
    fn push(&mut self, text: &str) -> Vec<OutputDelta> {
        match self {
            Self::Plain => text_delta(text).into_iter().collect(),
            Self::Json(parser) => parser.push(text),
            Self::Xml(parser) => parser.push(text),
        }
    }

    /// Length of the end of the text that is not parsed yet.
    fn held_len(&self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Json(parser) => parser.held_len(),
            Self::Xml(parser) => parser.held_len(),
        }
    }

    fn is_in_call(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Json(parser) => parser.is_in_call(),
            Self::Xml(parser) => parser.is_in_call(),
        }
    }

    fn finish(&mut self) -> Vec<OutputDelta> {
        match self {
            Self::Plain => Vec::new(),
            Self::Json(parser) => parser.finish(),
            Self::Xml(parser) => parser.finish(),
        }
    }
}

/// Returns the increment of a text that is not empty.
pub fn text_delta(text: &str) -> Option<OutputDelta> {
    (!text.is_empty()).then(|| OutputDelta::Text(text.into()))
}

impl OutputParser {
    /// Makes a parser of one output; `reasoning` parses its beginning.
    pub fn new(reasoning: Option<ReasoningParser>, calls: CallParser) -> Self {
        Self { reasoning, calls }
    }

    /// Returns true if the whole output is the answer.
    pub fn is_plain(&self) -> bool {
        self.reasoning.is_none() && matches!(self.calls, CallParser::Plain)
    }

    /// Returns true inside a call whose arguments are not complete.
    pub fn is_in_call(&self) -> bool {
        self.calls.is_in_call()
    }

    /// Returns the reason why an output ended: one that was cut within a call, as by a stop token, did not
    /// end by itself.
    pub fn end(&self, reason: FinishReason) -> FinishReason {
        match reason {
            FinishReason::Stop | FinishReason::StopString(_) if self.is_in_call() => {
                FinishReason::Length
            }
            reason => reason,
        }
    }

    /// Parses more of the output.
    pub fn push(&mut self, text: &str) -> Vec<OutputDelta> {
        match &mut self.reasoning {
            None => self.calls.push(text),
            Some(reasoning) => {
                let parts = reasoning.push(text);
                self.deltas(parts)
            }
        }
    }

    /// Returns text that was held back, at the end of the output. A call that was cut off before its
    /// name is complete is dropped.
    pub fn finish(&mut self) -> Vec<OutputDelta> {
        let rest = self.reasoning.as_mut().map(ReasoningParser::finish).unwrap_or_default();
        let mut deltas = self.deltas(rest);
        deltas.extend(self.calls.finish());
        deltas
    }

    fn deltas(&mut self, parts: Vec<OutputPart>) -> Vec<OutputDelta> {
        let delta = |part: OutputPart| match part {
            OutputPart::Reasoning(text) => vec![OutputDelta::Reasoning(text)],
            OutputPart::Answer(text) => self.calls.push(&text),
        };
        parts.into_iter().flat_map(delta).collect()
    }
}

impl AnswerParser for OutputParser {
    fn push_answer(&mut self, text: &str) -> String {
        self.push(text).iter().filter_map(OutputDelta::text).collect()
    }

    fn finish_answer(&mut self) -> String {
        self.finish().iter().filter_map(OutputDelta::text).collect()
    }

    fn held_len(&self) -> usize {
        let reasoning = self.reasoning.as_ref().map_or(0, |reasoning| reasoning.held().len());
        reasoning + self.calls.held_len()
    }
}

impl OutputBlocks {
    /// Parses a complete output.
    pub fn parse(output: &str, parser: &mut OutputParser) -> Self {
        let mut blocks = Self::default();
        for delta in parser.push(output).into_iter().chain(parser.finish()) {
            blocks.push(&delta);
        }
        blocks
    }

    /// Adds an increment to the last block or begins a new one. Returns true if it began one.
    pub fn push(&mut self, delta: &OutputDelta) -> bool {
        match (delta, self.0.last_mut()) {
            (OutputDelta::Text(more), Some(OutputBlock::Text(text)))
            | (OutputDelta::Reasoning(more), Some(OutputBlock::Reasoning(text))) => *text += more,
            (OutputDelta::Arguments(more), Some(OutputBlock::Call(call))) => call.arguments += more,
            (OutputDelta::Arguments(_), _) => unreachable!("arguments follow the start of a call"),
            (OutputDelta::Reasoning(text), _) => {
                self.0.push(OutputBlock::Reasoning(text.clone()));
                return true;
            }
            (OutputDelta::Text(text), _) => {
                self.0.push(OutputBlock::Text(text.clone()));
                return true;
            }
            (OutputDelta::CallStart(name), _) => {
                let (name, arguments) = (name.clone(), String::new());
                self.0.push(OutputBlock::Call(ToolCall { name, arguments }));
                return true;
            }
        }
        false
    }

    /// Returns the text of all blocks, without the reasoning.
    pub fn text(&self) -> String {
        let text = |block: &OutputBlock| match block {
            OutputBlock::Text(text) => Some(text.clone()),
            OutputBlock::Reasoning(_) | OutputBlock::Call(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// Returns the reasoning; empty if there is none.
    pub fn reasoning(&self) -> String {
        let text = |block: &OutputBlock| match block {
            OutputBlock::Reasoning(text) => Some(text.clone()),
            OutputBlock::Text(_) | OutputBlock::Call(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// Returns all calls.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.0.iter().filter_map(|block| match block {
            OutputBlock::Reasoning(_) | OutputBlock::Text(_) => None,
            OutputBlock::Call(call) => Some(call),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::CallFormat;
    use super::*;
    use wrinklefree::chat::AnswerScope;
    use wrinklefree::text::{ReasoningMarkers, ReasoningStart, ScopedText, StopScope};

    fn parts(format: CallFormat, output: &str, size: usize) -> Vec<(String, bool)> {
        let markers = ReasoningMarkers { open: "<think>", close: "</think>" };
        let reasoning = ReasoningParser::new(markers, ReasoningStart::Optional);
        let parser = OutputParser::new(Some(reasoning), format.parser(std::iter::empty(), false));
        let mut scope = AnswerScope::new(parser);
        let chars: Vec<char> = output.chars().collect();
        let chunks = chars.chunks(size).map(|chunk| chunk.iter().collect::<String>());
        let mut all: Vec<ScopedText> = chunks.flat_map(|chunk| scope.push(&chunk)).collect();
        all.extend(scope.finish());
        let mut joined: Vec<(String, bool)> = Vec::new();
        for part in all {
            match joined.last_mut() {
                Some((text, stops)) if *stops == part.stops => *text += &part.text,
                _ => joined.push((part.text, part.stops)),
            }
        }
        joined
    }

    #[test]
    fn stop_strings_act_on_the_answer() {
        let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"é\"}}\n</tool_call>";
        let xml =
            "<tool_call>\n<function=f>\n<parameter=a>\né\n</parameter>\n</function>\n</tool_call>";
        for (format, call) in [(CallFormat::Hermes, call), (CallFormat::QwenXml, xml)] {
            let output = format!("<think>Hm\n</think>\n\nSo <<t:\n{call}\n\nAnd\n{call}<tool");
            let want = [
                ("<think>Hm\n</think>\n\n".to_string(), false),
                ("So <<t:\n".into(), true),
                (format!("{call}\n\n"), false),
                ("And\n".into(), true),
                (call.into(), false),
                ("<tool".into(), true),
            ];
            for size in 1..=output.len() {
                assert_eq!(parts(format, &output, size), want, "{format:?}, {size}");
            }
            assert_eq!(parts(format, "<thin", 2), [("<thin".to_string(), true)]);
        }
    }
}
