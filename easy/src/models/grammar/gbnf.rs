//! llama.cpp's grammar format (GBNF), converted to llguidance's dialect of Lark.
//!
//! llguidance splits a text into lexemes first, as long ones as possible. Parts of a rule without
//! recursion therefore become one lexeme, so that their alternatives are weighed character by character.
//! White space that may be repeated is a lexeme for each character: rules often end with it, and as one
//! lexeme it would take what the next rule needs.

mod parse;

use parse::{Node, NodeId, Rules};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Converts a grammar in GBNF, whose first rule is `root`, to Lark. Time and memory are linear in the
/// text, of which there may be [`TEXT`](super::TEXT) bytes.
///
/// # Errors
/// A message with the line that is wrong.
pub fn gbnf_to_lark(text: &str) -> Result<String, String> {
    super::check_size(text.len())?;
    let rules = parse::parse(text)?;
    let blank = blank(&rules);
    let lexemes = settle(&rules, |node| match node {
        Node::Token(_) => Needs::Never,
        Node::Repeat(inner, ..) if blank[*inner] => Needs::Never,
        _ => Needs::All,
    });
    let nullable = settle(&rules, |node| match node {
        Node::Literal(text) if text.is_empty() => Needs::All,
        Node::Rule(_) | Node::Sequence(_) => Needs::All,
        Node::Alternatives(_) => Needs::Any,
        Node::Repeat(_, 0, _) => Needs::Nothing,
        Node::Repeat(..) => Needs::All,
        Node::Literal(_) | Node::Class { .. } | Node::Any | Node::Token(_) => Needs::Never,
    });
    let lexeme_rules = String::new();
    let (names, empty) = (names(&rules, &lexemes), empty(&rules));
    let mut writer =
        Writer { rules: &rules, names, lexemes, nullable, empty, lexeme_rules, count: 0 };
    let mut lark = format!("%llguidance {{}}\nstart: {}\n", writer.names["root"]);
    for (name, &body) in &rules.bodies {
        let text = if writer.lexemes[body] { writer.lexeme(body) } else { writer.rule(body) };
        let _ = writeln!(lark, "{}: {text}", writer.names[name.as_str()]);
    }
    Ok(lark + &writer.lexeme_rules)
}

/// Returns true if a text is written in GBNF rather than Lark.
#[must_use]
pub fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

/// Names of rules in Lark: upper case for lexemes.
fn names<'a>(rules: &'a Rules, lexemes: &[bool]) -> BTreeMap<&'a str, String> {
    let name = |(index, (name, &body)): (usize, (&'a String, &NodeId))| {
        let plain = name.replace('-', "_");
        let lark = if lexemes[body] {
            format!("R{index}_{}", plain.to_uppercase())
        } else {
            format!("r{index}_{}", plain.to_lowercase())
        };
        (name.as_str(), lark)
    };
    rules.bodies.iter().enumerate().map(name).collect()
}

/// Source of a property of a part: the property of the parts inside it, or of the rule that it names.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Any,
    All,
    Never,
}

/// Returns for each part whether it has a property: the least set of parts that have what they need.
/// Recursion never ends in a part that has it, so parts that need themselves have not.
///
/// Each part is settled once, and each reference to it is followed once.
fn settle(rules: &Rules, needs: impl Fn(&Node) -> Needs) -> Vec<bool> {
    let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); rules.nodes.len()];
    // Number of parts that each part still waits for.
    let mut waits = Vec::with_capacity(rules.nodes.len());
    let mut settled = Vec::new();
    for (id, node) in rules.nodes.iter().enumerate() {
        let named = if let Node::Rule(name) = node { rules.bodies.get(name) } else { None };
        let inside = node.children().iter().chain(named);
        let count = match needs(node) {
            Needs::Nothing => Some(0),
            Needs::Any => Some(1),
            Needs::All => Some(inside.clone().count()),
            Needs::Never => None,
        };
        if count == Some(0) {
            settled.push(id);
        } else if count.is_some() {
            inside.for_each(|&part| users[part].push(id));
        }
        waits.push(count.unwrap_or(usize::MAX));
    }
    let mut has = vec![false; rules.nodes.len()];
    while let Some(id) = settled.pop() {
        has[id] = true;
        for user in std::mem::take(&mut users[id]) {
            waits[user] = waits[user].saturating_sub(1);
            if waits[user] == 0 && !has[user] {
                settled.push(user);
            }
        }
    }
    has
}

/// Returns for each part whether it is white space only.
fn blank(rules: &Rules) -> Vec<bool> {
    let mut blank: Vec<bool> = Vec::with_capacity(rules.nodes.len());
    for node in &rules.nodes {
        blank.push(match node {
            Node::Literal(text) => text.chars().all(char::is_whitespace),
            Node::Class { negated, ranges } => {
                let white = |(from, to): &(char, char)| (*from..=*to).all(char::is_whitespace);
                !negated && ranges.iter().all(white)
            }
            Node::Any | Node::Rule(_) | Node::Token(_) => false,
            parts => parts.children().iter().all(|&part| blank[part]),
        });
    }
    blank
}

