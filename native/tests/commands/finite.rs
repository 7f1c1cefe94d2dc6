//! Models whose numbers are not finite: in their weights, and in what they compute.

use crate::common::server::Server;
use crate::common::{run, run_with_input};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use wrinklefree::format::{self, Checkpoint, Linear, Vocabulary, load, write_packed};
use wrinklefree::matrix::{FloatMatrix, FloatType, Matrix};
use wrinklefree::text::Tokenizer;

const DEFAULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
/// A text with the token whose embedding is too large, and one without it.
const BAD: &str = "Mail me @ home";
const GOOD: &str = "Once upon a time";

fn default() -> Checkpoint {
    let bytes = fs::read(DEFAULT).expect("there").into();
    load(vec![format::File { name: "default".into(), bytes }]).expect("loads")
}

/// Writes a model after a change of its embeddings: `change(token, row)`. Its head is not changed.
fn write(directory: &Path, change: impl Fn(u32, &mut [f32])) -> PathBuf {
    let mut model = default();
    let weights = &mut model.weights;
    weights.head.get_or_insert_with(|| Linear::new(weights.embed.clone(), None));
    let (rows, cols) = (weights.embed.rows(), weights.embed.cols());
    let mut row = vec![0f32; cols];
    let mut bytes = Vec::new();
    for token in 0..rows {
        weights.embed.row_f32(token, &mut row);
        change(token as u32, &mut row);
        bytes.extend(row.iter().flat_map(|x| x.to_le_bytes()));
    }
    let embed = FloatMatrix::new(rows, cols, FloatType::F32, bytes.into()).expect("its size");
    weights.embed = Matrix::Float(embed);
    let path = directory.join("model.safetensors");
    let Some(Vocabulary::Json(tokenizer)) = &model.text.vocabulary else { panic!("it has one") };
    write_packed(&model, Some(tokenizer), &mut File::create(&path).expect("a file"))
        .expect("written");
    path
}

/// Writes a model that cannot compute the token with the `@`.
fn without_at(directory: &Path) -> PathBuf {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode(BAD, false).expect("encodes");
    let at = ids.into_iter().find(|&id| tokenizer.decode(&[id]).contains('@'));
    write(directory, move |token, row| {
        if Some(token) == at {
            row.fill(1e25);
        }
    })
}

fn tokenizer() -> Tokenizer {
    Tokenizer::new(default().text.vocabulary.as_ref().expect("it has one")).expect("usable")
}

#[test]
fn weights_that_are_not_finite_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = write(directory.path(), |token, row| {
        if token == 5 {
            row[3] = f32::NAN;
        }
    });
    let (model, out) = (path.to_str().expect("UTF-8"), directory.path().join("out"));
    let words = ["model.safetensors", "`embed`", "NaN in row 5, column 3"];
    for args in [
        &["generate", "--raw", GOOD, "-m", model][..],
        &["inspect", model],
        &["convert", model, out.to_str().expect("UTF-8")],
        &["serve", "--port", "0", "-m", model],
    ] {
        run(args).ends(1, &words);
    }
    assert!(!out.exists());
}

#[test]
fn subnormal_weights_are_set_to_zero_and_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = write(directory.path(), |token, row| {
        if token == 5 {
            row[3..6].fill(1e-39);
        }
    });
    let model = path.to_str().expect("UTF-8");
    let json = run(&["inspect", model, "--json"]).ends(0, &[]).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["subnormal_weights"], 3);
    assert!(run(&["inspect", model]).ends(0, &[]).stdout.contains("3, set to zero"));
    run(&["generate", "--raw", GOOD, "-n", "1", "-m", model]).ends(0, &["3 subnormal weights"]);
    // A file that is written has none.
    let out = directory.path().join("out");
    let out = out.to_str().expect("UTF-8");
    run(&["convert", model, out]).ends(0, &["every weight equal"]);
    let json = run(&["inspect", out, "--json"]).ends(0, &[]).stdout;
    assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON")["subnormal_weights"], 0);
}

#[test]
fn commands_end_with_an_error_where_a_number_is_not_finite() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = without_at(directory.path());
    let (model, text) = (path.to_str().expect("UTF-8"), directory.path().join("text.txt"));
    fs::write(&text, BAD).expect("written");
    let (text, npy) = (text.to_str().expect("UTF-8"), directory.path().join("logits.npy"));
    let words = ["the model computed a number that is not finite"];
    run(&["generate", "--raw", BAD, "-m", model]).ends(1, &words);
    for mode in ["verify", "iterative"] {
        run(&["generate", "--raw", BAD, "-m", model, "--decode-mode", mode]).ends(1, &words);
    }
    run_with_input(&["chat", "-m", model], format!("{BAD}\n").as_bytes()).ends(1, &words);
    run(&["eval", "perplexity", "-m", model, text]).ends(1, &words);
    let ids = tokenizer().encode(BAD, false).expect("encodes");
    let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let out = npy.to_str().expect("UTF-8");
    run(&["logits", "-m", model, "--tokens", &ids, "--output", out]).ends(1, &words);
    assert!(!npy.exists());
    run(&["generate", "--raw", GOOD, "-n", "4", "-m", model]).ends(0, &[]);
}

#[test]
fn a_server_answers_500_and_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = without_at(directory.path());
    let server = Server::start(&["-m", path.to_str().expect("UTF-8")]);
    let post = |path: &str, body: &Value| server.send("POST", path, HEADERS, &body.to_string());
    let completion = |prompt: &str| json!({"prompt": prompt, "max_tokens": 8, "temperature": 0});
    let want = post("/v1/completions", &completion(GOOD)).is(200).json()["choices"].clone();

    let error = post("/v1/completions", &completion(BAD)).is(500).json()["error"].clone();
    assert_eq!((&error["code"], &error["type"]), (&json!("model_error"), &json!("server_error")));
    assert!(error["message"].as_str().is_some_and(|m| m.contains("not finite")), "{error}");

    let mut stream = completion(BAD);
    stream["stream"] = json!(true);
    let events = post("/v1/completions", &stream).is(200).events();
    assert!(events.iter().any(|event| event.contains("model_error")), "{events:?}");

    let chat = json!({"messages": [{"role": "user", "content": BAD}], "max_tokens": 8});
    assert_eq!(post("/v1/chat/completions", &chat).is(500).json()["error"]["code"], "model_error");
    let reply = post("/v1/messages", &chat).is(500).json();
    assert_eq!(reply["error"]["type"], "api_error", "{reply}");
    let texts = json!({"input": [GOOD, BAD]});
    assert_eq!(post("/v1/embeddings", &texts).is(500).json()["error"]["code"], "model_error");

    // Next to a request that fails, another one gets the answer that it gets alone.
    std::thread::scope(|scope| {
        let bad = scope.spawn(|| post("/v1/completions", &completion(BAD)).is(500));
        for _ in 0..5 {
            assert_eq!(post("/v1/completions", &completion(GOOD)).is(200).json()["choices"], want);
        }
        bad.join().expect("an answer");
    });
    let metrics = server.get("/metrics").is(200).body;
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("wf_requests_finished_total{reason=\"model_error\"} "));
    assert!(count.is_some_and(|n| n.parse::<u32>().expect("a number") >= 6), "{metrics}");
}

const HEADERS: &str = "content-type: application/json\r\n";
