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

/// llama-server's fields choose and bound drafts, and none of them changes the text.
#[test]
fn fields_of_llama_server_bound_drafts() {
    let folder = tempfile::tempdir().expect("a directory");
    let [file, directory] = drafters(folder.path());
    let start = |drafter: &str| {
        let more = ["--context", "128", "--row-cost", "0", "--draft-model", drafter];
        Server::start(&[&["-m", MODEL][..], &more].concat())
    };
    let complete = |server: &Server, more: Value| {
        let mut body = json!({"prompt": "abc", "n_predict": 30, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        [server.post("/completion", &body), server.post("/v1/completions", &body)]
    };
    // The text, and the numbers of drafted tokens and of passes.
    let answer = |server: &Server, more: Value| {
        let [llama, openai] = complete(server, more);
        let (llama, openai) = (llama.is(200).json(), openai.is(200).json());
        let drafted = llama["timings"]["draft_n"].as_u64().unwrap_or(0);
        assert_eq!(llama["content"], openai["choices"][0]["text"]);
        assert_eq!(openai["timings"]["draft_n"].as_u64().unwrap_or(0), drafted);
        (llama["content"].clone(), drafted, openai["timings"]["forward_passes"].as_u64().unwrap())
    };
    let server = start(&file);
    let (text, drafted, passes) = answer(&server, json!({}));
    assert!(drafted > passes, "{drafted} {passes}");
    for off in [json!({"speculative.n_max": 0}), json!({"speculative.type": "none"})] {
        let (same, none, _) = answer(&server, off.clone());
        assert_eq!((&same, none), (&text, 0), "{off}");
    }
    let (same, one, passes) = answer(&server, json!({"speculative.n_max": 1}));
    assert!(same == text && one > 0 && one <= passes, "{same} {one} {passes}");
    let (same, sure, _) = answer(&server, json!({"speculative.p_min": 1.0}));
    assert!(same == text && sure < drafted, "{same} {sure} {drafted}");
    for (kind, drafts) in [("draft-dflash", true), ("draft", true), ("ngram-simple", false)] {
        let (same, some, _) = answer(&server, json!({"speculative.type": kind}));
        assert_eq!(same, text, "{kind}");
        assert!(!drafts || some == drafted, "{kind}: {some}");
    }
    let refused = |server: &Server, more: Value, param: &str| {
        for reply in complete(server, more.clone()) {
            // Errors of llama-server have no member for the field.
            let error = reply.is(400).json()["error"].to_string();
            assert!(error.contains(param), "{more}: {error}");
        }
    };
    refused(&server, json!({"speculative.n_min": 2}), "speculative.n_min");
    refused(&server, json!({"speculative.p_min": 1.5}), "speculative.p_min");
    refused(&server, json!({"speculative.type": "draft-mtp"}), "speculative.type");
    refused(&server, json!({"speculative.type": "draft-eagle3"}), "speculative.type");
    let unsure = json!({"speculative.type": "ngram-simple", "speculative.p_min": 0.5});
    refused(&server, unsure, "speculative.p_min");
    for reply in complete(&server, json!({"speculative.n_min": 0})) {
        reply.is(200);
    }
    let props = server.get("/props").is(200).json();
    let params = &props["default_generation_settings"]["params"];
    assert_eq!(params["speculative.type"], "draft");
    assert_eq!(params["speculative.p_min"], 0.0);
    assert!(params["speculative.n_max"].as_u64() > Some(0), "{props}");
    assert!(props["draft_model"].as_str().is_some_and(|text| text.contains("dspark")), "{props}");
    // A drafter without a confidence head.
    let server = start(&directory);
    refused(&server, json!({"speculative.p_min": 0.5}), "speculative.p_min");
    assert_eq!(answer(&server, json!({"speculative.p_min": 0})).0, text);
}

/// A grammar forbids drafts that do not follow it, and a client may leave at any time.
#[test]
fn drafts_under_grammars_and_of_cancelled_texts() {
    let folder = tempfile::tempdir().expect("a directory");
    let [file, _] = drafters(folder.path());
    let more = ["--context", "128", "--row-cost", "0", "--draft-model", &file];
    let server = Server::start(&[&["-m", MODEL][..], &more].concat());
    let answer = |mode: &str, more: Value| {
        let mut body = json!({"prompt": "abc", "max_tokens": 24, "decode_mode": mode, "seed": 5});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = server.post("/v1/completions", &body).is(200).json();
        (answer["choices"][0].clone(), answer["timings"]["draft_n"].as_u64().unwrap_or(0))
    };
    for more in [json!({"regex": "[abc]{20}"}), json!({"logprobs": 3}), json!({"n": 3})] {
        let ((plain, none), (drafted, some)) = (answer("ar", more.clone()), answer("verify", more));
        assert_eq!(plain, drafted);
        assert!(none == 0 && some > 0, "{none} {some}");
    }
    let before = answer("verify", json!({}));
    let endless = json!({"prompt": "abc", "max_tokens": 120, "ignore_eos": true, "stream": true});
    for _ in 0..3 {
        drop(server.open("POST", "/v1/completions", "", &endless.to_string()));
    }
    assert_eq!(answer("verify", json!({})).0, before.0);
    server.idle();
}

#[test]
fn a_model_of_several_has_its_own_drafter() {
    let folder = tempfile::tempdir().expect("a directory");
    let [file, directory] = drafters(folder.path());
    let list = format!(
        "scheduler:\n  context: 128\ndlm:\n  row_cost: 0\nmodels:\n- name: alone\n  model_path: {MODEL}\n\
         - name: sure\n  model_path: {MODEL}\n  draft_model: {file}\n  draft_threshold: 1\n\
         - name: other\n  model_path: {MODEL}\n  draft_model: {directory}\n  draft_layout: dspark\n"
    );
    let config = folder.path().join("models.yaml");
    std::fs::write(&config, list).expect("written");
    let server = Server::start(&["--config", config.to_str().expect("UTF-8")]);
    let answer = |model: &str| {
        let body = json!({"model": model, "prompt": "abc", "max_tokens": 30, "temperature": 0});
        let answer = server.post("/v1/completions", &body).is(200).json();
        (answer["choices"][0]["text"].clone(), answer["timings"]["draft_n"].as_u64().unwrap_or(0))
    };
    let (text, _) = answer("alone");
    let ((sure, few), (other, many)) = (answer("sure"), answer("other"));
    assert_eq!([&sure, &other], [&text, &text]);
    assert!(few < many, "{few} {many}");
    let list = server.get("/v1/models").is(200).json();
    let drafter = |index: usize| list["data"][index]["meta"]["drafter"].as_str().map(str::to_owned);
    assert_eq!(drafter(0), None);
    assert!(drafter(1).is_some_and(|text| text.contains("[0, 3]")), "{list}");
    assert!(drafter(2).is_some_and(|text| text.contains("dspark")), "{list}");
}
