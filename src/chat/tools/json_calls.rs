//! Streaming parser of tool calls whose arguments are JSON.

use super::held_text::HeldText;
use crate::chat::output::OutputDelta;

/// Texts around the parts of calls whose arguments are JSON.
#[derive(Debug, PartialEq, Eq)]
pub struct JsonFormat {
    /// Text before the first call.
    pub open: &'static str,
    /// Text before a name.
    pub before_name: &'static str,
    /// Text between name and arguments.
    pub after_name: &'static str,
    /// Text after arguments.
    pub close: &'static str,
    /// Text between the end of a call and the next name; `None` if an output has at most one.
    pub between: Option<&'static str>,
    /// Text after the last call.
    pub end: &'static str,
    /// True if calls come at the beginning of an output only.
    pub first: bool,
    /// True if text may follow calls, and further calls the text.
    pub mixed: bool,
}

/// Splits text with calls while it is generated.
#[derive(Clone, Debug)]
pub struct JsonCallParser {
    format: &'static JsonFormat,
    required: bool,
    state: State,
    held: HeldText,
    arguments: JsonScanner,
    /// True once text or a call has begun.
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Text,
    Name,
    Arguments,
    /// After the arguments of a call.
    Close,
    /// After a call: another one or the end of the calls.
    Between,
}

impl JsonCallParser {
    /// Makes a parser of one output. If a call is `required`, there is no text before it.
    pub fn new(format: &'static JsonFormat, required: bool) -> Self {
        let (held, arguments) = (HeldText::default(), JsonScanner::default());
        Self { format, required, state: State::Text, held, arguments, begun: false }
    }

    /// Length of the end of the text that is not parsed yet.
    pub fn held_len(&self) -> usize {
        self.held.text.len()
    }

    /// Returns true inside a call whose arguments are not complete.
    pub fn is_in_call(&self) -> bool {
        matches!(self.state, State::Name | State::Arguments)
    }

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
    /// name is complete is dropped, and so is what was to close a call.
    pub fn finish(&mut self) -> Vec<OutputDelta> {
        let text = match self.state {
            State::Text => self.held.rest_of_text(self.format.open, self.required),
            State::Name | State::Arguments | State::Close | State::Between => None,
        };
        text.into_iter().collect()
    }

    /// Parses up to the next marker. Returns the state after it if it has arrived.
    fn advance(&mut self, deltas: &mut Vec<OutputDelta>) -> Option<State> {
        match self.state {
            State::Text => self.text(deltas),
            State::Name => {
                let (head, rest) = self.held.text.split_once(self.format.after_name)?;
                let name = head.strip_prefix(self.format.before_name).unwrap_or(head);
                deltas.push(OutputDelta::CallStart(name.into()));
                self.held.text = rest.into();
                self.arguments = JsonScanner::default();
                Some(State::Arguments)
            }
            State::Arguments => {
                let end = self.arguments.push(&self.held.text);
                let rest = self.held.text.split_off(end);
                let arguments = std::mem::replace(&mut self.held.text, rest);
                deltas.extend((!arguments.is_empty()).then_some(OutputDelta::Arguments(arguments)));
                self.arguments.complete.then_some(State::Close)
            }
            State::Close => {
                self.take(self.format.close)?;
                self.held.end_call();
                Some(State::Between)
            }
            State::Between => {
                let starts =
                    |text: &str| text.starts_with(&self.held.text) && text != self.held.text;
                let between = self.format.between.unwrap_or_default();
                if starts(between) || starts(self.format.end) {
                    return None;
                }
                if !between.is_empty() && self.take(between).is_some_and(|found| found) {
                    return Some(State::Name);
                }
                self.take(self.format.end);
                Some(State::Text)
            }
        }
    }

    /// Parses text up to the first call.
    fn text(&mut self, deltas: &mut Vec<OutputDelta>) -> Option<State> {
        let open = self.format.open;
        if self.format.first {
            let text = &self.held.text;
            if !self.begun && text.len() < open.len() && open.starts_with(text.as_str()) {
                return None;
            }
            let called = !self.begun && text.starts_with(open);
            self.begun = true;
            if called {
                self.take(open);
                return Some(State::Name);
            }
            let text = std::mem::take(&mut self.held.text);
            deltas.extend(self.held.between_calls(&text));
            return None;
        }
        let (text, found) = self.held.until(&format!("{open}{}", self.format.before_name));
        deltas.extend(self.held.between_calls(&text));
        found.then_some(State::Name)
    }

    /// Takes a marker from the beginning of the held text. `None` if it may still come; false if the text
    /// begins otherwise.
    fn take(&mut self, marker: &str) -> Option<bool> {
        match self.held.text.strip_prefix(marker) {
            Some(rest) => {
                self.held.text = rest.to_string();
                Some(true)
            }
            None if marker.starts_with(&self.held.text) => None,
            None => Some(false),
        }
    }
}

/// Finds the end of a JSON object or array while it arrives.
#[derive(Clone, Debug, Default)]
struct JsonScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    complete: bool,
}

impl JsonScanner {
    /// Reads more of the value. Returns the number of bytes that belong to it.
    fn push(&mut self, text: &str) -> usize {
        for (at, byte) in text.bytes().enumerate() {
            if self.complete {
                return at;
            }
            match (self.in_string, byte) {
                (true, _) if self.escaped => self.escaped = false,
                (true, b'\\') => self.escaped = true,
                (_, b'"') => self.in_string = !self.in_string,
                (false, b'{' | b'[') => self.depth += 1,
                (false, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    self.complete = self.depth == 0;
                }
                _ => {}
            }
        }
        text.len()
    }
}

