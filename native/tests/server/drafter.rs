//! A model with a drafter: what is said of it, drafts by it, what is refused.

use crate::common::server::Server;
use crate::common::{Ran, run};
use crate::fixtures::drafter::{Sizes, gguf, hf};
use serde_json::{Value, json};
use std::path::Path;

/// A small hybrid model.
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/golden/models/qwen35-gguf-bf16-tied-mtp/model.gguf"
);
const SIZES: Sizes = Sizes { vocab: 120, hidden: 36 };

/// Writes drafters for the model: a GGUF file with all heads, and a directory without any.
fn drafters(folder: &Path) -> [String; 2] {
    let (file, directory) = (folder.join("dspark.gguf"), folder.join("dflash"));
    std::fs::write(&file, gguf("dflash", SIZES, &[0, 3], true).bytes()).expect("written");
    std::fs::create_dir(&directory).expect("a directory");
    for file in hf("DFlashDraftModel", SIZES, &[1, 2], false, false).files() {
        std::fs::write(directory.join(&file.name), file.bytes.whole()).expect("written");
    }
    [file, directory].map(|path| path.to_str().expect("UTF-8").to_owned())
}

fn generate(more: &[&str]) -> Ran {
    let args = ["generate", "--raw", "abc", "-n", "40", "--json", "--model", MODEL];
    run(&[&args[..], more].concat())
}

fn answer(more: &[&str]) -> Value {
    serde_json::from_str(&generate(more).ends(0, &[]).stdout).expect("one JSON value")
}

#[test]
fn the_text_is_that_of_ar_whatever_the_drafter() {
    let folder = tempfile::tempdir().expect("a directory");
    let [file, directory] = drafters(folder.path());
    let ar = answer(&["--decode-mode", "ar"]);
    for (more, mode) in [
        (&["--draft-model", &file][..], "verify, model"),
        (
            &["--draft-model", &file, "--draft", "model", "--row-cost", "0"],
            "verify, model, row cost 0",
        ),
        (&["--draft-model", &file, "--draft-threshold", "0.5"], "verify, model"),
        (&["--draft-model", &directory, "--draft-layout", "dspark"], "verify, model"),
        (&["--draft-model", &directory, "--draft", "mtp"], "verify, mtp"),
        (&["--draft-model", &directory, "--draft", "ngram"], "verify, ngram"),
        (&["--draft-model", &directory, "--decode-mode", "ar"], "ar"),
    ] {
        if more.contains(&"mtp") {
            generate(more).ends(2, &["draft mtp", "no block"]);
            continue;
        }
        let found = answer(more);
        assert_eq!(found["decode_mode"], mode, "{more:?}");
        assert_eq!(found["tokens"], ar["tokens"], "{more:?}");
    }
    // A layout that nothing states is said, and so are the states that are read.
    let words = ["warning: the drafter", "layout dflash", "--draft-layout", "[1, 2]"];
    let said = generate(&["--draft-model", &directory]).ends(0, &[]).stderr;
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let said = generate(&["--draft-model", &directory, "--draft-layout", "dflash"]).stderr;
    assert!(!said.contains("layout"), "{said}");
}

#[test]
fn what_cannot_draft_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let [file, directory] = drafters(folder.path());
    let refused = |more: &[&str], code: i32, words: &[&str]| {
        generate(more).ends(code, words);
    };
    refused(&["--draft", "model"], 2, &["draft model", "without a drafter", "draft_model"]);
    refused(&["--draft-layout", "dspark"], 2, &["--draft-model"]);
    let unsure = ["--draft-model", &directory, "--draft-threshold", "0.5"];
    refused(&unsure, 2, &["draft_threshold", "confidence head"]);
    let sure = ["--draft-model", &file, "--draft-threshold", "1.5"];
    refused(&sure, 2, &["draft_threshold must be from 0 to 1, but is 1.5"]);
    let other = folder.path().join("other.gguf");
    let sizes = Sizes { vocab: 119, ..SIZES };
    std::fs::write(&other, gguf("dflash", sizes, &[0], true).bytes()).expect("written");
    let other = other.to_str().expect("UTF-8");
    refused(&["--draft-model", other], 1, &["other", "the model's 120 tokens, found 119"]);
    refused(&["--draft-model", MODEL], 1, &["dflash or dspark"]);
    run(&["inspect", &file]).ends(1, &["a drafter", "draft_model"]);
    let several = ["serve", "--models", folder.path().to_str().unwrap(), "--draft-model", &file];
    run(&several).ends(2, &["--draft-model drafts for one model"]);
}

#[test]
fn inspect_counts_the_drafter() {
    let folder = tempfile::tempdir().expect("a directory");
    let [file, _] = drafters(folder.path());
    let report = |more: &[&str]| -> Value {
        let args = [&["inspect", MODEL, "--json"][..], more].concat();
        serde_json::from_str(&run(&args).ends(0, &[]).stdout).expect("one JSON value")
    };
    let (plain, with) = (report(&[]), report(&["--draft-model", &file]));
    assert_eq!((&plain["drafter"], &plain["memory"]["drafter"]), (&Value::Null, &json!(0)));
    assert_eq!(with["drafter"]["taps"], json!([0, 3]));
    assert_eq!(with["drafter"]["layout"], "dspark");
    // It replaces the model's own block, whose keys and values take about as much.
    let parts = ["weights", "kv_cache", "states", "tokenizer", "buffers", "drafter"];
    let bytes = |key: &str| with["memory"][key].as_u64().unwrap();
    assert_eq!(parts.map(bytes).iter().sum::<u64>(), bytes("total"), "{with}");
    assert!(bytes("drafter") > 10_000, "{with}");
    let text = run(&["inspect", MODEL, "--draft-model", &file]).ends(0, &[]).stdout;
    assert!(text.contains("layout dspark") && text.contains(", drafter "), "{text}");
}

#[test]
fn requests_choose_the_draft() {
    let folder = tempfile::tempdir().expect("a directory");
    let [file, _] = drafters(folder.path());
    let complete = |server: &Server, more: Value| {
        let mut body = json!({"prompt": "abc", "max_tokens": 30, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/completions", &body)
    };
    let server = Server::start(&["-m", MODEL, "--context", "128", "--draft-model", &file]);
    let text = |more| complete(&server, more).is(200).json()["choices"][0]["text"].clone();
    let ar = text(json!({"decode_mode": "ar"}));
    for draft in [json!({}), json!({"draft": "model"}), json!({"draft": "ngram"})] {
        assert_eq!(text(draft.clone()), ar, "{draft}");
    }
    let refused = complete(&server, json!({"draft": "mtp"})).is(400).json();
    assert_eq!(refused["error"]["param"], "draft");
}