/// Returns for each part whether it is a sequence of nothing.
fn empty(rules: &Rules) -> Vec<bool> {
    let mut empty: Vec<bool> = Vec::with_capacity(rules.nodes.len());
    for node in &rules.nodes {
        empty.push(match node {
            Node::Sequence(parts) => parts.iter().all(|&part| empty[part]),
            Node::Literal(text) => text.is_empty(),
            _ => false,
        });
    }
    empty
}

/// Writes rules in Lark. What is known of the parts is in lists by their indices. Recurses as deep as
/// the parser lets groups nest.
struct Writer<'a> {
    rules: &'a Rules,
    names: BTreeMap<&'a str, String>,
    /// Parts that can be a lexeme: those without recursion, control tokens and repeated white space.
    lexemes: Vec<bool>,
    /// Parts that the empty text matches.
    nullable: Vec<bool>,
    /// Parts that are a sequence of nothing.
    empty: Vec<bool>,
    /// Definitions of lexemes that have no name in GBNF.
    lexeme_rules: String,
    count: usize,
}

impl Writer<'_> {
    /// Writes a part of a lexeme.
    fn lexeme(&mut self, id: NodeId) -> String {
        self.part(id, Self::lexeme)
    }

    /// Writes a part of a rule. Neighbors that can be a lexeme together are one.
    fn rule(&mut self, id: NodeId) -> String {
        if self.lexemes[id] {
            return self.named_lexeme(&[id]);
        }
        let rules = self.rules;
        let Node::Sequence(ids) = &rules.nodes[id] else { return self.part(id, Self::rule) };
        let alike = |first: &NodeId, second: &NodeId| self.lexemes[*first] && self.lexemes[*second];
        let groups: Vec<&[NodeId]> = ids.chunk_by(alike).collect();
        let write = |group: &[NodeId]| match group {
            [only] if !self.lexemes[*only] => self.rule(*only),
            lexemes => self.named_lexeme(lexemes),
        };
        groups.into_iter().map(write).collect::<Vec<_>>().join(" ")
    }

    /// Writes a lexeme in a rule: a single text, class or reference as it is, others by a name. A lexeme
    /// is never empty, so that one that may be is optional.
    fn named_lexeme(&mut self, ids: &[NodeId]) -> String {
        let optional = if ids.iter().all(|&id| self.nullable[id]) { "?" } else { "" };
        let body: Vec<String> = ids.iter().map(|&id| self.lexeme(id)).collect();
        let body = body.join(" ");
        if let [only] = ids
            && let Node::Literal(_) | Node::Class { .. } | Node::Any | Node::Rule(_) =
                self.rules.nodes[*only]
        {
            return format!("{body}{optional}");
        }
        self.count += 1;
        let _ = writeln!(self.lexeme_rules, "L{}: {body}", self.count);
        format!("L{}{optional}", self.count)
    }

    /// Writes a part whose parts `inner` writes.
    fn part(&mut self, id: NodeId, inner: fn(&mut Self, NodeId) -> String) -> String {
        let rules = self.rules;
        match &rules.nodes[id] {
            Node::Literal(text) => json!(text).to_string(),
            Node::Class { negated, ranges } => class(*negated, ranges),
            Node::Any => "/(.|\\n)/".into(),
            Node::Token(token) => token.clone(),
            Node::Rule(name) => self.names[name.as_str()].clone(),
            Node::Sequence(ids) if ids.is_empty() => "\"\"".into(),
            Node::Sequence(ids) => {
                ids.iter().map(|&id| inner(self, id)).collect::<Vec<_>>().join(" ")
            }
            Node::Alternatives(ids) => {
                let others: Vec<NodeId> =
                    ids.iter().copied().filter(|&id| !self.empty[id]).collect();
                let optional = if others.len() < ids.len() { "?" } else { "" };
                let others: Vec<String> = others.into_iter().map(|id| inner(self, id)).collect();
                format!("({}){optional}", others.join(" | "))
            }
            &Node::Repeat(id, least, most) => {
                format!("({}){}", inner(self, id), repetition(least, most))
            }
        }
    }
}

