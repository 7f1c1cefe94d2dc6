//! YAML with the line of each value. `figment` was considered: it knows the file of
//! a value but not its line, and neither for an unknown key.

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

/// Levels of values inside each other: a section, a key, a list. The parser itself is not recursive.
const DEPTH: usize = 8;

/// A value and where it stands.
#[derive(Debug, PartialEq)]
pub struct Node {
    /// The line, from 1.
    pub line: usize,
    pub value: Value,
}

/// A value. Numbers and booleans stay texts until a key parses them.
#[derive(Debug, PartialEq)]
pub enum Value {
    Null,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// The document in a text.
///
/// # Errors
/// Names the line.
pub fn parse(text: &str) -> Result<Node, String> {
    let mut document = Document(Parser::new_from_str(text));
    let mut found = Node { line: 1, value: Value::Null };
    let mut documents = 0;
    loop {
        let (event, span) = document.next()?;
        match event {
            Event::StreamEnd => return Ok(found),
            Event::DocumentStart(..) if documents > 0 => {
                return Err(at(span.start.line(), "one document only"));
            }
            Event::DocumentStart(..) => {
                let (event, span) = document.next()?;
                found = document.node(event, span, DEPTH)?;
                documents += 1;
            }
            _ => {}
        }
    }
}

/// A message with its line.
pub fn at(line: usize, message: impl std::fmt::Display) -> String {
    format!("line {line}: {message}")
}

struct Document<'a>(Parser<'a, StrInput<'a>>);

impl<'a> Document<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        loop {
            match self.0.next_event() {
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => {
                    return Err(at(error.marker().line(), format!("no YAML: {}", error.info())));
                }
                None => return Ok((Event::StreamEnd, Span::default())),
            }
        }
    }

    /// The value that begins with an event.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, String> {
        let line = span.start.line();
        if depth == 0 {
            return Err(at(line, "values inside of values inside of values: no key takes that"));
        }
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) if is_null(&text) => Value::Null,
            Event::Scalar(text, ..) => Value::Text(text.into_owned()),
            Event::SequenceStart(..) => Value::List(self.list(depth - 1)?),
            Event::MappingStart(..) => Value::Map(self.map(depth - 1)?),
            _ => return Err(at(line, "anchors and aliases are not for configurations")),
        };
        Ok(Node { line, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, depth)?),
            }
        }
    }

    /// Entries with the lines of their keys.
    fn map(&mut self, depth: usize) -> Result<Vec<(String, Node)>, String> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        loop {
            let (key, line) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(entries),
                (Event::Scalar(key, ..), span) => (key.into_owned(), span.start.line()),
                (_, span) => return Err(at(span.start.line(), "a key must be a name")),
            };
            if let Some((_, first)) = entries.iter().find(|(known, _)| *known == key) {
                return Err(at(line, format!("`{key}` is on line {} already", first.line)));
            }
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth)?;
            entries.push((key, Node { line, ..node }));
        }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_lines() {
        let text = |line, text: &str| Node { line, value: Value::Text(text.into()) };
        let Value::Map(entries) =
            parse("# first\na: 007\nb:\n  c: \"null\"\n  d: [x, 'y']\ne: ~\n").unwrap().value
        else {
            panic!("a map")
        };
        assert_eq!(entries[0], ("a".into(), text(2, "007")));
        let list = Value::List(vec![text(5, "x"), text(5, "y")]);
        let b = vec![("c".into(), text(4, "null")), ("d".into(), Node { line: 5, value: list })];
        assert_eq!(entries[1], ("b".into(), Node { line: 3, value: Value::Map(b) }));
        assert_eq!(entries[2], ("e".into(), Node { line: 6, value: Value::Null }));
        for empty in ["", "# nothing\n", "---\n", "\u{feff}"] {
            assert_eq!(parse(empty).expect(empty).value, Value::Null);
        }
    }

    #[test]
    fn what_is_no_configuration() {
        for (text, part) in [
            ("a: 1\nb: 2\na: 3\n", "line 3: `a` is on line 1 already"),
            ("a: [\n", "no YAML"),
            ("a: 1\n  b: 2\n", "line 2"),
            ("a: &x 1\nb: *x\n", "line 2: anchors"),
            ("a: 1\n---\nb: 1\n", "line 2: one document"),
            ("? [a]\n: 1\n", "line 1: a key must be a name"),
            ("a: [[[[[[[[1]]]]]]]]\n", "line 1: values inside"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text:?}: {error}");
        }
        parse(&"[".repeat(100_000)).expect_err("deep");
    }
}
