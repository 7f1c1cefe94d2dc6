//! Parts of an output in which stop strings act.

use crate::settings::OutputReasoning;
use crate::text::{OutputPart, ReasoningParser, ScopedText, StopScope};
use std::fmt::Debug;

/// Finds the answer in an output while it is generated.
pub trait AnswerParser: Clone + Debug + Send + Sync + 'static {
    /// Parses more of the output. Returns the new text of the answer.
    fn push_answer(&mut self, text: &str) -> String;

    /// Returns the text of the answer that was held back, at the end of the output.
    fn finish_answer(&mut self) -> String;

    /// Bytes at the end of the output that are not parsed yet.
    fn held_len(&self) -> usize;
}

impl AnswerParser for ReasoningParser {
    fn push_answer(&mut self, text: &str) -> String {
        answer(self.push(text))
    }

    fn finish_answer(&mut self) -> String {
        answer(self.finish())
    }

    fn held_len(&self) -> usize {
        self.held().len()
    }
}

fn answer(parts: Vec<OutputPart>) -> String {
    let answer = |part| match part {
        OutputPart::Answer(text) => Some(text),
        OutputPart::Reasoning(_) => None,
    };
    parts.into_iter().filter_map(answer).collect()
}

/// The part of an output in which stop strings act: its answer, not its reasoning and calls.
///
/// ```
/// use wrinklefree::chat::AnswerScope;
/// use wrinklefree::text::{ReasoningMarkers, ReasoningParser, ReasoningStart, StopScope};
///
/// let markers = ReasoningMarkers { open: "<think>", close: "</think>" };
/// let mut scope = AnswerScope::new(ReasoningParser::new(markers, ReasoningStart::Open));
/// let parts = scope.push("6 times 7.</think>42");
/// let stops: Vec<_> = parts.iter().map(|part| (part.text.as_str(), part.stops)).collect();
/// assert_eq!(stops, [("6 times 7.</think>", false), ("42", true)]);
/// ```
#[derive(Clone, Debug)]
pub struct AnswerScope<P> {
    parser: P,
    /// Text that is not returned yet.
    pending: String,
}

impl AnswerScope<ReasoningParser> {
    /// Returns the scope of an output with this reasoning; `None` if all of it is the answer.
    #[must_use]
    pub fn for_reasoning(reasoning: &OutputReasoning) -> Option<Box<dyn StopScope>> {
        reasoning.parser().map(|parser| Box::new(Self::new(parser)) as Box<dyn StopScope>)
    }
}

impl<P: AnswerParser> AnswerScope<P> {
    /// Makes the scope of an output that `parser` parses.
    pub fn new(parser: P) -> Self {
        Self { parser, pending: String::new() }
    }

    /// Moves the text that is decided to `parts`: the answer's new text, and what came before it.
    fn decide(&mut self, answer: &str, held: usize, parts: &mut Vec<ScopedText>) {
        let rest = self.pending.split_off(self.pending.len().saturating_sub(held));
        let decided = std::mem::replace(&mut self.pending, rest);
        let before = decided.strip_suffix(answer);
        let (before, answer) = before.map_or((&*decided, ""), |before| (before, answer));
        for (text, stops) in [(before, false), (answer, true)] {
            match parts.last_mut() {
                _ if text.is_empty() => {}
                Some(last) if last.stops == stops => last.text += text,
                _ => parts.push(ScopedText { text: text.into(), stops }),
            }
        }
    }
}

impl<P: AnswerParser> StopScope for AnswerScope<P> {
    fn push(&mut self, text: &str) -> Vec<ScopedText> {
        let mut parts = Vec::new();
        // After one more character, new text of the answer is the end of what is decided.
        for character in text.chars() {
            self.pending.push(character);
            let answer = self.parser.push_answer(character.encode_utf8(&mut [0; 4]));
            let held = self.parser.held_len();
            self.decide(&answer, held, &mut parts);
        }
        parts
    }

    fn finish(&mut self) -> Vec<ScopedText> {
        let (mut parts, answer) = (Vec::new(), self.parser.finish_answer());
        self.decide(&answer, 0, &mut parts);
        parts
    }

    fn boxed_clone(&self) -> Box<dyn StopScope> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{ReasoningMarkers, ReasoningStart};

    #[test]
    fn stop_strings_act_on_the_answer() {
        let markers = ReasoningMarkers { open: "<think>", close: "</think>" };
        for (output, reasoning) in
            [("<think>Hä\n</think>\n\n", true), ("<thin", false), ("", false)]
        {
            let text = format!("{output}So.");
            let want =
                [(output, !reasoning), ("So.", true)].map(|(text, stops)| (text.into(), stops));
            for size in 1..=text.chars().count() {
                let parser = ReasoningParser::new(markers, ReasoningStart::Optional);
                let mut scope = AnswerScope::new(parser);
                let chars: Vec<char> = text.chars().collect();
                let chunks = chars.chunks(size).map(|chunk| chunk.iter().collect::<String>());
                let mut all: Vec<ScopedText> =
                    chunks.flat_map(|chunk| scope.push(&chunk)).collect();
                all.extend(scope.finish());
                let texts = |stops: bool| -> String {
                    all.iter().filter(|part| part.stops == stops).map(|part| &*part.text).collect()
                };
                let expected = |stops: bool| -> String {
                    let parts: &[(String, bool); 2] = &want;
                    parts.iter().filter(|part| part.1 == stops).map(|part| &*part.0).collect()
                };
                assert_eq!(texts(true), expected(true), "{output}, {size}");
                assert_eq!(texts(false), expected(false), "{output}, {size}");
            }
        }
    }
}
