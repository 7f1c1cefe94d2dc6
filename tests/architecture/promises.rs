//! Every sentence of `docs/security.md` names the tests that hold it, in a comment that readers do not see:
//!
//! - `<!-- test: NAME, … -->`: functions of tests, files of tests, or `FILE: TEXT` for a text in a file;
//! - `<!-- measured by: FILE -->`: numbers, and what measures them;
//! - `<!-- note -->`: the text explains something, or says what is not promised.
//!
//! A comment stands for what is in front of it in its paragraph, item or row.

use super::{files, root};
use std::collections::BTreeSet;

/// Most sentences that one comment stands for.
const SENTENCES: usize = 3;

/// A part of the page, and the comment after it; empty if there is none.
#[derive(Debug, PartialEq)]
struct Claim {
    line: usize,
    text: String,
    comment: String,
}

/// Returns the parts of a page: of paragraphs, items of lists and rows of tables, without headings.
fn claims(page: &str) -> Vec<Claim> {
    let lines: Vec<&str> = page.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (number, &line) in lines.iter().enumerate() {
        let next = lines.get(number + 1).unwrap_or(&"");
        let header = line.starts_with('|') && (line.contains("---") || next.contains("| ---"));
        if header || line.starts_with('#') {
            continue;
        }
        let line =
            if let Some(row) = line.strip_prefix('|') { row.trim_end_matches('|') } else { line };
        for part in line.split_inclusive("-->") {
            let (text, comment) = part.split_once("<!--").unwrap_or((part, ""));
            let comment = comment.trim_end_matches("-->").trim().to_string();
            if !text.trim().is_empty() {
                found.push(Claim { line: number + 1, text: text.trim().into(), comment });
            }
        }
    }
    found
}

/// Returns the names of all functions of tests in a Rust file.
fn test_names(text: &str) -> Vec<String> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_test |= ["#[test]", "#[tokio::test"].iter().any(|mark| line.starts_with(mark));
        } else if !line.starts_with("//") {
            let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let (true, Some(function)) = (is_test, function) {
                let end = function.find(['(', '<']).unwrap_or(function.len());
                names.push(function[..end].to_string());
            }
            is_test = false;
        }
    }
    names
}

/// Returns what is wrong with a name of a test.
fn wrong_name(name: &str, functions: &BTreeSet<String>) -> Option<String> {
    let (file, text) = name.split_once(": ").unwrap_or((name, ""));
    if !file.contains('/') {
        return (!functions.contains(name)).then(|| format!("no test is called {name}"));
    }
    match std::fs::read_to_string(root().join(file)) {
        Err(error) => Some(format!("{file}: {error}")),
        Ok(content) => (!content.contains(text)).then(|| format!("{file} has no {text:?}")),
    }
}

/// Returns what is wrong with a claim.
fn wrong(claim: &Claim, functions: &BTreeSet<String>) -> Option<String> {
    let Claim { line, text, comment } = claim;
    let (kind, names) = comment.split_once(": ").unwrap_or((comment, ""));
    let fault = match kind {
        "note" if names.is_empty() => None,
        "test" | "measured by" => names.split(", ").find_map(|name| wrong_name(name, functions)),
        _ => Some(format!("`{comment}` names no test and is no note")),
    };
    let sentences = text.split(". ").count();
    let many = || {
        (kind == "test" && sentences > SENTENCES)
            .then(|| format!("{sentences} sentences have one comment"))
    };
    fault.or_else(many).map(|fault| format!("docs/security.md:{line}: {fault}: {text}"))
}

/// Returns the names of all functions of tests in the repository.
fn all_test_names() -> BTreeSet<String> {
    let rust =
        ["src", "compute", "easy", "capi", "native", "tests"].map(|folder| files(folder, "rs"));
    rust.concat().iter().flat_map(|(_, text)| test_names(text)).collect()
}

/// The table of faults in `tests/attack/README.md` names tests in its last column.
#[test]
fn every_fault_that_was_found_has_a_test() {
    let functions = all_test_names();
    let page = std::fs::read_to_string(root().join("tests/attack/README.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() >= 22, "{}", rows.len());
    for row in rows {
        let tests = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            assert_eq!(wrong_name(name, &functions), None, "{row}");
        }
    }
}

#[test]
fn every_promise_about_security_has_a_test() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let functions = all_test_names();
    let claims = claims(&page);
    assert!(claims.len() > 100 && functions.len() > 500, "{} {}", claims.len(), functions.len());
    let wrong: Vec<String> = claims.iter().filter_map(|claim| wrong(claim, &functions)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn promises_without_a_test_are_found() {
    let page = "# T\nOne. <!-- test: a --> Two. <!-- note -->\n\n| x | y |\n| --- | --- |\n| 1 | 2 <!-- test: b --> |\n\
                - Three. <!-- test: a -->\n- Four.\n- A. B. C. D. <!-- test: a -->\n- Five. <!-- tested -->\n";
    let claims = claims(page);
    assert_eq!(claims.len(), 7, "{claims:?}");
    let functions = ["a".to_string()].into();
    let wrong: Vec<usize> =
        claims.iter().filter(|claim| wrong(claim, &functions).is_some()).map(|c| c.line).collect();
    assert_eq!(wrong, [6, 8, 9, 10]);
    let code = "#[test]\n#[ignore = \"slow\"]\n// why\nfn a() {}\nfn b() {}\n#[tokio::test]\nasync fn c() {}\n";
    assert_eq!(test_names(code), ["a", "c"]);
}
