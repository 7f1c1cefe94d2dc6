//! Models that are unusual or do not fit together.

use crate::common::{run, run_with_input};
use std::fs::{self, File};
use std::path::Path;
use wrinklefree::format::{self, Checkpoint, Vocabulary, load, write_packed};

const DEFAULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
/// A directory with `config.json` and `model.safetensors`; a vocabulary of 159.
const HF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/models/bitnet-packed");

fn default() -> Checkpoint {
    let bytes = fs::read(DEFAULT).expect("there").into();
    load(vec![format::File { name: "default".into(), bytes }]).expect("loads")
}

/// The text of its `tokenizer.json`.
fn tokenizer(checkpoint: &Checkpoint) -> &[u8] {
    match &checkpoint.text.vocabulary {
        Some(Vocabulary::Json(json)) => json,
        _ => panic!("packed files have one"),
    }
}

fn write(checkpoint: &Checkpoint, path: &Path) {
    let mut file = File::create(path).expect("a file");
    write_packed(checkpoint, Some(tokenizer(checkpoint)), &mut file).expect("written");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_tokenizer_of_another_model() {
    let directory = tempfile::tempdir().expect("a directory");
    let (model, out) = (directory.path().join("mixed"), directory.path().join("out"));
    fs::create_dir(&model).expect("made");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(Path::new(HF).join(name), model.join(name)).expect("copied");
    }
    fs::write(model.join("tokenizer.json"), tokenizer(&default())).expect("written");
    let parts = [
        "cannot use the tokenizer or template of mixed",
        "embeds only 159 tokens",
        "different models",
    ];
    run(&["generate", "--raw", "Hello", "--model", text(&model)]).ends(1, &parts);
    run(&["chat", "--model", text(&model)]).ends(1, &parts);
    run(&["convert", text(&model), text(&out)]).ends(1, &parts);
    assert!(!out.exists());
}

#[test]
fn templates_may_ask_for_the_date() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dated.safetensors");
    let mut checkpoint = default();
    let template = "{{ strftime_now('%d %b %Y') }}{{ messages[-1]['content'] }}";
    checkpoint.text.chat_template = Some(template.into());
    write(&checkpoint, &path);
    let model = ["--model", text(&path), "-n", "2"];
    run(&[&["generate", "Hello"], &model[..]].concat()).ends(0, &[]);
    let ran = run_with_input(&[&["chat"], &model[..]].concat(), b"Hello\n").ends(0, &[]);
    assert!(!ran.stderr.contains("error"), "{}", ran.stderr);
}

#[test]
fn a_part_of_a_directory_stands_for_all_of_it() {
    let part = format!("{HF}/model.safetensors");
    let report = |model: &str| {
        let ran = run(&["inspect", "--json", model]).ends(0, &[]);
        let mut report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        report["model"].take();
        // Measured: the allocator rounds it.
        for part in ["tokenizer", "total"] {
            report["memory"][part].take();
        }
        report
    };
    assert_eq!(report(&part), report(HF));
}

#[test]
fn a_context_without_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("endless.safetensors");
    let mut checkpoint = default();
    checkpoint.spec.context_length = 1 << 30;
    write(&checkpoint, &path);
    let args = ["inspect", text(&path), "--json", "--context", "1073741824"];
    let report = run(&args).ends(0, &[]).stdout;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert!(report["memory"]["kv_cache"].as_u64() > Some(1 << 40), "{report}");
}

#[test]
fn block_diffusion_needs_a_mask_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("plain.wf.safetensors");
    let mut checkpoint = default();
    checkpoint.dlm = None;
    write(&checkpoint, &path);
    let generate = |mode: &[&str]| {
        run(&[&["generate", "Hello!", "-n", "8", "--model", text(&path)], mode].concat())
    };
    // The embedded model's tokenizer has a special token that says mask.
    let guess = ["warning: the model's files name no MASK token", "<|mask|>", "mask_token_id"];
    generate(&["--decode-mode", "greedy", "--block-size", "32"]).ends(0, &guess);
    generate(&["--decode-mode", "greedy", "--mask-token-id", "0"]).ends(2, &["block_size"]);
    generate(&["--decode-mode", "verify"]).ends(0, &[]);

    let json = String::from_utf8(tokenizer(&checkpoint).to_vec()).expect("JSON");
    let json = json.replace("<|mask|>", "<|none|>").into_bytes();
    checkpoint.text.vocabulary = Some(Vocabulary::Json(json.into()));
    write(&checkpoint, &path);
    let parts = ["has no MASK token", "decode_mode ar", "mask_token_id"];
    generate(&["--decode-mode", "greedy"]).ends(2, &parts);
}

/// A small hybrid model with tied, rotated embeddings.
const HYBRID: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/golden/models/qwen35-gguf-q2_0-b128-tied/model.gguf"
);

#[test]
fn inspect_names_the_architecture_and_the_rotation() {
    let text = run(&["inspect", HYBRID]).ends(0, &[]).stdout;
    for part in ["qwen35", "13 of 15 matrices and the embeddings, in blocks of 128"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn rotated_models_convert_without_loss() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("model.wf.safetensors");
    run(&["convert", HYBRID, text(&out)]).ends(0, &[]);
    let logits = |model: &str, name: &str| {
        let file = directory.path().join(name);
        let tokens = ["--tokens", "1,2,3,4,5,6,7,8,9"];
        run(&[&["logits", "-m", model, "-o", text(&file)][..], &tokens].concat()).ends(0, &[]);
        fs::read(file).expect("written")
    };
    assert!(logits(HYBRID, "a.npy") == logits(text(&out), "b.npy"), "the same bits");
}
