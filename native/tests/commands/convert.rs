//! Models in the formats of other programs, and comparisons of models.

use crate::common::{names, run};
use serde_json::Value;
use std::fs;
use std::path::Path;

const DEFAULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/models");

fn at(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().expect("UTF-8").into()
}

fn json(args: &[&str]) -> Value {
    let ran = run(args).ends(0, &[]);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout))
}

fn story(model: &str) -> String {
    run(&["generate", "-m", model, "Tell me a story.", "-n", "40"]).ends(0, &[]).stdout
}

#[test]
fn a_gguf_file_has_weights_tokenizer_template_and_diffusion() {
    let directory = tempfile::tempdir().expect("a directory");
    let [gguf, back] = ["m.gguf", "back"].map(|name| at(directory.path(), name));
    let parts = ["68 of 68 tensors bit-equal", "same most likely token at 16 of 16"];
    let ran = run(&["convert", DEFAULT, &gguf]).ends(0, &parts);
    assert!(!ran.stderr.contains("other programs"), "GGUF has its tokenizer: {}", ran.stderr);
    assert_eq!(story(&gguf), story(DEFAULT));
    let fields = |model: &str| {
        let report = json(&["inspect", "--json", model]);
        ["diffusion", "generation", "chat_template", "tokenizer"].map(|name| report[name].clone())
    };
    assert_eq!(fields(&gguf), fields(DEFAULT));
    run(&["convert", &gguf, &back]).ends(0, &["every weight equal", "logits equal"]);
    assert_eq!(names(directory.path()), ["back", "m.gguf"]);
}

#[test]
fn every_ternary_type_gives_the_same_logits() {
    let directory = tempfile::tempdir().expect("a directory");
    let logits = |model: &str| {
        let out = at(directory.path(), "logits");
        let args = ["logits", "--tokens", "1,3,400,564", "--model", model, "--force", "--output"];
        run(&[&args[..], &[&out]].concat()).ends(0, &[]);
        fs::read(out).expect("written")
    };
    let mut all = Vec::new();
    for kind in ["TQ1_0", "tq2_0", "Q2_0", "PQ2_0", "PTQ1_0", "I2_S"] {
        let gguf = at(directory.path(), &format!("{kind}.gguf"));
        run(&["convert", DEFAULT, &gguf, "--type", kind]).ends(0, &["tensors bit-equal"]);
        all.push(logits(&gguf));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "the same bits");
}

#[test]
fn what_a_type_cannot_hold_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let gguf = at(directory.path(), "m.gguf");
    let groups = format!("{GOLDEN}/qwen3-groups/q2_0.gguf");
    let parts = ["GGUF cannot hold the model", ".weight", "TQ2_0", "Q2_0 holds it"];
    run(&["convert", &groups, &gguf, "--type", "TQ2_0"]).ends(1, &parts);
    let rotated = format!("{GOLDEN}/qwen35-gguf-q2_0-b128-tied/model.gguf");
    let hf = at(directory.path(), "hf");
    run(&["convert", &rotated, &hf, "--to", "hf"]).ends(1, &["a rotated one", "GGUF and packed"]);
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn rotated_hybrids_come_back_from_gguf() {
    let directory = tempfile::tempdir().expect("a directory");
    let gguf = at(directory.path(), "m.gguf");
    let rotated = format!("{GOLDEN}/qwen35-gguf-q2_0-b128-tied/model.gguf");
    run(&["convert", &rotated, &gguf]).ends(0, &["bit-equal, logits equal"]);
    run(&["compare", &rotated, &gguf, "--atol", "0"]).ends(0, &[]);
}

