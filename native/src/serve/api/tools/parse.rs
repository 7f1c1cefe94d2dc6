//! Streaming parser of tool calls in outputs.

use super::{AFTER_NAME, BEFORE_NAME, CLOSE, OPEN};

/// An increment of an output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputDelta {
    /// More text.
    Text(String),
    /// A call of this function begins.
    CallStart(String),
    /// More of the arguments of the last call, as JSON.
    Arguments(String),
}

/// A part of a complete output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputBlock {
    /// A text.
    Text(String),
    /// A call.
    Call(ToolCall),
}

/// The texts and calls of an output, in order.
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

/// Splits an output into text and calls while it is generated. Text that may be the beginning of a
/// marker is held back.
#[derive(Debug, Default)]
pub struct ToolCallParser {
    state: State,
    held: String,
    /// True after the first call: line breaks after calls are dropped.
    called: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Text,
    Name,
    Arguments,
    /// Calls are not allowed: everything is text.
    Plain,
}

impl ToolCallParser {
    /// Creates a parser. Without `calls` everything is text.
    pub fn new(calls: bool) -> Self {
        let state = if calls { State::Text } else { State::Plain };
        Self { state, ..Self::default() }
    }

    /// Parses more of the output.
    pub fn push(&mut self, text: &str) -> Vec<OutputDelta> {
        self.held += text;
        let mut deltas = Vec::new();
        while self.advance(&mut deltas) {}
        deltas
    }

    /// Returns text that was held back, at the end of the output. A call that was cut off before its
    /// name is complete is dropped.
    pub fn finish(&mut self) -> Vec<OutputDelta> {
        let rest = std::mem::take(&mut self.held);
        match self.state {
            State::Text | State::Plain => self.text(&rest).into_iter().collect(),
            State::Name => Vec::new(),
            State::Arguments => arguments(&rest).into_iter().collect(),
        }
    }

    /// Moves to the next state if its marker has arrived, and returns whether it did.
    fn advance(&mut self, deltas: &mut Vec<OutputDelta>) -> bool {
        match self.state {
            State::Text => {
                let (text, found) = self.until(OPEN);
                deltas.extend(self.text(&text));
                self.go(State::Name, found)
            }
            State::Name => match self.held.split_once(AFTER_NAME) {
                None => false,
                Some((head, rest)) => {
                    let name = head.strip_prefix(BEFORE_NAME).unwrap_or(head);
                    deltas.push(OutputDelta::CallStart(name.into()));
                    self.held = rest.into();
                    self.go(State::Arguments, true)
                }
            },
            State::Arguments => {
                let (text, found) = self.until(CLOSE);
                deltas.extend(arguments(&text));
                self.called |= found;
                self.go(State::Text, found)
            }
            State::Plain => {
                let text = std::mem::take(&mut self.held);
                deltas.extend(self.text(&text));
                false
            }
        }
    }

    fn go(&mut self, state: State, found: bool) -> bool {
        if found {
            self.state = state;
        }
        found
    }

    /// Takes the text before a marker and returns it with whether the marker was found. Text that may
    /// be the marker's beginning stays.
    fn until(&mut self, marker: &str) -> (String, bool) {
        if let Some((text, rest)) = self.held.split_once(marker) {
            let (text, rest) = (text.to_string(), rest.to_string());
            self.held = rest;
            return (text, true);
        }
        let begins = |&at: &usize| marker.starts_with(&self.held[at..]);
        let mut borders = self.held.char_indices().map(|(at, _)| at);
        let keep = borders.find(begins).unwrap_or(self.held.len());
        let held = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, held), false)
    }

    fn text(&self, text: &str) -> Option<OutputDelta> {
        let text = if self.called { text.trim_start_matches('\n') } else { text };
        (!text.is_empty()).then(|| OutputDelta::Text(text.into()))
    }
}

fn arguments(text: &str) -> Option<OutputDelta> {
    (!text.is_empty()).then(|| OutputDelta::Arguments(text.into()))
}

impl OutputBlocks {
    /// Parses a complete output. Without `calls` everything is text.
    pub fn parse(output: &str, calls: bool) -> Self {
        let (mut parser, mut blocks) = (ToolCallParser::new(calls), Self::default());
        for delta in parser.push(output).into_iter().chain(parser.finish()) {
            blocks.push(&delta);
        }
        blocks
    }

    /// Adds an increment to the last block or begins a new one. Returns true if it began one.
    pub fn push(&mut self, delta: &OutputDelta) -> bool {
        match (delta, self.0.last_mut()) {
            (OutputDelta::Text(more), Some(OutputBlock::Text(text))) => *text += more,
            (OutputDelta::Arguments(more), Some(OutputBlock::Call(call))) => call.arguments += more,
            (OutputDelta::Arguments(_), _) => unreachable!("arguments follow the start of a call"),
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

    /// Returns the text of all blocks.
    pub fn text(&self) -> String {
        let text = |block: &OutputBlock| match block {
            OutputBlock::Text(text) => Some(text.clone()),
            OutputBlock::Call(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// Returns all calls.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.0.iter().filter_map(|block| match block {
            OutputBlock::Text(_) => None,
            OutputBlock::Call(call) => Some(call),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "Let me <see>.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": \
        {\"city\": \"{Oslo}\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n\
        </tool_call>\n\nDone.";

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { name: name.into(), arguments: arguments.into() }
    }

    fn read(answer: &str) -> (String, Vec<ToolCall>) {
        let blocks = OutputBlocks::parse(answer, true);
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

    #[test]
    fn blocks_keep_their_order() {
        let text = |text: &str| OutputBlock::Text(text.into());
        let calls = [call("weather", "{\"city\": \"{Oslo}\"}"), call("time", "{}")];
        let calls = calls.map(OutputBlock::Call);
        let [weather, time] = calls;
        assert_eq!(
            OutputBlocks::parse(ANSWER, true).0,
            [text("Let me <see>.\n"), weather, time, text("Done.")]
        );
        assert_eq!(OutputBlocks::parse(ANSWER, false).0, [text(ANSWER)]);
        assert_eq!(OutputBlocks::parse("", true), OutputBlocks::default());
    }

    #[test]
    fn the_size_of_increments_does_not_matter() {
        for size in 1..ANSWER.len() {
            let (mut parser, mut deltas) = (ToolCallParser::default(), Vec::new());
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
