//! From the text of an output to reasoning, answer and calls.

use super::AnswerParser;
use super::output::{OutputBlocks, OutputDelta};
use super::tools::CallParser;
use crate::engine::FinishReason;
use crate::text::{OutputPart, ReasoningParser};

/// Splits an output into reasoning, text and calls while it is generated. Text that may be the beginning
/// of a marker is held back.
#[derive(Clone, Debug, Default)]
pub struct OutputParser {
    reasoning: Option<ReasoningParser>,
    calls: CallParser,
}

impl OutputParser {
    /// Makes a parser of one output; `reasoning` parses its beginning.
    #[must_use]
    pub fn new(reasoning: Option<ReasoningParser>, calls: CallParser) -> Self {
        Self { reasoning, calls }
    }

    /// Returns true if the whole output is the answer.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.reasoning.is_none() && matches!(self.calls, CallParser::Plain)
    }

    /// Returns true inside a call whose arguments are not complete.
    #[must_use]
    pub fn is_in_call(&self) -> bool {
        self.calls.is_in_call()
    }

    /// Returns the reason why an output ended: one that was cut within a call, as by a stop token, did not
    /// end by itself.
    #[must_use]
    pub fn end(&self, reason: FinishReason) -> FinishReason {
        match reason {
            FinishReason::Stop | FinishReason::StopString(_) if self.is_in_call() => {
                FinishReason::Length
            }
            reason => reason,
        }
    }

    /// Parses a complete output.
    pub fn parse(&mut self, output: &str) -> OutputBlocks {
        let mut blocks = OutputBlocks::default();
        for delta in self.push(output).into_iter().chain(self.finish()) {
            blocks.push(&delta);
        }
        blocks
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::AnswerScope;
    use crate::chat::tools::CallFormat;
    use crate::text::{ReasoningMarkers, ReasoningStart, ScopedText, StopScope};

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
