//! Compares public chat templates with Python's Jinja. `tests/templates/run` collects and renders them.

use crate::template::template;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use wrinklefree::text::{Date, RenderOptions, TextError};

/// 26 July 2024, 09:05:07, as in `render.py`.
const DATE: i64 = 1_721_984_707;
/// Special tokens, as in `render.py`.
const SPECIAL: [(&str, &str); 4] =
    [("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")];

/// Renders one conversation; the result is in the form of `rendered.json`.
fn render(source: &str, case: &Value) -> Value {
    let mut variables = case.as_object().expect("an object").clone();
    let messages = variables.shift_remove("messages").expect("messages");
    let add = variables.shift_remove("add_generation_prompt");
    let options = RenderOptions {
        add_generation_prompt: add.is_none_or(|add| add == true),
        tools: variables.shift_remove("tools"),
        documents: variables.shift_remove("documents"),
        date: Some(Date::from_unix(DATE)),
        variables,
    };
    let rendered = template(source, &SPECIAL).and_then(|t| t.render_with(&messages, &options));
    match rendered {
        Ok(text) => json!({ "text": text }),
        Err(TextError::TemplateRefused(why)) => json!({ "refused": why }),
        Err(other) => json!({ "failed": other.to_string() }),
    }
}

/// Returns the first difference of two texts, with the text before it.
fn first_difference(ours: &str, theirs: &str) -> String {
    let same = ours.chars().zip(theirs.chars()).take_while(|(a, b)| a == b).count();
    let around =
        |text: &str| text.chars().skip(same.saturating_sub(30)).take(80).collect::<String>();
    format!("ours {:?}, Python's {:?}", around(ours), around(theirs))
}

fn difference(ours: &Value, theirs: &Value) -> String {
    match (ours["text"].as_str(), theirs["text"].as_str()) {
        (Some(ours), Some(theirs)) => first_difference(ours, theirs),
        _ => format!("ours {ours:.200}, Python's {theirs:.200}"),
    }
}

/// Small templates for each part of the language; `render.py` wrote Python's results.
#[test]
fn expressions_render_as_in_python() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates/expressions.json");
    let text = std::fs::read_to_string(path).expect("expressions.json");
    let expressions: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    assert!(expressions.len() > 100);
    let case = json!({"messages": [], "d": {"a": 1, "b": [2, 3], "l": ["x", {"y": null}]}});
    let mut wrong = Vec::new();
    for expression in &expressions {
        let source = expression["template"].as_str().expect("a template");
        let ours = render(source, &case);
        let failed = ours.get("failed").is_some() && expression.get("failed").is_some();
        let keys = ["text", "refused", "failed"];
        if !failed && keys.iter().any(|key| ours.get(key) != expression.get(key)) {
            wrong.push(format!("{source}\n    {}", difference(&ours, expression)));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Fails if fewer than 99 % of the renderings are equal, and lists the others.
#[test]
#[ignore = "needs WF_TEMPLATES, the folder that tests/templates/run makes"]
fn public_templates_render_as_in_python() {
    let folder = std::env::var("WF_TEMPLATES").expect("WF_TEMPLATES names the folder");
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let rendered = read(&Path::new(&folder).join("rendered.json"));
    let rendered: BTreeMap<String, Vec<Value>> = serde_json::from_str(&rendered).expect("JSON");
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates/conversations.json");
    let cases: Vec<Value> = serde_json::from_str(&read(&cases)).expect("JSON");
    assert!(!rendered.is_empty(), "{folder} has no templates");
    let (mut all, mut equal) = (0, 0);
    for (name, theirs) in &rendered {
        let source = read(&Path::new(&folder).join(format!("templates/{name}.jinja")));
        let mut differences = Vec::new();
        for (at, (case, theirs)) in cases.iter().zip(theirs).enumerate() {
            let ours = render(&source, case);
            all += 1;
            // Errors of the language itself have other words in Python.
            let failed = ours.get("failed").is_some() && theirs.get("failed").is_some();
            if ours == *theirs || failed {
                equal += 1;
            } else {
                differences.push(format!("{at}: {}", difference(&ours, theirs)));
            }
        }
        if let Some(first) = differences.first() {
            println!("{name}: {} differ: {first}", differences.len());
        }
    }
    println!("{equal} of {all} renderings of {} templates are equal", rendered.len());
    assert!(equal * 100 >= all * 99, "{equal} of {all}");
}
