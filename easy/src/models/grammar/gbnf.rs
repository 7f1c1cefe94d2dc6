//! llama.cpp's grammar format (GBNF), converted to llguidance's dialect of Lark.
//!
//! llguidance splits a text into lexemes first, as long ones as possible. A rule without recursion
//! therefore becomes one lexeme, so that its alternatives are weighed character by character. Rules with
//! recursion stay rules.

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
    let recursive = recursive(&rules);
    let names = names(&rules, &recursive);
    let mut lark = format!("%llguidance {{}}\nstart: {}\n", names["root"]);
    for (name, body) in &rules {
        let lexeme = !recursive.contains(name.as_str());
        let _ = writeln!(lark, "{}: {}", names[name.as_str()], lark_of(body, &names, lexeme));
    }
    Ok(lark)
}

/// Returns true if a text is written in GBNF rather than Lark.
#[must_use]
pub fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

/// Names of rules in Lark: upper case for lexemes.
fn names<'a>(rules: &'a Rules, recursive: &BTreeSet<&str>) -> BTreeMap<&'a str, String> {
    let name = |(index, name): (usize, &'a String)| {
        let plain = name.replace('-', "_");
        let lark = match recursive.contains(name.as_str()) {
            true => format!("r{index}_{}", plain.to_lowercase()),
            false => format!("R{index}_{}", plain.to_uppercase()),
        };
        (name.as_str(), lark)
    };
    rules.keys().enumerate().map(name).collect()
}

/// Returns the rules that cannot be lexemes: those that lead to themselves or to a control token.
fn recursive(rules: &Rules) -> BTreeSet<&str> {
    let mut leads: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut has_token = BTreeSet::new();
    for (name, body) in rules {
        let uses = leads.entry(name).or_default();
        body.walk(&mut |node| match node {
            Node::Rule(used) => _ = uses.insert(used),
            Node::Token(_) => _ = has_token.insert(name.as_str()),
            _ => {}
        });
    }
    // Rules without recursion are settled from the leaves up.
    let mut settled: BTreeSet<&str> = BTreeSet::new();
    loop {
        let ready = |(name, uses): (&&'_ str, &BTreeSet<&str>)| {
            !settled.contains(*name) && !has_token.contains(*name) && uses.is_subset(&settled)
        };
        let new: Vec<&str> = leads
            .iter()
            .filter(|(name, uses)| ready((name, uses)))
            .map(|(name, _)| *name)
            .collect();
        if new.is_empty() {
            return leads.into_keys().filter(|name| !settled.contains(name)).collect();
        }
        settled.extend(new);
    }
}

/// Writes a node in Lark. In a rule, parts without references become lexemes of their own.
fn lark_of(node: &Node, names: &BTreeMap<&str, String>, lexeme: bool) -> String {
    let inner = |node: &Node| lark_of(node, names, lexeme);
    match node {
        Node::Literal(text) => json!(text).to_string(),
        Node::Class { negated, ranges } => class(*negated, ranges),
        Node::Any => "/(.|\\n)/".into(),
        Node::Token(token) => token.clone(),
        Node::Rule(name) => names[name.as_str()].clone(),
        Node::Sequence(nodes) if nodes.is_empty() => "\"\"".into(),
        Node::Sequence(nodes) => nodes.iter().map(inner).collect::<Vec<_>>().join(" "),
        Node::Alternatives(nodes) => {
            let (empty, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.is_empty());
            let others = others.into_iter().map(inner).collect::<Vec<_>>().join(" | ");
            let optional = if empty.is_empty() { "" } else { "?" };
            format!("({others}){optional}")
        }
        Node::Repeat(node, least, most) => {
            let count = match (least, most) {
                (0, None) => "*".into(),
                (1, None) => "+".into(),
                (0, Some(1)) => "?".into(),
                (least, None) => format!("{{{least},}}"),
                (least, Some(most)) => format!("{{{least},{most}}}"),
            };
            format!("({}){count}", inner(node))
        }
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