#[test]
fn a_directory_is_a_model_that_is_replaced_when_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let (hf, gguf) = (at(directory.path(), "hf"), at(directory.path(), "m.gguf"));
    let wrapped = format!("{GOLDEN}/qwen35-wrapped-f16");
    run(&["convert", &wrapped, &hf, "--to", "hf"]).ends(0, &["tensors bit-equal"]);
    // Qwen3.5's GGUF files imply sampling parameters that this directory does not have.
    run(&["convert", &wrapped, &gguf]).ends(0, &["tensors bit-equal"]);
    run(&["convert", &wrapped, &hf, "--to", "hf"]).ends(1, &["is not empty", "--force"]);
    run(&["convert", DEFAULT, &hf, "--to", "hf", "--force"]).ends(0, &["68 of 68 tensors"]);
    assert_eq!(story(&hf), story(DEFAULT));
    let files = ["config.json", "model.safetensors", "tokenizer.json", "dlm_config.json"];
    assert!(files.iter().all(|name| Path::new(&hf).join(name).is_file()));
    run(&["convert", &hf, &gguf, "--force"]).ends(0, &["tensors bit-equal"]);
    // Other directories stay as they are.
    let other = at(directory.path(), "other");
    fs::create_dir(&other).expect("made");
    fs::write(Path::new(&other).join("letter.txt"), "dear").expect("written");
    let refused = run(&["convert", DEFAULT, &other, "--to", "hf", "--force"]);
    refused.ends(1, &["has no config.json", "directories of models only"]);
    assert_eq!(names(Path::new(&other)), ["letter.txt"]);
}

#[test]
fn models_are_compared_tensor_by_tensor_and_logit_by_logit() {
    let directory = tempfile::tempdir().expect("a directory");
    let gguf = at(directory.path(), "m.gguf");
    let rounded = ["67 of 68 tensors bit-equal, embedding int8 → int8/g32 within "];
    run(&["convert", DEFAULT, &gguf, "--head", "q8"]).ends(0, &rounded);
    let same = json(&["compare", DEFAULT, DEFAULT, "-o", "json"]);
    assert_eq!(
        (&same["weights"]["different"], &same["logits"][0]["largest"]),
        (&0.into(), &0.0.into())
    );
    let report = json(&["compare", DEFAULT, &gguf, "-o", "json"]);
    assert_eq!(report["weights"]["different"], 1);
    let first = &report["weights"]["first"];
    assert_eq!((&first["name"], &first["kinds"][1]), (&"embedding".into(), &"int8/g32".into()));
    let logits = &report["logits"][0];
    assert!(logits["largest"].as_f64() > Some(0.0) && logits["cosine"].as_f64() > Some(0.9));
    assert_eq!((&logits["positions"], &logits["top1"]), (&16.into(), &16.into()));

    let table = run(&["compare", DEFAULT, &gguf]).ends(0, &[]).stdout;
    for part in ["16 of 16", "first difference: embedding (int8 and int8/g32)", "KL mean"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let parts = ["more than --atol 0.000000001", "at position "];
    run(&["compare", DEFAULT, &gguf, "--atol", "1e-9"]).ends(1, &parts);
    run(&["compare", DEFAULT, &gguf, "--text", "A fox.", "--atol", "10"]).ends(0, &[]);
    let other = format!("{GOLDEN}/qwen35-wrapped-f16");
    run(&["compare", DEFAULT, &other]).ends(1, &["cannot be compared"]);
}

#[test]
fn logits_of_another_program_are_a_baseline() {
    let model = format!("{GOLDEN}/qwen3-groups");
    let tokens = fs::read(format!("{model}/tokens.npy")).expect("there");
    // int64 in a header of 128 bytes.
    let ids = tokens[128..].as_chunks().0.iter().map(|b| i64::from_le_bytes(*b).to_string());
    let ids: Vec<String> = ids.collect();
    let baseline = format!("{model}/causal.npy");
    let args = ["compare", &model, "--baseline", &baseline, "--tokens", &ids.join(",")];
    run(&[&args[..], &["--atol", "1e-3"]].concat()).ends(0, &[]);
    run(&[&args[..], &["--atol", "0"]].concat()).ends(1, &["causal.npy differ by"]);
    let fewer = ["compare", &model, "--baseline", &baseline, "--tokens", "1,2"];
    run(&fewer).ends(1, &["causal.npy: expected f32 [2, ", "a row for each token"]);
    let text = ["compare", &model, "--baseline", "/no/such.npy", "--tokens", "1"];
    run(&text).ends(1, &["cannot read /no/such.npy"]);
}
