//! Compares chat templates with Python's Jinja, and checks that hostile ones end in errors.

use crate::{golden, npm};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use wrinklefree::format::TextParts;
use wrinklefree::text::{ChatTemplate, Date, Message, RenderOptions, TextError};

/// 26 July 2024, 09:05:07, as in `text.py`.
const DATE: i64 = 1_721_984_707;

pub fn template(source: &str, special: &[(&str, &str)]) -> Result<ChatTemplate, TextError> {
    let special = special.iter().map(|&(k, v)| (k.into(), v.into()));
    let parts = TextParts {
        chat_template: Some(source.into()),
        special: special.collect::<BTreeMap<_, _>>(),
        ..TextParts::default()
    };
    ChatTemplate::new(&parts).map(|template| template.expect("there is one"))
}

fn source(name: &str) -> Option<String> {
    if let Some(package) = name.strip_prefix("npm:") {
        let config = npm::file(package, "tokenizer_config.json")?;
        let config: Value = serde_json::from_slice(&config).unwrap();
        return Some(config["chat_template"].as_str().unwrap().into());
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let path = format!("{root}/tests/golden/text_templates/{name}.jinja");
    Some(std::fs::read_to_string(path).unwrap())
}

#[test]
fn templates_render_as_in_python() {
    let cases = golden("text_templates/cases.json");
    let rendered = golden("text_templates/rendered.json");
    let pairs = cases.as_array().unwrap().iter().zip(rendered.as_array().unwrap());
    for (number, (case, rendered)) in pairs.enumerate() {
        let name = case["template"].as_str().unwrap();
        let Some(source) = source(name) else {
            continue;
        };
        let mut variables = case["variables"].as_object().unwrap().clone();
        let messages = variables.shift_remove("messages").unwrap();
        let add_generation_prompt = variables.shift_remove("add_generation_prompt").unwrap();
        let bos = variables.shift_remove("bos_token").unwrap();
        let eos = variables.shift_remove("eos_token").unwrap();
        let special = [("bos_token", bos.as_str().unwrap()), ("eos_token", eos.as_str().unwrap())];
        let options = RenderOptions {
            add_generation_prompt: add_generation_prompt == true,
            tools: variables.shift_remove("tools"),
            documents: None,
            date: (case["date"] == true).then(|| Date::from_unix(DATE)),
            variables,
        };
        let got = template(&source, &special).unwrap().render_with(&messages, &options);
        let got = match got {
            Ok(text) => json!({ "text": text }),
            Err(TextError::TemplateRefused(why)) => json!({ "refused": why }),
            Err(other) => panic!("case {number}, {name}: {other}"),
        };
        assert_eq!(&got, rendered, "case {number}, {name}");
    }
}

#[test]
fn a_simple_conversation() {
    let template = template("{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}>{% endif %}", &[("bos_token", "<s>")]).unwrap();
    let message =
        |role: &str, content: &str| Message { role: role.into(), content: content.into() };
    let messages = [message("user", "hi"), message("assistant", "<b>")];
    assert_eq!(template.render(&messages, true).unwrap(), "<s>user:hi;assistant:<b>;>");
    assert_eq!(template.render(&messages, false).unwrap(), "<s>user:hi;assistant:<b>;");
    assert_eq!(template.render(&[], false).unwrap(), "<s>");
    assert!(ChatTemplate::new(&TextParts::default()).unwrap().is_none());
}

#[test]
fn conversations_with_tools_may_have_a_template_of_their_own() {
    let parts = TextParts {
        chat_template: Some("plain{{ documents }}".into()),
        tool_template: Some("{% for tool in tools %}{{ tool.name }};{% endfor %}".into()),
        ..TextParts::default()
    };
    let template = ChatTemplate::new(&parts).unwrap().unwrap();
    let tools = Some(json!([{"name": "f"}, {"name": "g"}]));
    let options = RenderOptions { tools, ..RenderOptions::default() };
    assert_eq!(template.render_with(&json!([]), &options).unwrap(), "f;g;");
    assert_eq!(template.render(&[], true).unwrap(), "plainNone");
    let documents = Some(json!([{"title": "A"}]));
    let options = RenderOptions { documents, ..RenderOptions::default() };
    assert_eq!(template.render_with(&json!([]), &options).unwrap(), "plain[{'title': 'A'}]");
}

#[test]
fn a_template_that_does_not_compile_fails_when_it_renders() {
    let parts = TextParts { chat_template: Some("{% for %}".into()), ..TextParts::default() };
    assert_eq!(ChatTemplate::new(&parts).unwrap_err().code(), "bad_chat_template");
    let template = ChatTemplate::open(&parts).unwrap();
    assert_eq!(template.fault().unwrap().code(), "bad_chat_template");
    assert_eq!(template.render(&[], true).unwrap_err().code(), "bad_chat_template");
}

#[test]
fn without_a_date_there_is_no_clock() {
    let asks = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}no{% endif %}";
    assert_eq!(template(asks, &[]).unwrap().render(&[], true).unwrap(), "no");
    let insists = template("{{ strftime_now('%Y') }}", &[]).unwrap();
    assert_eq!(insists.render(&[], true).unwrap_err().code(), "chat_template_failed");
    let options = RenderOptions { date: Some(Date::from_unix(DATE)), ..RenderOptions::default() };
    assert_eq!(insists.render_with(&json!([]), &options).unwrap(), "2024");
}

