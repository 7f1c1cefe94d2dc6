//! Calls in an answer, as it comes.

use super::{AFTER_NAME, BEFORE_NAME, CLOSE, OPEN};

/// What an answer turns out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text.
    Text(String),
    /// A call of this function begins.
    Call(String),
    /// More of the arguments of the last call, as JSON.
    Arguments(String),
}

/// A part of a whole answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Text.
    Text(String),
    /// A call.
    Call(Call),
}

/// The parts of an answer so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blocks(pub Vec<Block>);

/// A whole call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// The function.
    pub name: String,
    /// Its arguments, as JSON.
    pub arguments: String,
}

/// Takes an answer apart while it comes. What may be the beginning of a mark is held back.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    held: String,
    /// There has been a call: line breaks behind it are no text.
    called: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Text,
    Name,
    Arguments,
    /// Everything is text.
    Plain,
}

impl Parser {
    /// For answers that can hold calls, or for plain text.
    pub fn new(calls: bool) -> Self {
        let state = if calls { State::Text } else { State::Plain };
        Self { state, ..Self::default() }
    }

    /// Takes more of the answer.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held += text;
        let mut pieces = Vec::new();
        while self.advance(&mut pieces) {}
        pieces
    }

    /// What was held back when the answer ends. The beginning of a call without its name is nothing.
    pub fn finish(&mut self) -> Vec<Piece> {
        let rest = std::mem::take(&mut self.held);
        match self.state {
            State::Text | State::Plain => self.text(&rest).into_iter().collect(),
            State::Name => Vec::new(),
            State::Arguments => arguments(&rest).into_iter().collect(),
        }
    }

    /// Goes on to the next state, if that is reached.
    fn advance(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.state {
            State::Text => {
                let (text, found) = self.until(OPEN);
                pieces.extend(self.text(&text));
                self.go(State::Name, found)
            }
            State::Name => match self.held.split_once(AFTER_NAME) {
                None => false,
                Some((head, rest)) => {
                    let name = head.strip_prefix(BEFORE_NAME).unwrap_or(head);
                    pieces.push(Piece::Call(name.into()));
                    self.held = rest.into();
                    self.go(State::Arguments, true)
                }
            },
            State::Arguments => {
                let (text, found) = self.until(CLOSE);
                pieces.extend(arguments(&text));
                self.called |= found;
                self.go(State::Text, found)
            }
            State::Plain => {
                let text = std::mem::take(&mut self.held);
                pieces.extend(self.text(&text));
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

    /// What stands before a mark, and whether the mark is there; what may be its beginning is held
    /// back.
    fn until(&mut self, mark: &str) -> (String, bool) {
        if let Some((text, rest)) = self.held.split_once(mark) {
            let (text, rest) = (text.to_string(), rest.to_string());
            self.held = rest;
            return (text, true);
        }
        let begins = |&at: &usize| mark.starts_with(&self.held[at..]);
        let mut borders = self.held.char_indices().map(|(at, _)| at);
        let keep = borders.find(begins).unwrap_or(self.held.len());
        let held = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, held), false)
    }

    fn text(&self, text: &str) -> Option<Piece> {
        let text = if self.called { text.trim_start_matches('\n') } else { text };
        (!text.is_empty()).then(|| Piece::Text(text.into()))
    }
}

fn arguments(text: &str) -> Option<Piece> {
    (!text.is_empty()).then(|| Piece::Arguments(text.into()))
}

impl Blocks {
    /// The parts of a whole answer, which can hold calls or is plain text.
    pub fn read(answer: &str, calls: bool) -> Self {
        let (mut parser, mut blocks) = (Parser::new(calls), Self::default());
        for piece in parser.push(answer).into_iter().chain(parser.finish()) {
            blocks.push(&piece);
        }
        blocks
    }

    /// Adds to the last part, or begins another: then it says so.
    pub fn push(&mut self, piece: &Piece) -> bool {
        match (piece, self.0.last_mut()) {
            (Piece::Text(more), Some(Block::Text(text))) => *text += more,
            (Piece::Arguments(more), Some(Block::Call(call))) => call.arguments += more,
            (Piece::Arguments(_), _) => unreachable!("a call comes first"),
            (Piece::Text(text), _) => {
                self.0.push(Block::Text(text.clone()));
                return true;
            }
            (Piece::Call(name), _) => {
                let (name, arguments) = (name.clone(), String::new());
                self.0.push(Block::Call(Call { name, arguments }));
                return true;
            }
        }
        false
    }

    /// All text.
    pub fn text(&self) -> String {
        let text = |block: &Block| match block {
            Block::Text(text) => Some(text.clone()),
            Block::Call(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// All calls.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.0.iter().filter_map(|block| match block {
            Block::Text(_) => None,
            Block::Call(call) => Some(call),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "Let me <see>.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": \
        {\"city\": \"{Oslo}\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n\
        </tool_call>\n\nDone.";

    fn call(name: &str, arguments: &str) -> Call {
        Call { name: name.into(), arguments: arguments.into() }
    }

    fn read(answer: &str) -> (String, Vec<Call>) {
        let blocks = Blocks::read(answer, true);
        (blocks.text(), blocks.calls().cloned().collect())
    }

    #[test]
    fn text_and_calls_are_told_apart() {
        let (text, calls) = read(ANSWER);
        assert_eq!(text, "Let me <see>.\nDone.");
        assert_eq!(calls, [call("weather", "{\"city\": \"{Oslo}\"}"), call("time", "{}")]);
        assert_eq!(read("1 < 2 <tool_cal"), ("1 < 2 <tool_cal".into(), vec![]));
        assert_eq!(read("a<tool_call>\n{\"name\": \"we"), ("a".into(), vec![]));
        let cut = read("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1");
        assert_eq!(cut, (String::new(), vec![call("f", "{\"x\": 1")]));
    }

    #[test]
    fn parts_come_in_order() {
        let text = |text: &str| Block::Text(text.into());
        let calls = [call("weather", "{\"city\": \"{Oslo}\"}"), call("time", "{}")];
        let calls = calls.map(Block::Call);
        let [weather, time] = calls;
        assert_eq!(
            Blocks::read(ANSWER, true).0,
            [text("Let me <see>.\n"), weather, time, text("Done.")]
        );
        assert_eq!(Blocks::read(ANSWER, false).0, [text(ANSWER)]);
        assert_eq!(Blocks::read("", true), Blocks::default());
    }

    #[test]
    fn however_it_comes_it_is_the_same() {
        for size in 1..ANSWER.len() {
            let (mut parser, mut pieces) = (Parser::default(), Vec::new());
            for part in ANSWER.as_bytes().chunks(size) {
                pieces.extend(parser.push(std::str::from_utf8(part).unwrap()));
            }
            pieces.extend(parser.finish());
            let joined = |of: &dyn Fn(&Piece) -> Option<&String>| -> String {
                pieces.iter().filter_map(of).map(String::as_str).collect()
            };
            let text = joined(&|p| if let Piece::Text(t) = p { Some(t) } else { None });
            let names = joined(&|p| if let Piece::Call(t) = p { Some(t) } else { None });
            let arguments = joined(&|p| if let Piece::Arguments(t) = p { Some(t) } else { None });
            assert_eq!(text, "Let me <see>.\nDone.", "{size}");
            assert_eq!((&*names, &*arguments), ("weathertime", "{\"city\": \"{Oslo}\"}{}"));
        }
    }
}
