//! Chat requests with tools have as many prompt tokens as in `transformers`
//! (`tests/golden/tool_prompts.py`).

#[allow(dead_code, reason = "other tests read single files")]
#[path = "../../../tests/text/npm.rs"]
mod npm;

use crate::common::server::Server;
use crate::fixtures::{HIDDEN, Hf, Style};
use serde_json::{Value, json};
use std::path::Path;

const VOCAB: usize = 151_936;

/// Writes a small random model with the tokenizer and the template of a public package.
fn write(folder: &Path, package: &Path) {
    let mut hf = Hf::new("qwen3", Style::Float)
        .set("vocab_size", json!(VOCAB))
        .set("max_position_embeddings", json!(4096));
    for name in ["model.embed_tokens", "lm_head"] {
        let bytes = vec![0; 2 * VOCAB * HIDDEN];
        hf.put(&format!("{name}.weight"), "BF16", &[VOCAB, HIDDEN], bytes);
    }
    for file in hf.files() {
        std::fs::write(folder.join(&file.name), file.bytes.whole()).expect("written");
    }
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(package.join(name), folder.join(name)).expect("copied");
    }
}

#[test]
fn prompts_with_tools_have_the_tokens_of_the_reference() {
    let golden = include_str!("../../../tests/golden/tool_prompts.json");
    let golden: Value = serde_json::from_str(golden).expect("JSON");
    for (name, tokens) in golden["tokens"].as_object().expect("tokenizers") {
        let Some(package) = npm::package(name) else { continue };
        let home = tempfile::tempdir().expect("a directory");
        write(home.path(), &package);
        let server = Server::start(&["-m", home.path().to_str().expect("UTF-8")]);
        for (what, request) in golden["requests"].as_object().expect("requests") {
            let mut body = request.clone();
            body["max_tokens"] = json!(1);
            let reply = server.post("/v1/chat/completions", &body).is(200).json();
            assert_eq!(reply["usage"]["prompt_tokens"], tokens[what], "{name}: {what}");
        }
    }
}