#[test]
fn hostile_templates_end_in_an_error() {
    let syntax = template("{% for %}", &[]).unwrap_err();
    assert_eq!(syntax.code(), "bad_chat_template");
    let deep = format!("{{{{ {}1{} }}}}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(template(&deep, &[]).unwrap_err().code(), "bad_chat_template");
    for cut in ["{%}", "{%", "{%%}", "{%-}%}", "{% generation %}{%}"] {
        let _ = template(cut, &[]).and_then(|t| t.render(&[], true));
    }
    let failing = [
        // Endless loops and recursion.
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        // Endless output.
        "{% set x = 'x' * 10000 %}{% for a in range(9999) %}{{ x }}{% endfor %}",
        "{{ 'x' * 100000000000 }}",
        "{{ tools | tojson(indent=1000000000000) }}{{ 1 / 0 }}",
        // Access to anything but the conversation.
        "{% include '/etc/passwd' %}",
        "{% extends 'x' %}",
        "{{ messages.__class__.__mro__ }}",
        "{{ messages[0].content.nothing.more }}",
        "{{ unknown_function() }}",
        "{{ strftime_now | tojson }}",
    ];
    for source in failing {
        let result = template(source, &[]).and_then(|t| t.render(&[], true));
        assert!(result.is_err(), "{source}: {result:?}");
    }
    // A value nested as deep as the budget allows, printed and dropped.
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}";
    for source in [nested, &nested.replace("99999", "9999"), &nested.replace("99999", "999")] {
        assert!(template(source, &[]).unwrap().render(&[], true).is_err(), "{source}");
    }
}

#[test]
fn long_conversations_have_fuel() {
    let Some(source) = source("npm:qwen3") else {
        return;
    };
    let template = template(&source, &[]).unwrap();
    let messages: Vec<Message> = (0..2000)
        .map(|i| Message {
            role: if i % 2 == 0 { "user" } else { "assistant" }.into(),
            content: format!("<think>\n{i}\n</think>\n\nNumber {i}."),
        })
        .collect();
    let text = template.render(&messages, true).unwrap();
    assert_eq!(text.matches("<|im_start|>").count(), 2001);
}

#[test]
fn long_messages_are_within_the_budget() {
    let Some(source) = source("npm:qwen3") else {
        return;
    };
    let template = template(&source, &[]).unwrap();
    let message = |role: &str| Message {
        role: role.into(),
        content: format!("<think>\n{0}\n</think>\n\n{0}", "Number 1.\n".repeat(200_000)),
    };
    let messages = [message("user"), message("assistant"), message("user"), message("assistant")];
    let text = template.render(&messages, true).unwrap();
    assert!(text.len() > 10_000_000);
}
