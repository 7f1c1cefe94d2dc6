//! Streaming parser of tool calls in the format of Hermes 2.

use super::held_text::HeldText;
use super::output::OutputDelta;
use super::{AFTER_NAME, BEFORE_NAME, CLOSE, OPEN};
use serde::de::IgnoredAny;

/// Splits text with calls while it is generated.
#[derive(Clone, Debug, Default)]
pub struct HermesParser {
    state: State,
    held: HeldText,
    /// Arguments of the current call so far.
    arguments: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Text,
    Name,
    Arguments,
}

impl HermesParser {
    /// Parses more of the output.
    pub fn push(&mut self, text: &str) -> Vec<OutputDelta> {
        self.held.text += text;
        let mut deltas = Vec::new();
        while let Some(state) = self.advance(&mut deltas) {
            self.state = state;
        }
        deltas
    }

    /// Returns text that was held back, at the end of the output. A call that was cut off before its
    /// name is complete is dropped.
    pub fn finish(&mut self) -> Vec<OutputDelta> {
        let rest = std::mem::take(&mut self.held.text);
        match self.state {
            State::Text => self.held.between_calls(&rest).into_iter().collect(),
            State::Name => Vec::new(),
            // Behind complete arguments comes the beginning of the closing marker.
            State::Arguments if is_json(&self.arguments) => Vec::new(),
            State::Arguments => arguments(rest.split('\n').next().unwrap_or_default()),
        }
    }

    /// Parses up to the next marker. Returns the state behind it if it has arrived.
    fn advance(&mut self, deltas: &mut Vec<OutputDelta>) -> Option<State> {
        match self.state {
            State::Text => {
                let (text, found) = self.held.until(OPEN);
                deltas.extend(self.held.between_calls(&text));
                found.then_some(State::Name)
            }
            State::Name => match self.held.text.split_once(AFTER_NAME) {
                None => None,
                Some((head, rest)) => {
                    let name = head.strip_prefix(BEFORE_NAME).unwrap_or(head);
                    deltas.push(OutputDelta::CallStart(name.into()));
                    self.held.text = rest.into();
                    self.arguments.clear();
                    Some(State::Arguments)
                }
            },
            State::Arguments => {
                let (text, found) = self.held.until_end_of_call(CLOSE);
                self.arguments += &text;
                deltas.extend(arguments(&text));
                found.then_some(State::Text)
            }
        }
    }
}

fn arguments(text: &str) -> Vec<OutputDelta> {
    let delta = (!text.is_empty()).then(|| OutputDelta::Arguments(text.into()));
    delta.into_iter().collect()
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::output::{CallParser, OutputBlock, OutputBlocks, OutputParser, ToolCall};
    use super::*;

    fn parse(output: &str, calls: bool) -> OutputBlocks {
        let parser =
            if calls { CallParser::Hermes(HermesParser::default()) } else { CallParser::Plain };
        OutputBlocks::parse(output, OutputParser::new(None, parser))
    }

    const ANSWER: &str = "Let me <see>.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": \
        {\"city\": \"{Oslo}\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n\
        </tool_call>\n\nDone.";

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { name: name.into(), arguments: arguments.into() }
    }

    fn read(answer: &str) -> (String, Vec<ToolCall>) {
        let blocks = parse(answer, true);
        (blocks.text(), blocks.calls().cloned().collect())
    }

    #[test]
    fn text_and_calls_are_separated() {
        let (text, calls) = read(ANSWER);
        assert_eq!(text, "Let me <see>.\nDone.");
        assert_eq!(calls, [call("weather", "{\"city\": \"{Oslo}\"}"), call("time", "{}")]);
        assert_eq!(read("1 < 2 <tool_cal"), ("1 < 2 <tool_cal".into(), vec![]));
        assert_eq!(read("a<tool_call>\n{\"name\": \"we"), ("a".into(), vec![]));
        let cut = read("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1");
        assert_eq!(cut, (String::new(), vec![call("f", "{\"x\": 1")]));
    }

    /// A limit of tokens may end an output anywhere.
    #[test]
    fn cut_calls_have_the_beginning_of_their_arguments() {
        let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": {\"y\": \"a\\nb\"}}}\n</tool_call>";
        let start = call.find("{\"x\"").expect("there");
        let whole = "{\"x\": {\"y\": \"a\\nb\"}}";
        for end in start..call.len() {
            let want = &whole[..whole.len().min(end - start)];
            let calls: Vec<ToolCall> = parse(&call[..end], true).calls().cloned().collect();
            assert_eq!(calls[0].arguments, want, "{}", &call[..end]);
        }
    }

    #[test]
    fn blocks_keep_their_order() {
        let text = |text: &str| OutputBlock::Text(text.into());
        let calls = [call("weather", "{\"city\": \"{Oslo}\"}"), call("time", "{}")];
        let calls = calls.map(OutputBlock::Call);
        let [weather, time] = calls;
        assert_eq!(parse(ANSWER, true).0, [text("Let me <see>.\n"), weather, time, text("Done.")]);
        assert_eq!(parse(ANSWER, false).0, [text(ANSWER)]);
        assert_eq!(parse("", true), OutputBlocks::default());
    }

    #[test]
    fn the_size_of_increments_does_not_matter() {
        for size in 1..ANSWER.len() {
            let (mut parser, mut deltas) = (HermesParser::default(), Vec::new());
            for part in ANSWER.as_bytes().chunks(size) {
                deltas.extend(parser.push(std::str::from_utf8(part).unwrap()));
            }
            deltas.extend(parser.finish());
            let joined = |of: &dyn Fn(&OutputDelta) -> Option<&String>| -> String {
                deltas.iter().filter_map(of).map(String::as_str).collect()
            };
            let text = joined(&|p| if let OutputDelta::Text(t) = p { Some(t) } else { None });
            let names = joined(&|p| if let OutputDelta::CallStart(t) = p { Some(t) } else { None });
            let arguments =
                joined(&|p| if let OutputDelta::Arguments(t) = p { Some(t) } else { None });
            assert_eq!(text, "Let me <see>.\nDone.", "{size}");
            assert_eq!((&*names, &*arguments), ("weathertime", "{\"city\": \"{Oslo}\"}{}"));
        }
    }
}
