//! Files and functions that a reader holds in one head.

use super::{files, sources};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 80;

#[test]
fn files_fit_in_a_head() {
    let rust = [
        "src",
        "compute",
        "easy",
        "capi",
        "python/src",
        "native",
        "web/wasm/src",
        "web/bindgen/src",
        "tests",
        "benches",
    ];
    let typescript = ["web/src", "web/demo", "web/tests"].map(|folder| files(folder, "ts"));
    for (path, text) in rust.map(sources).concat().into_iter().chain(typescript.concat()) {
        let lines = text.lines().count();
        assert!(lines <= FILE_LINES, "{}: {lines} lines", path.display());
    }
}

#[test]
fn functions_fit_on_a_screen() {
    for (path, text) in
        ["src", "compute", "easy", "capi", "python/src", "native", "web/wasm/src", "tests"]
            .map(sources)
            .concat()
    {
        for (name, lines) in functions(&text) {
            assert!(lines <= FUNCTION_LINES, "{}: `{name}` has {lines} lines", path.display());
        }
    }
}

/// Names of functions with bodies, and their lines. Formatted code closes a body where its `fn`
/// begins.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let declared = line.split("//").next().unwrap();
        let is_item = ["fn ", "pub", "const fn", "async fn", "unsafe fn", "extern"];
        let (Some((_, rest)), true) = (
            declared.split_once("fn "),
            is_item.iter().any(|word| declared.trim_start().starts_with(word)),
        ) else {
            continue;
        };
        if declared.trim_end().ends_with("{}") {
            continue;
        }
        let indent = declared.len() - declared.trim_start().len();
        let close = format!("{:indent$}}}", "");
        let body = lines[first..].iter().position(|l| *l == close);
        let bodiless = lines[first..].iter().position(|l| l.ends_with(';'));
        if let Some(last) = body.filter(|&last| {
            bodiless
                .is_none_or(|end| end > last || lines[first..=first + end].concat().contains('{'))
        }) {
            let name = rest.split(['(', '<']).next().unwrap();
            found.push((name, last + 1));
        }
    }
    found
}

#[test]
fn functions_are_measured() {
    let text = "fn a() {\n    b();\n}\n\nimpl C {\n    pub fn d(&self);\n    fn e() {}\n    fn f() {\n        g();\n    }\n}\n";
    let long: Vec<_> =
        functions(text).into_iter().filter(|(name, _)| ["a", "f"].contains(name)).collect();
    assert_eq!(long, [("a", 3), ("f", 3)]);
}
