//! Documentation in plain sentences: how doc comments begin, and how long README's sentences are.

use super::{files, root, sources};

/// Openings that name nothing.
const REFUSED: [&str; 5] = ["Who ", "Whoever ", "Nobody ", "What is ", "Not at all"];
/// First words of relative clauses, and the share of doc blocks that may begin with one.
const RELATIVE: [&str; 6] = ["What", "Who", "Whether", "How", "Where", "Which"];
const RELATIVE_SHARE: f64 = 0.04;
/// Words with a plainer one: after, next to or compared with, most likely, on.
const DATED: [&str; 4] = ["behind", "beside", "likeliest", "upon"];

/// Lines of the documentation of a Rust or TypeScript file; the first of each block is marked.
fn doc_lines(text: &str) -> Vec<(bool, &str)> {
    let (mut lines, mut before) = (Vec::new(), "");
    let mut in_block = false;
    for line in text.lines().map(str::trim) {
        let marker = ["///", "//!", "/**"].into_iter().find(|m| line.starts_with(m)).unwrap_or("");
        let first = !marker.is_empty() && marker != before;
        match marker {
            "///" | "//!" => lines.push((first, line[3..].trim())),
            "/**" => {
                lines.push((true, line[3..].trim_end_matches("*/").trim()));
                in_block = !line.contains("*/");
            }
            _ if in_block => {
                let begins = lines.pop_if(|(first, line)| *first && line.is_empty()).is_some();
                lines.push((begins, line.trim_end_matches("*/").trim_start_matches('*').trim()));
                in_block = !line.contains("*/");
            }
            _ => {}
        }
        before = if marker == "/**" { "" } else { marker };
    }
    lines
}

#[test]
fn doc_comments_say_what_an_item_is() {
    let rust = [
        "src",
        "compute",
        "easy",
        "capi",
        "python/src",
        "native",
        "web/wasm",
        "web/bindgen",
        "tests",
        "benches",
    ];
    let typescript = ["web/src", "web/demo", "web/tests"].map(|folder| files(folder, "ts"));
    let (mut blocks, mut relative) = (0_u32, Vec::new());
    for (path, text) in rust.map(sources).concat().into_iter().chain(typescript.concat()) {
        for (first, line) in doc_lines(&text) {
            let refused = REFUSED.iter().find(|word| line.starts_with(**word));
            assert!(refused.is_none(), "{}: `{line}`", path.display());
            blocks += u32::from(first);
            let word = line.split(|c: char| !c.is_alphabetic()).next().unwrap();
            if first && RELATIVE.contains(&word) {
                relative.push(format!("{}: {line}", path.display()));
            }
        }
    }
    let share = relative.len() as f64 / f64::from(blocks);
    println!("{} of {blocks} doc blocks begin with a relative clause", relative.len());
    assert!(share <= RELATIVE_SHARE, "{:.1} %:\n{}", 100.0 * share, relative.join("\n"));
}

/// Returns the dated words of a line. A story begins "once upon a time", and files are left behind.
fn dated(line: &str) -> Vec<&str> {
    let line = line.split('`').step_by(2);
    let words =
        line.flat_map(|part| part.split(|c: char| !c.is_alphabetic())).filter(|w| !w.is_empty());
    let words: Vec<&str> = words.collect();
    let before = |at: usize| at.checked_sub(1).map_or("", |at| words[at]).to_lowercase();
    let left = words.iter().any(|word| word.starts_with("leave") || *word == "left");
    let kept = |at: usize| before(at) == "once" || (left && words[at] == "behind");
    (0..words.len())
        .filter(|&at| DATED.contains(&words[at]) && !kept(at))
        .map(|at| words[at])
        .collect()
}

#[test]
fn documentation_has_plain_words() {
    for (path, text) in
        ["src", "compute", "easy", "capi", "python/src", "native"].map(sources).concat()
    {
        for (_, line) in doc_lines(&text) {
            assert_eq!(dated(line), [""; 0], "{}: `{line}`", path.display());
        }
    }
    for (path, text) in files("docs", "md") {
        if !path.starts_with(root().join("docs/journal")) {
            for line in text.lines() {
                assert_eq!(dated(line), [""; 0], "{}: `{line}`", path.display());
            }
        }
    }
    assert_eq!(dated("the row behind it"), ["behind"]);
    assert_eq!(dated("leaves nothing behind, once upon a time, `beside`"), [""; 0]);
}

#[test]
fn doc_blocks_are_told_apart() {
    let text = "//! Module.\n\n/// One\n/// more.\nfn f() {}\n/** Short. */\n/**\n * Long,\n * longer.\n */\n";
    let found = doc_lines(text);
    let expected = [
        (true, "Module."),
        (true, "One"),
        (false, "more."),
        (true, "Short."),
        (true, "Long,"),
        (false, "longer."),
    ];
    assert_eq!(
        found.into_iter().filter(|(_, line)| !line.is_empty()).collect::<Vec<_>>(),
        expected
    );
}

const README_LINES: usize = 150;
const PARAGRAPH_WORDS: usize = 80;
const SENTENCE_WORDS: usize = 30;
const MEAN_SENTENCE_WORDS: f64 = 17.0;

/// Paragraphs of a Markdown text and items of its lists: no code, tables, headings, pictures or HTML.
fn paragraphs(markdown: &str) -> Vec<String> {
    let (mut found, mut in_code) = (vec![String::new()], false);
    for line in markdown.lines().map(str::trim) {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        let no_prose = ["```", "|", "#", "<", "!["].iter().any(|mark| line.starts_with(mark));
        let item = line.strip_prefix("- ");
        if in_code || no_prose || line.is_empty() || item.is_some() {
            found.push(String::new());
        }
        if !in_code && !no_prose {
            let text = found.last_mut().unwrap();
            *text = format!("{text} {}", item.unwrap_or(line));
        }
    }
    found.retain(|text| !text.trim().is_empty());
    found
}

/// Sentences end with `.`, `:`, `?` or `!` in front of a space or at the end.
fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    [". ", ": ", "? ", "! "]
        .iter()
        .fold(vec![paragraph], |parts, end| parts.iter().flat_map(|part| part.split(end)).collect())
        .into_iter()
        .filter(|sentence| !sentence.trim().is_empty())
}

#[test]
fn the_readme_is_short() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let words = |text: &str| text.split_whitespace().count();
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "README has {lines} lines");
    let (mut count, mut total) = (0_u32, 0);
    for paragraph in paragraphs(&readme) {
        assert!(words(&paragraph) <= PARAGRAPH_WORDS, "{} words:{paragraph}", words(&paragraph));
        for sentence in sentences(&paragraph) {
            let length = words(sentence);
            assert!(length <= SENTENCE_WORDS, "{length} words: {sentence}");
            (count, total) = (count + 1, total + length);
        }
    }
    let mean = total as f64 / f64::from(count);
    assert!(mean <= MEAN_SENTENCE_WORDS, "sentences have {mean:.1} words on average");
}
