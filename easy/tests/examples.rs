//! Runs every example as a program and checks a part of its output.
#![cfg(all(feature = "default-model", feature = "grammar"))]

use std::path::PathBuf;
use std::process::Command;

/// Runs an example and returns its standard output.
fn output(name: &str) -> String {
    let test = std::env::current_exe().expect("a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let program: PathBuf = folder.join("examples").join(name);
    let ran = Command::new(&program).output().expect("cargo test builds the examples");
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("UTF-8")
}

#[test]
fn generate_and_stream_give_the_same_text() {
    let (whole, parts) = (output("generate"), output("stream"));
    let whole = whole.strip_prefix("Once upon a time").expect("the prompt comes first");
    let (text, summary) = whole.split_once("\n[").expect("a summary");
    assert!(summary.starts_with("40 tokens"), "{summary}");
    assert_eq!(
        parts.split_once("\n[").map(|(text, end)| (text, end.trim())),
        Some((text, "Length]"))
    );
}

#[test]
fn chat_answers_both_questions() {
    let text = output("chat");
    assert!(text.starts_with("> Hello!\n") && text.contains("named Pip.\n"), "{text}");
}

#[test]
fn tools_are_called_and_answered() {
    let text = output("tools");
    let (call, _) = text.split_once('\n').expect("a call and an answer");
    assert!(["weather of \"Oslo\"", "weather of \"Rome\""].contains(&call), "{text}");
}

#[test]
fn batch_prints_one_line_for_each_prompt() {
    let text = output("batch");
    for prompt in ["The fox|", "The owl|", "The bear|"] {
        assert!(text.contains(prompt), "{text}");
    }
}

#[test]
fn constrained_outputs_keep_their_form() {
    let text = output("constrained");
    assert!(text.starts_with("animal: \""), "{text}");
    assert!(text.contains("answer: yes") || text.contains("answer: no"), "{text}");
}

#[test]
fn embeddings_tell_texts_apart() {
    let text = output("embed");
    let cosines: Vec<f32> =
        text.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    assert!(cosines.len() == 2 && cosines[0] > cosines[1], "{text}");
}

#[test]
fn the_custom_decoder_avoids_a_letter() {
    let text = output("custom_decoder");
    assert!(text.len() > 20 && !text.contains('k'), "{text}");
}
