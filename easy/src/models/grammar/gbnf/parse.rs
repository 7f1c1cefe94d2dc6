//! The parser of GBNF.

use std::collections::BTreeMap;

/// Largest depth of groups.
const DEPTH: usize = 64;

/// Rules by name.
pub type Rules = BTreeMap<String, Node>;

/// A part of a rule.
#[derive(Debug, PartialEq)]
pub enum Node {
    Literal(String),
    /// One character of these ranges, or of no range.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Any character.
    Any,
    /// A control token, by name or id.
    Token(String),
    Rule(String),
    Sequence(Vec<Node>),
    Alternatives(Vec<Node>),
    /// A part with its least and most number of repetitions.
    Repeat(Box<Node>, usize, Option<usize>),
}

impl Node {
    /// Calls `see` with this node and all below.
    pub fn walk<'a>(&'a self, see: &mut impl FnMut(&'a Self)) {
        see(self);
        match self {
            Self::Sequence(nodes) | Self::Alternatives(nodes) => {
                nodes.iter().for_each(|node| node.walk(see));
            }
            Self::Repeat(node, ..) => node.walk(see),
            _ => {}
        }
    }

    /// Returns true for a sequence of nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Sequence(nodes) => nodes.iter().all(Self::is_empty),
            Self::Literal(text) => text.is_empty(),
            _ => false,
        }
    }
}

/// Parses a grammar.
///
/// # Errors
/// A message with the line that is wrong.
pub fn parse(text: &str) -> Result<Rules, String> {
    let mut parser = Parser { rest: text, line: 1, depth: 0 };
    let (mut rules, mut used) = (Rules::new(), Vec::new());
    parser.skip(true);
    while !parser.rest.is_empty() {
        let (name, line) = (parser.name()?, parser.line);
        parser.skip(false);
        if !parser.take("::=") {
            return Err(parser.error(&format!("expected `::=` behind `{name}`")));
        }
        parser.skip(true);
        let body = parser.alternatives(&mut used)?;
        if !parser.rest.is_empty() && !parser.rest.starts_with(['\n', '\r']) {
            return Err(parser.unexpected());
        }
        parser.skip(true);
        if rules.contains_key(&name) {
            return Err(format!("line {line}: two rules are called `{name}`"));
        }
        rules.insert(name, body);
    }
    if let Some((name, line)) = used.iter().find(|(name, _)| !rules.contains_key(name)) {
        return Err(format!("line {line}: there is no rule `{name}`"));
    }
    match rules.contains_key("root") {
        true => Ok(rules),
        false => Err("there is no rule `root`, with which texts begin".into()),
    }
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
    /// Number of open groups.
    depth: usize,
}

/// Names of the rules that are used, with their lines.
type Used = Vec<(String, usize)>;

