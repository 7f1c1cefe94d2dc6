//! A model with a block for multi-token prediction: what is shown of it, drafts by it, conversion.

use crate::common::server::Server;
use crate::common::{Ran, run};
use serde_json::{Value, json};

/// A small hybrid model with such a block.
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/golden/models/qwen35-gguf-bf16-tied-mtp/model.gguf"
);
/// One without.
const PLAIN: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/models/qwen35-gguf-q2_0/model.gguf");

fn generate(model: &str, more: &[&str]) -> Ran {
    let args = ["generate", "--raw", "abc", "-n", "40", "--json", "--model", model];
    run(&[&args[..], more].concat())
}

fn answer(model: &str, more: &[&str]) -> Value {
    serde_json::from_str(&generate(model, more).ends(0, &[]).stdout).expect("one JSON value")
}

#[test]
fn the_text_is_that_of_ar_whoever_drafts() {
    let ar = answer(MODEL, &["--decode-mode", "ar"]);
    assert_eq!(ar["decode_mode"], "ar");
    let directory = tempfile::tempdir().expect("a directory");
    let packed = directory.path().join("model.wf.safetensors");
    let packed = packed.to_str().expect("UTF-8");
    run(&["convert", MODEL, packed]).ends(0, &["every weight equal"]);
    for model in [MODEL, packed] {
        for (more, mode) in [
            (&["--draft", "mtp"][..], "verify, mtp"),
            (&[], "verify, mtp"),
            (&["--decode-mode", "verify", "--row-cost", "0"], "verify, mtp, row cost 0"),
            (&["--draft", "ngram"], "verify, ngram"),
            (&["--draft", "mtp", "--decode-mode", "ar"], "ar"),
        ] {
            let found = answer(model, more);
            assert_eq!(found["decode_mode"], mode, "{more:?}");
            assert_eq!(found["tokens"], ar["tokens"], "{more:?}");
        }
    }
    // Without a block `auto` is `ar`, and a draft by it is refused.
    assert_eq!(answer(PLAIN, &[])["decode_mode"], "ar");
    generate(PLAIN, &["--draft", "mtp"]).ends(2, &["draft mtp", "no block", "ngram"]);
}

#[test]
fn inspect_shows_the_block_and_its_size() {
    let text = run(&["inspect", MODEL]).ends(0, &[]).stdout;
    let line = text.lines().find(|line| line.contains("drafting block (MTP)")).expect("a line");
    assert!(line.contains("1, ") && line.contains("--draft mtp"), "{line}");
    let text = run(&["inspect", PLAIN]).ends(0, &[]).stdout;
    let line = text.lines().find(|line| line.contains("drafting block (MTP)")).expect("a line");
    assert!(line.ends_with("none"), "{line}");
    // The drafting tensors of this directory are of no model.
    let damaged =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/models/qwen35-wrapped-bf16-tied");
    let text = run(&["inspect", damaged]).ends(0, &[]).stdout;
    assert!(text.contains("not usable: model.safetensors: tensor `mtp."), "{text}");
    let report: Value =
        serde_json::from_str(&run(&["inspect", MODEL, "--json"]).ends(0, &[]).stdout).unwrap();
    assert_eq!((&report["spec"]["mtp_layers"], &report["mtp_fault"]), (&json!(1), &Value::Null));
}

#[test]
fn requests_choose_the_draft() {
    let complete = |server: &Server, more: Value| {
        let mut body = json!({"prompt": "abc", "max_tokens": 30, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/completions", &body)
    };
    let server = Server::start(&["-m", MODEL, "--context", "128"]);
    let text = |more| complete(&server, more).is(200).json()["choices"][0]["text"].clone();
    let ar = text(json!({"decode_mode": "ar"}));
    for draft in [json!({}), json!({"draft": "mtp"}), json!({"draft": "ngram"})] {
        assert_eq!(text(draft.clone()), ar, "{draft}");
    }
    // A server that was told not to draft has not loaded the block.
    let server = Server::start(&["-m", MODEL, "--context", "128", "--decode-mode", "ar"]);
    let asked = json!({"draft": "mtp", "decode_mode": "verify"});
    let refused = complete(&server, asked).is(400).json();
    assert_eq!(refused["error"]["param"], "draft");
    assert!(refused["error"]["message"].as_str().unwrap().contains("loaded without"), "{refused}");
}

/// Counts of drafted tokens, under each API's names; none where nothing drafts.
#[test]
fn drafts_are_counted() {
    let body = json!({"prompt": "abc", "max_tokens": 30, "temperature": 0});
    let server = Server::start(&["-m", MODEL, "--context", "128", "--row-cost", "0"]);
    let counts = |reply: &Value| {
        let timings = &reply["timings"];
        let [drafted, accepted] =
            ["draft_n", "draft_n_accepted"].map(|name| timings[name].as_u64());
        drafted.zip(accepted)
    };
    let whole = server.post("/v1/completions", &body).is(200).json();
    let (drafted, accepted) = counts(&whole).expect("counted");
    assert!(drafted > 0 && accepted <= drafted, "{whole}");
    let details = &whole["usage"]["completion_tokens_details"];
    assert_eq!(details["accepted_prediction_tokens"], accepted);
    assert_eq!(details["rejected_prediction_tokens"], drafted - accepted);
    let llama = json!({"prompt": "abc", "n_predict": 30, "temperature": 0});
    let reply = server.post("/completion", &llama).is(200).json();
    assert_eq!(counts(&reply), Some((drafted, accepted)), "{reply}");
    let mut streamed = llama.clone();
    streamed["stream"] = true.into();
    let last = server.post("/completion", &streamed).is(200).events().last().cloned();
    let last: Value = serde_json::from_str(&last.expect("events")).expect("JSON");
    assert_eq!(counts(&last), Some((drafted, accepted)), "{last}");
    let metrics = server.get("/metrics").is(200).body;
    for (name, count) in [("wf_drafted_tokens", drafted), ("wf_accepted_draft_tokens", accepted)] {
        assert!(metrics.contains(&format!("{name}_total {}\n", 3 * count)), "{metrics}");
    }
    let mut plain = body.clone();
    plain["decode_mode"] = "ar".into();
    let reply = server.post("/v1/completions", &plain).is(200).json();
    assert_eq!(counts(&reply), None, "{reply}");
    let timings = &answer(MODEL, &["--row-cost", "0"])["timings"];
    assert!(timings["drafted_tokens"].as_u64() > Some(0), "{timings}");
    assert_eq!(answer(MODEL, &["--decode-mode", "ar"])["timings"]["drafted_tokens"], Value::Null);
}
