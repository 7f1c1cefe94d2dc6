//! llama.cpp's grammar format (GBNF), converted to llguidance's dialect of Lark.
//!
//! llguidance splits a text into lexemes first, as long ones as possible. Parts of a rule without
//! recursion therefore become one lexeme, so that their alternatives are weighed character by character.
//! White space that may be repeated is a lexeme for each character: rules often end with it, and as one
//! lexeme it would take what the next rule needs.

mod parse;

use parse::{Node, Rules};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Converts a grammar in GBNF, whose first rule is `root`, to Lark.
///
/// # Errors
/// A message with the line that is wrong.
pub fn gbnf_to_lark(text: &str) -> Result<String, String> {
    let rules = parse::parse(text)?;
    let lexemes = lexemes(&rules);
    let names = names(&rules, &lexemes);
    let (nullable, lexeme_rules) = (nullable(&rules), String::new());
    let mut writer = Writer { names, lexemes, nullable, lexeme_rules, count: 0 };
    let mut lark = format!("%llguidance {{}}\nstart: {}\n", writer.names["root"]);
    for (name, body) in &rules {
        let lexeme = writer.lexemes.contains(name.as_str());
        let body = if lexeme { writer.lexeme(body) } else { writer.rule(body) };
        let _ = writeln!(lark, "{}: {body}", writer.names[name.as_str()]);
    }
    Ok(lark + &writer.lexeme_rules)
}

/// Returns true if a text is written in GBNF rather than Lark.
#[must_use]
pub fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

/// Names of rules in Lark: upper case for lexemes.
fn names<'a>(rules: &'a Rules, lexemes: &BTreeSet<&str>) -> BTreeMap<&'a str, String> {
    let name = |(index, name): (usize, &'a String)| {
        let plain = name.replace('-', "_");
        let lark = match lexemes.contains(name.as_str()) {
            true => format!("R{index}_{}", plain.to_uppercase()),
            false => format!("r{index}_{}", plain.to_lowercase()),
        };
        (name.as_str(), lark)
    };
    rules.keys().enumerate().map(name).collect()
}

/// Returns the rules that are lexemes: those without recursion, control tokens and repeated white space.
fn lexemes(rules: &Rules) -> BTreeSet<&str> {
    let mut settled: BTreeSet<&str> = BTreeSet::new();
    // From the leaves up.
    loop {
        let ready = |(name, body): &(&String, &Node)| {
            !settled.contains(name.as_str()) && is_lexeme(body, &settled)
        };
        let new: Vec<&str> = rules.iter().filter(ready).map(|(name, _)| name.as_str()).collect();
        if new.is_empty() {
            return settled;
        }
        settled.extend(new);
    }
}

/// Returns true for a part that can be a lexeme, if these rules are lexemes.
fn is_lexeme(node: &Node, lexemes: &BTreeSet<&str>) -> bool {
    let mut fits = true;
    node.walk(&mut |node| {
        fits &= match node {
            Node::Rule(name) => lexemes.contains(name.as_str()),
            Node::Token(_) => false,
            Node::Repeat(inner, ..) => !is_blank(inner),
            _ => true,
        }
    });
    fits
}

/// Returns true for characters that are white space only.
fn is_blank(node: &Node) -> bool {
    match node {
        Node::Literal(text) => text.chars().all(char::is_whitespace),
        Node::Class { negated, ranges } => {
            let blank = |(from, to): &(char, char)| (*from..=*to).all(char::is_whitespace);
            !negated && ranges.iter().all(blank)
        }
        Node::Sequence(nodes) | Node::Alternatives(nodes) => nodes.iter().all(is_blank),
        Node::Repeat(inner, ..) => is_blank(inner),
        Node::Any | Node::Rule(_) | Node::Token(_) => false,
    }
}

/// Returns the rules that the empty text matches.
fn nullable(rules: &Rules) -> BTreeSet<&str> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    loop {
        let new = |(name, body): &(&String, &Node)| {
            !found.contains(name.as_str()) && is_nullable(body, &found)
        };
        let new: Vec<&str> = rules.iter().filter(new).map(|(name, _)| name.as_str()).collect();
        if new.is_empty() {
            return found;
        }
        found.extend(new);
    }
}