impl Parser<'_> {
    fn error(&self, message: &str) -> String {
        format!("line {}: {message}", self.line)
    }

    fn unexpected(&self) -> String {
        match self.rest.chars().next() {
            Some(c) => self.error(&format!("unexpected `{c}`")),
            None => self.error("the grammar ends too early"),
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips white space and comments; line breaks too where a rule cannot end.
    fn skip(&mut self, lines: bool) {
        loop {
            if self.rest.starts_with('#') {
                self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..];
            }
            let lines = lines || self.depth > 0;
            match self.rest.chars().next() {
                Some(' ' | '\t') => _ = self.next(),
                Some('\n' | '\r') if lines => _ = self.next(),
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let end = self.rest.find(|c| !inside(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.unexpected());
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(name.into())
    }

    fn alternatives(&mut self, used: &mut Used) -> Result<Node, String> {
        let mut all = vec![self.sequence(used)?];
        while self.take("|") {
            self.skip(true);
            all.push(self.sequence(used)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Alternatives(all) })
    }

    fn sequence(&mut self, used: &mut Used) -> Result<Node, String> {
        let mut nodes = Vec::new();
        loop {
            let node = match self.rest.chars().next() {
                None | Some('|' | ')' | '\n' | '\r') => break,
                Some('"') => self.literal()?,
                Some('[') => self.class()?,
                Some('(') => self.group(used)?,
                Some('<') => self.token()?,
                Some('.') => {
                    self.next();
                    Node::Any
                }
                Some(_) => {
                    let line = self.line;
                    let name = self.name()?;
                    used.push((name.clone(), line));
                    Node::Rule(name)
                }
            };
            let node = self.repeated(node)?;
            nodes.push(node);
            self.skip(false);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Sequence(nodes) })
    }

    fn group(&mut self, used: &mut Used) -> Result<Node, String> {
        if self.depth == DEPTH {
            return Err(self.error(&format!("more than {DEPTH} nested groups")));
        }
        self.next();
        self.depth += 1;
        self.skip(true);
        let node = self.alternatives(used)?;
        self.depth -= 1;
        match self.take(")") {
            true => Ok(node),
            false => Err(self.error("expected `)`")),
        }
    }

    /// Parses what stands behind a part: a number of repetitions.
    fn repeated(&mut self, mut node: Node) -> Result<Node, String> {
        loop {
            let (least, most) = match self.rest.chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    node = self.counted(node)?;
                    continue;
                }
                _ => return Ok(node),
            };
            self.next();
            node = Node::Repeat(Box::new(node), least, most);
        }
    }

    fn counted(&mut self, node: Node) -> Result<Node, String> {
        self.next();
        let Some((inside, rest)) = self.rest.split_once('}') else {
            return Err(self.error("expected `}`"));
        };
        self.rest = rest;
        let number = |text: &str| {
            text.trim().parse().map_err(|_| self.error(&format!("`{text}` is not a number")))
        };
        let (least, most): (usize, Option<usize>) = match inside.split_once(',') {
            None => (number(inside)?, Some(number(inside)?)),
            Some((least, most)) if most.trim().is_empty() => (number(least)?, None),
            Some((least, most)) if least.trim().is_empty() => (0, Some(number(most)?)),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        if let Some(most) = most.filter(|&most| most < least) {
            let message = format!("a repetition of at least {least} and at most {most}");
            return Err(self.error(&message));
        }
        Ok(Node::Repeat(Box::new(node), least, most))
    }

    fn literal(&mut self) -> Result<Node, String> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => {
                    return Err(format!(
                        "line {}: a text without its closing `\"`",
                        self.line - usize::from(self.line > 1)
                    ));
                }
                Some('"') => return Ok(Node::Literal(text)),
                Some(c) => text.push(self.character(c)?),
            }
        }
    }

    fn class(&mut self) -> Result<Node, String> {
        self.next();
        let (negated, mut ranges) = (self.take("^"), Vec::new());
        loop {
            let from = match self.next() {
                None | Some('\n') => return Err(self.error("a class without its closing `]`")),
                Some(']') if ranges.is_empty() => {
                    return Err(self.error("a class without characters"));
                }
                Some(']') => return Ok(Node::Class { negated, ranges }),
                Some(c) => self.character(c)?,
            };
            let mut to = from;
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next();
                let last = self.next().unwrap_or(']');
                to = self.character(last)?;
            }
            if to < from {
                return Err(self.error("a range of characters ends before it begins"));
            }
            ranges.push((from, to));
        }
    }

    /// Returns the character that begins with `first`, which may be a backslash.
    fn character(&mut self, first: char) -> Result<char, String> {
        if first != '\\' {
            return Ok(first);
        }
        let escape = self.next().unwrap_or(' ');
        let digits = match escape {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => return Ok(escape),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => return Err(self.error(&format!("unknown escape `\\{other}`"))),
        };
        let code = self.rest.get(..digits).unwrap_or_default();
        let parsed = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
        let c = parsed.ok_or_else(|| self.error(&format!("`\\{escape}{code}` is no character")))?;
        self.rest = &self.rest[digits..];
        Ok(c)
    }

    /// Parses `<name>` or `<[id]>`.
    fn token(&mut self) -> Result<Node, String> {
        let end = self.rest.find('>').filter(|&end| !self.rest[..end].contains(['\n', ' ']));
        let Some(end) = end else { return Err(self.error("expected `>`")) };
        let (token, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        Ok(Node::Token(token.into()))
    }
}
