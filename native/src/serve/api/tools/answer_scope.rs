//! Parts of an output in which stop strings act.

use super::output::{OutputDelta, OutputParser};
use wrinklefree::text::{ScopedText, StopScope};

/// Finds the answer in an output: stop strings do not act on the reasoning and on calls.
#[derive(Clone, Debug)]
pub struct AnswerScope {
    parser: OutputParser,
    /// Text that is not returned yet.
    pending: String,
}

impl AnswerScope {
    /// Makes the scope of an output that `parser` parses.
    pub fn new(parser: OutputParser) -> Self {
        Self { parser, pending: String::new() }
    }

    /// Moves the text that is decided to `parts`: the answer's new text, and what came before it.
    fn decide(&mut self, deltas: &[OutputDelta], held: usize, parts: &mut Vec<ScopedText>) {
        let answer: String = deltas.iter().filter_map(OutputDelta::text).collect();
        let rest = self.pending.split_off(self.pending.len().saturating_sub(held));
        let decided = std::mem::replace(&mut self.pending, rest);
        let before = decided.strip_suffix(&answer);
        let (before, answer) = before.map_or((&*decided, ""), |before| (before, &*answer));
        for (text, stops) in [(before, false), (answer, true)] {
            match parts.last_mut() {
                _ if text.is_empty() => {}
                Some(last) if last.stops == stops => last.text += text,
                _ => parts.push(ScopedText { text: text.into(), stops }),
            }
        }
    }
}

impl StopScope for AnswerScope {
    fn push(&mut self, text: &str) -> Vec<ScopedText> {
        let mut parts = Vec::new();
        // After one more character, new text of the answer is the end of what is decided.
        for character in text.chars() {
            self.pending.push(character);
            let deltas = self.parser.push(character.encode_utf8(&mut [0; 4]));
            let held = self.parser.held_len();
            self.decide(&deltas, held, &mut parts);
        }
        parts
    }

    fn finish(&mut self) -> Vec<ScopedText> {
        let (mut parts, deltas) = (Vec::new(), self.parser.finish());
        self.decide(&deltas, 0, &mut parts);
        parts
    }

    fn boxed_clone(&self) -> Box<dyn StopScope> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::CallFormat;
    use super::*;
    use wrinklefree::text::{ReasoningMarkers, ReasoningParser, ReasoningStart};

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