#[cfg(test)]
mod tests {
    use crate::chat::tools::CallFormat;
    use crate::chat::tools::CallParser;
    use crate::chat::{OutputBlock, OutputBlocks, OutputParser, ToolCall};

    fn parser(format: CallFormat) -> OutputParser {
        OutputParser::new(None, format.parser(std::iter::empty(), false))
    }

    #[test]
    fn a_required_call_that_is_cut_leaves_no_text() {
        for format in [
            CallFormat::Hermes,
            CallFormat::QwenXml,
            CallFormat::GlmXml,
            CallFormat::Llama,
            CallFormat::MistralArgs,
        ] {
            let open = format.json().map_or("<tool_call>", |json| json.open);
            for cut in 1..open.len() {
                let mut parser = OutputParser::new(None, format.parser(std::iter::empty(), true));
                assert_eq!(parser.parse(&open[..cut]).0, [], "{format:?}, {cut}");
            }
        }
    }

    fn parse(format: CallFormat, output: &str, size: usize) -> OutputBlocks {
        let (mut parser, mut blocks) = (parser(format), OutputBlocks::default());
        let chars: Vec<char> = output.chars().collect();
        for part in chars.chunks(size) {
            let deltas = parser.push(&part.iter().collect::<String>());
            deltas.iter().for_each(|delta| _ = blocks.push(delta));
        }
        parser.finish().iter().for_each(|delta| _ = blocks.push(delta));
        blocks
    }

    fn call(name: &str, arguments: &str) -> OutputBlock {
        OutputBlock::Call(ToolCall { name: name.into(), arguments: arguments.into() })
    }

    fn text(text: &str) -> OutputBlock {
        OutputBlock::Text(text.into())
    }

    const ARGUMENTS: &str = "{\"x\": {\"y\": \"a]}\\\"\\n\"}, \"z\": [1]}";

    /// Outputs of all formats with two calls, if there may be two, and their parts.
    fn outputs() -> Vec<(CallFormat, String, Vec<OutputBlock>)> {
        let (f, g) = (call("f", ARGUMENTS), call("g", "{}"));
        let both = || vec![text("See:"), f.clone(), g.clone()];
        let hermes = format!(
            "See:<tool_call>\n{{\"name\": \"f\", \"arguments\": {ARGUMENTS}}}\n</tool_call>\n\
             <tool_call>\n{{\"name\": \"g\", \"arguments\": {{}}}}\n</tool_call>\n\nDone.\n\n- a\n\n"
        );
        let mistral = format!(
            "See:[TOOL_CALLS][{{\"name\": \"f\", \"arguments\": {ARGUMENTS}}}, \
             {{\"name\": \"g\", \"arguments\": {{}}}}]"
        );
        let llama = format!("{{\"name\": \"f\", \"parameters\": {ARGUMENTS}}}");
        let functionary =
            format!("See:<function=f>{ARGUMENTS}</function><function=g>{{}}</function>");
        let args = format!("See:[TOOL_CALLS]f[ARGS]{ARGUMENTS}[TOOL_CALLS]g[ARGS]{{}}");
        vec![
            (CallFormat::Hermes, hermes, [both(), vec![text("Done.\n\n- a\n\n")]].concat()),
            (CallFormat::Mistral, mistral, both()),
            (CallFormat::MistralArgs, args, both()),
            (CallFormat::Functionary, functionary, both()),
            (CallFormat::Llama, llama, vec![f.clone()]),
            (
                CallFormat::Llama,
                "{\"name\": 1} [no call]".into(),
                vec![text("{\"name\": 1} [no call]")],
            ),
            (CallFormat::Hermes, "1 < 2 <tool_cal".into(), vec![text("1 < 2 <tool_cal")]),
            (CallFormat::Hermes, "a <tool_call> b".into(), vec![text("a <tool_call> b")]),
            (CallFormat::Hermes, "a <tool_call>".into(), vec![text("a <tool_call>")]),
            (CallFormat::Hermes, "a <tool_call>\n{\"na".into(), vec![text("a ")]),
        ]
    }

    #[test]
    fn text_and_calls_are_separated_however_they_arrive() {
        for (format, output, want) in outputs() {
            for size in 1..=output.len() {
                assert_eq!(parse(format, &output, size).0, want, "{format:?}, {size}");
            }
            let mut plain = OutputParser::new(None, CallParser::Plain);
            assert_eq!(plain.parse(&output).0, [text(&output)]);
        }
    }

    /// A limit of tokens may end an output anywhere.
    #[test]
    fn cut_calls_have_the_beginning_of_their_arguments() {
        for (format, output, want) in outputs() {
            let whole: Vec<&OutputBlock> = want.iter().collect();
            for (end, _) in output.char_indices() {
                for size in [1, 3, output.len()] {
                    let cut = parse(format, &output[..end], size);
                    let calls = |block: &&OutputBlock| matches!(block, OutputBlock::Call(_));
                    let all = whole.iter().copied().filter(calls);
                    for (call, all) in cut.calls().zip(all) {
                        let OutputBlock::Call(all) = all else { continue };
                        assert_eq!(call.name, all.name);
                        let begins = all.arguments.starts_with(&call.arguments);
                        assert!(
                            begins,
                            "{format:?}, {end}: {} of {}",
                            call.arguments, all.arguments
                        );
                    }
                }
            }
        }
    }
}
