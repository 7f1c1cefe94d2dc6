//! The parser of GBNF.

use std::collections::BTreeMap;

/// Largest number of groups and counted repetitions within each other. What reads a grammar recurses so
/// deep, and llguidance reads some 28 groups.
const DEPTH: usize = 64;

/// Index of a node in [`Rules::nodes`].
pub type NodeId = usize;

/// A grammar: its rules, with all their parts in one list. A part comes after the parts inside it, so
/// passes over all of them are loops, and dropping them does not recurse.
#[derive(Debug, Default)]
pub struct Rules {
    /// The parts of all rules.
    pub nodes: Vec<Node>,
    /// The part that each rule is, by the rule's name.
    pub bodies: BTreeMap<String, NodeId>,
}

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
    Sequence(Vec<NodeId>),
    Alternatives(Vec<NodeId>),
    /// A part with its least and most number of repetitions.
    Repeat(NodeId, usize, Option<usize>),
}

impl Node {
    /// Returns the parts directly inside this one.
    pub fn children(&self) -> &[NodeId] {
        match self {
            Self::Sequence(nodes) | Self::Alternatives(nodes) => nodes,
            Self::Repeat(node, ..) => std::slice::from_ref(node),
            _ => &[],
        }
    }
}

/// Parses a grammar.
///
/// # Errors
/// A message with the line that is wrong.
pub fn parse(text: &str) -> Result<Rules, String> {
    let mut parser =
        Parser { rest: text, line: 1, depth: 0, rules: Rules::default(), used: Vec::new() };
    parser.skip(true);
    while !parser.rest.is_empty() {
        let (name, line) = (parser.name()?, parser.line);
        parser.skip(false);
        if !parser.take("::=") {
            return Err(parser.error(&format!("expected `::=` after `{name}`")));
        }
        parser.skip(true);
        let body = parser.alternatives()?;
        if !parser.rest.is_empty() && !parser.rest.starts_with(['\n', '\r']) {
            return Err(parser.unexpected());
        }
        parser.skip(true);
        if parser.rules.bodies.contains_key(&name) {
            return Err(format!("line {line}: two rules are called `{name}`"));
        }
        parser.rules.bodies.insert(name, body.node);
    }
    let Parser { rules, used, .. } = parser;
    if let Some((name, line)) = used.iter().find(|(name, _)| !rules.bodies.contains_key(name)) {
        return Err(format!("line {line}: there is no rule `{name}`"));
    }
    if rules.bodies.contains_key("root") {
        Ok(rules)
    } else {
        Err("there is no rule `root`, with which texts begin".into())
    }
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
    /// Number of open groups.
    depth: usize,
    rules: Rules,
    /// Names of the rules that are used, with their lines.
    used: Vec<(String, usize)>,
}

/// A parsed part, with the number of groups and counted repetitions within each other.
#[derive(Clone, Copy)]
struct Part {
    node: NodeId,
    height: usize,
}

impl Parser<'_> {
    fn add(&mut self, node: Node, height: usize) -> Part {
        self.rules.nodes.push(node);
        Part { node: self.rules.nodes.len() - 1, height }
    }

    fn check_depth(&self, depth: usize) -> Result<(), String> {
        if depth > DEPTH {
            return Err(self.error(&format!("more than {DEPTH} nested groups and repetitions")));
        }
        Ok(())
    }

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

    fn alternatives(&mut self) -> Result<Part, String> {
        let mut all = vec![self.sequence()?];
        while self.take("|") {
            self.skip(true);
            all.push(self.sequence()?);
        }
        Ok(self.joined(all, Node::Alternatives))
    }

    /// Adds a part of several, unless there is only one.
    fn joined(&mut self, parts: Vec<Part>, join: fn(Vec<NodeId>) -> Node) -> Part {
        if let [only] = parts[..] {
            return only;
        }
        let height = parts.iter().map(|part| part.height).max().unwrap_or(0);
        self.add(join(parts.into_iter().map(|part| part.node).collect()), height)
    }

    fn sequence(&mut self) -> Result<Part, String> {
        let mut parts = Vec::new();
        loop {
            let part = match self.rest.chars().next() {
                None | Some('|' | ')' | '\n' | '\r') => break,
                Some('(') => self.group()?,
                Some(first) => {
                    let node = self.node(first)?;
                    self.add(node, 0)
                }
            };
            let part = self.repeated(part)?;
            parts.push(part);
            self.skip(false);
        }
        Ok(self.joined(parts, Node::Sequence))
    }

    /// Parses a part that has no parts and begins with `first`.
    fn node(&mut self, first: char) -> Result<Node, String> {
        match first {
            '"' => self.literal(),
            '[' => self.class(),
            '<' => self.token(),
            '.' => {
                self.next();
                Ok(Node::Any)
            }
            _ => {
                let line = self.line;
                let name = self.name()?;
                self.used.push((name.clone(), line));
                Ok(Node::Rule(name))
            }
        }
    }

    fn group(&mut self) -> Result<Part, String> {
        self.check_depth(self.depth + 1)?;
        self.next();
        self.depth += 1;
        self.skip(true);
        let Part { node, height } = self.alternatives()?;
        self.depth -= 1;
        if !self.take(")") {
            return Err(self.error("expected `)`"));
        }
        self.check_depth(height + 1)?;
        Ok(Part { node, height: height + 1 })
    }

    /// Parses what stands after a part: numbers of repetitions.
    fn repeated(&mut self, mut part: Part) -> Result<Part, String> {
        loop {
            let sign = match self.rest.chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    part = self.counted(part)?;
                    continue;
                }
                _ => return Ok(part),
            };
            self.next();
            part = self.signed(part, sign);
        }
    }

    /// Returns a part with a sign of repetition. Signs one after the other are one: `(x?)+` is `x*`.
    fn signed(&mut self, part: Part, (least, most): (usize, Option<usize>)) -> Part {
        match &mut self.rules.nodes[part.node] {
            Node::Repeat(_, inner_least @ (0 | 1), inner_most @ (None | Some(1))) => {
                *inner_least *= least;
                *inner_most = inner_most.and(most);
                part
            }
            _ => self.add(Node::Repeat(part.node, least, most), part.height),
        }
    }

    fn counted(&mut self, part: Part) -> Result<Part, String> {
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
        self.check_depth(part.height + 1)?;
        Ok(self.add(Node::Repeat(part.node, least, most), part.height + 1))
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
