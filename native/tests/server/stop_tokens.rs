//! A file with the keys of the official BitNet GGUF ends its turns in every command.

#[path = "../common/bitnet.rs"]
mod bitnet;

use crate::common::server::{Server, ask};
use crate::common::{run, run_with_input};
use serde_json::{Value, json};

#[test]
fn turns_of_the_official_bitnet_gguf_end() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("ggml-model-i2_s.gguf");
    bitnet::write(&path);
    let model = path.to_str().expect("UTF-8");

    let generate = |more: &[&str]| {
        let args = ["generate", "-m", model, "-n", "12", "--json", "Good morning"];
        run(&[&args[..], more].concat())
    };
    let said = ["`bitnet` replaces it", "tokenizer.ggml.pre is missing", "looks like `llama-bpe`"];
    let ran = generate(&[]).ends(0, &said);
    let answer = |stdout: &str| -> (String, String, usize) {
        let answer: Value = serde_json::from_str(stdout).expect("JSON");
        let text = |key: &str| answer[key].as_str().expect("a text").to_owned();
        (
            text("text"),
            text("finish_reason"),
            answer["timings"]["prompt_tokens"].as_u64().expect("a number") as usize,
        )
    };
    // <|begin_of_text|> "User: Good morning" <|eot_id|> "Assistant: ", a token for each byte.
    let prompt = 2 + "User: Good morningAssistant: ".len();
    assert_eq!(answer(&ran.stdout), ("Hi".into(), "stop".into(), prompt));

    let kept = generate(&["--template-fixes=false"]).ends(0, &[]);
    assert!(!kept.stderr.contains("replaces"), "{}", kept.stderr);
    assert_eq!(answer(&kept.stdout).2, 2 + "Human: Good morning\n\nBITNETAssistant: ".len());
    let raw = generate(&["--raw"]).ends(0, &[]);
    assert_eq!(answer(&raw.stdout), ("Hi".into(), "stop".into(), 1 + "Good morning".len()));
    let early = generate(&["--stop-token", "Hi"]).ends(0, &[]);
    assert_eq!(answer(&early.stdout).0, "");
    generate(&["--stop-token", "<|nothing|>"]).ends(1, &["no token \"<|nothing|>\""]);

    let file = home.path().join("mine.jinja");
    std::fs::write(&file, "{{ messages[0].content }}").expect("written");
    for (template, tokens) in [
        (file.to_str().expect("UTF-8"), "Good morning".len()),
        ("{% for m in messages %}{{ m.role }}{% endfor %}", "user".len()),
        ("bitnet", prompt),
    ] {
        let ran = generate(&["--chat-template", template]).ends(0, &[]);
        assert_eq!(answer(&ran.stdout).2, tokens, "{template}");
    }
    generate(&["--chat-template", "chatlm"]).ends(1, &["chatlm", "bitnet, chatml, gemma"]);

    let chat = run_with_input(&["chat", "-m", model, "-n", "12"], b"Good morning\n/quit\n");
    let chat = chat.ends(0, &["replaces it"]);
    assert_eq!(chat.stdout.trim(), "Hi");

    let server = Server::start(&["-m", model]);
    let reply = server.chat(&ask("Good morning", json!({"max_tokens": 12}))).is(200).json();
    assert_eq!(reply["choices"][0]["message"]["content"], "Hi");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    assert_eq!(reply["usage"]["prompt_tokens"], prompt);
    server.terminate();
    server.ended().ends(0, &["`bitnet` replaces it", "tokenizer.ggml.pre is missing"]);

    let inspected = run(&["inspect", model, "--json"]).ends(0, &[]);
    let inspected: Value = serde_json::from_str(&inspected.stdout).expect("JSON");
    let want = json!({"id": 128_009, "token": "<|eot_id|>", "reason": "named"});
    assert_eq!(inspected["end_tokens"][1], want);
    let first = json!({"id": 128_001, "token": "<|end_of_text|>", "reason": "stated"});
    assert_eq!(inspected["end_tokens"][0], first);
    assert!(inspected["notes"].to_string().contains("replaces it"));
}