fn repetition(least: usize, most: Option<usize>) -> String {
    match (least, most) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// Writes a class of characters as a regular expression.
fn class(negated: bool, ranges: &[(char, char)]) -> String {
    let code = |c: char| format!("\\x{{{:x}}}", u32::from(c));
    let range = |&(from, to): &(char, char)| {
        if from == to { code(from) } else { format!("{}-{}", code(from), code(to)) }
    };
    let ranges: String = ranges.iter().map(range).collect();
    format!("/[{}{ranges}]/", if negated { "^" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_without_recursion_are_lexemes() {
        let lark = gbnf_to_lark(
            "root ::= list # a comment\nlist ::= \"[\" (list (\",\" list)*)? \"]\" | item-1\n\
             item-1 ::= [a-c\\n] digit{2,3}\ndigit ::= [^x]",
        );
        // White space that is repeated is a lexeme for each character.
        let spaced = gbnf_to_lark("root ::= [a-z]+ ws \"=\"\nws ::= [ \\n]*").expect("valid");
        let lexemes = "start: r0_root\nr0_root: L1 r1_ws \"=\"\nr1_ws: (/[\\x{20}\\x{a}]/)*\n\
            L1: (/[\\x{61}-\\x{7a}]/)+\n";
        assert_eq!(spaced, format!("%llguidance {{}}\n{lexemes}"));
        let want = "%llguidance {}\nstart: r3_root\nR0_DIGIT: /[^\\x{78}]/\n\
            R1_ITEM_1: /[\\x{61}-\\x{63}\\x{a}]/ (R0_DIGIT){2,3}\n\
            r2_list: (\"[\" (r2_list (\",\" r2_list)*)? \"]\" | R1_ITEM_1)\nr3_root: r2_list\n";
        assert_eq!(lark.expect("valid"), want);
        assert!(is_gbnf("root ::= \"a\"") && !is_gbnf("start: \"a\""));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, want) in [
            ("root ::= \"a", "line 1: a text without its closing `\"`"),
            ("root ::= x", "line 1: there is no rule `x`"),
            ("a ::= \"x\"", "there is no rule `root`"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2: two rules are called `root`"),
            ("root ::= \"a\"\nb = c", "line 2: expected `::=` after `b`"),
            ("root ::= [b-a]", "line 1: a range of characters ends before it begins"),
            ("root ::= (\"a\"", "line 1: expected `)`"),
            ("root ::= *", "line 1: unexpected `*`"),
            ("root ::= \"a\"{3,2}", "line 1: a repetition of at least 3 and at most 2"),
            ("root ::= \"\\q\"", "line 1: unknown escape `\\q`"),
        ] {
            let error = gbnf_to_lark(text).expect_err(text);
            assert!(error.starts_with(want), "{error}");
        }
        let deep = format!("root ::= {}", "(".repeat(100_000));
        assert!(gbnf_to_lark(&deep).expect_err("deep").contains("nested"));
        let counted = format!("root ::= \"a\"{}", "{2}".repeat(10_000));
        assert!(gbnf_to_lark(&counted).expect_err("deep").contains("nested"));
        let long = format!("root ::= \"{}\"", "a".repeat(super::super::TEXT));
        assert!(gbnf_to_lark(&long).expect_err("long").contains("bytes"));
    }

    #[test]
    fn signs_one_after_the_other_are_one() {
        let body = |signs: &str| {
            let lark = gbnf_to_lark(&format!("root ::= \"a\"{signs}")).expect("valid");
            lark.lines().last().expect("a line").split_once(": ").expect("a rule").1.to_string()
        };
        for (signs, want) in [
            ("??", "(\"a\")?"),
            ("+?", "(\"a\")*"),
            ("?+", "(\"a\")*"),
            ("++", "(\"a\")+"),
            ("*+", "(\"a\")*"),
            ("{0,1}+", "(\"a\")*"),
            ("{2}?", "((\"a\"){2,2})?"),
        ] {
            assert_eq!(body(signs), want, "{signs}");
        }
        for part in ["\"a\"", "[a-z]", "(\"a\" | b)", "b", "."] {
            for sign in ["*", "+", "?", "?+*"] {
                let text = format!("root ::= {part}{}\nb ::= \"b\"", sign.repeat(30_000));
                gbnf_to_lark(&text).expect("valid");
            }
        }
    }

    /// Chains, wide rules and rules that refer to each other: a second is much for 128 KiB.
    #[test]
    fn conversion_is_linear() {
        let chain = |link: fn(usize) -> String| {
            let rules: String = (0..6000).map(link).collect();
            format!("root ::= a0\n{rules}a6000 ::= \"x\"?\n")
        };
        let wide: String = (0..9000).map(|i| format!(" a{i}")).collect();
        let rules: String = (0..4000).map(|i| format!("a{i}::=\"\"\n")).collect();
        for text in [
            chain(|i| format!("a{i}::=a{}\n", i + 1)),
            chain(|i| format!("a{}::=a{}\n", i, i + 1).replace("a0::=", "a0::=\"y\" ")),
            chain(|i| format!("a{i}::=a{}|a0\n", i + 1)),
            format!("root::={}\n{rules}", &wide[..wide.find(" a4000").expect("there")]),
            format!("root ::= {}\"a\"{}", "(".repeat(64), ")*".repeat(64)),
            format!("root ::= [{}]", "a-z".repeat(40_000)),
            format!("root ::= \"a\"{}", " | \"a\"".repeat(16_000)),
        ] {
            let begin = std::time::Instant::now();
            let lark = gbnf_to_lark(&text).expect("valid");
            let took = begin.elapsed();
            assert!(took < std::time::Duration::from_secs(1), "{took:?}: {}", &text[..60]);
            assert!(lark.len() < 12 * text.len(), "{} of {}", lark.len(), text.len());
        }
    }
}