/// Returns true for a part that the empty text matches, if it matches these rules.
fn is_nullable(node: &Node, rules: &BTreeSet<&str>) -> bool {
    match node {
        Node::Literal(text) => text.is_empty(),
        Node::Rule(name) => rules.contains(name.as_str()),
        Node::Sequence(nodes) => nodes.iter().all(|node| is_nullable(node, rules)),
        Node::Alternatives(nodes) => nodes.iter().any(|node| is_nullable(node, rules)),
        Node::Repeat(inner, least, _) => *least == 0 || is_nullable(inner, rules),
        Node::Class { .. } | Node::Any | Node::Token(_) => false,
    }
}

/// Writes rules in Lark.
struct Writer<'a> {
    names: BTreeMap<&'a str, String>,
    lexemes: BTreeSet<&'a str>,
    nullable: BTreeSet<&'a str>,
    /// Definitions of lexemes that have no name in GBNF.
    lexeme_rules: String,
    count: usize,
}

impl Writer<'_> {
    /// Writes a part of a lexeme.
    fn lexeme(&mut self, node: &Node) -> String {
        self.part(node, Self::lexeme)
    }

    /// Writes a part of a rule. Neighbors that can be a lexeme together are one.
    fn rule(&mut self, node: &Node) -> String {
        if is_lexeme(node, &self.lexemes) {
            return self.named_lexeme(std::slice::from_ref(node));
        }
        let Node::Sequence(nodes) = node else { return self.part(node, Self::rule) };
        let (mut parts, mut rest) = (Vec::new(), &nodes[..]);
        while let Some((first, after)) = rest.split_first() {
            let lexemes = |node: &&Node| is_lexeme(node, &self.lexemes);
            let count = rest.iter().take_while(lexemes).count();
            match count {
                0 => {
                    parts.push(self.rule(first));
                    rest = after;
                }
                count => {
                    parts.push(self.named_lexeme(&rest[..count]));
                    rest = &rest[count..];
                }
            }
        }
        parts.join(" ")
    }

    /// Writes a lexeme in a rule: a single text, class or reference as it is, others by a name. A lexeme
    /// is never empty, so that one that may be is optional.
    fn named_lexeme(&mut self, nodes: &[Node]) -> String {
        let optional = match nodes.iter().all(|node| is_nullable(node, &self.nullable)) {
            true => "?",
            false => "",
        };
        let body: Vec<String> = nodes.iter().map(|node| self.lexeme(node)).collect();
        let body = body.join(" ");
        if let [Node::Literal(_) | Node::Class { .. } | Node::Any | Node::Rule(_)] = nodes {
            return format!("{body}{optional}");
        }
        self.count += 1;
        let _ = writeln!(self.lexeme_rules, "L{}: {body}", self.count);
        format!("L{}{optional}", self.count)
    }

    /// Writes a part whose parts `inner` writes.
    fn part(&mut self, node: &Node, inner: fn(&mut Self, &Node) -> String) -> String {
        match node {
            Node::Literal(text) => json!(text).to_string(),
            Node::Class { negated, ranges } => class(*negated, ranges),
            Node::Any => "/(.|\\n)/".into(),
            Node::Token(token) => token.clone(),
            Node::Rule(name) => self.names[name.as_str()].clone(),
            Node::Sequence(nodes) if nodes.is_empty() => "\"\"".into(),
            Node::Sequence(nodes) => {
                nodes.iter().map(|node| inner(self, node)).collect::<Vec<_>>().join(" ")
            }
            Node::Alternatives(nodes) => {
                let (empty, others): (Vec<_>, Vec<_>) =
                    nodes.iter().partition(|node| node.is_empty());
                let others: Vec<String> = others.into_iter().map(|n| inner(self, n)).collect();
                let optional = if empty.is_empty() { "" } else { "?" };
                format!("({}){optional}", others.join(" | "))
            }
            Node::Repeat(node, least, most) => {
                format!("({}){}", inner(self, node), repetition(*least, *most))
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
    let range = |&(from, to): &(char, char)| match from == to {
        true => code(from),
        false => format!("{}-{}", code(from), code(to)),
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
            ("root ::= \"a\"\nb = c", "line 2: expected `::=` behind `b`"),
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
    }
}
