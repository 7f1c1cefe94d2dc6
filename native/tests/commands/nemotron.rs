//! Nemotron-Labs-Diffusion: a directory with an adapter for drafts, in all decode modes.

use crate::common::run;
use serde_json::Value;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/models/nemotron");

fn generate(model: &str, more: &[&str]) -> String {
    let args = ["generate", "-m", model, "anna likes the red", "-n", "40", "--kv-dtype", "f32"];
    run(&[&args[..], more].concat()).ends(0, &[]).stdout
}

#[test]
fn all_modes_generate_and_verify_gives_the_text_of_ar() {
    let text = generate(MODEL, &["--decode-mode", "ar"]);
    for more in [
        &[][..],
        &["--decode-mode", "verify"],
        &["--row-cost", "0"],
        &["--draft-length", "3", "--row-cost", "0"],
        &["--draft", "ngram"],
    ] {
        assert_eq!(generate(MODEL, more), text, "{more:?}");
    }
    for mode in ["iterative", "adaptive", "greedy"] {
        assert!(generate(MODEL, &["--decode-mode", mode]).starts_with(" cat."), "{mode}");
    }
    let sampled = ["--temperature", "0.9", "--seed", "3"];
    let warm = |mode: &[&str]| generate(MODEL, &[&sampled[..], mode].concat());
    assert_eq!(warm(&["--row-cost", "0"]), warm(&["--decode-mode", "ar"]));
    let fused = ["generate", "-m", MODEL, "a", "--decode-mode", "iterative", "--commit", "fused"];
    run(&fused).ends(2, &["commit fused", "use commit clean"]);
    let hole = ["--decode-mode", "iterative", "--suffix", "t."];
    let args = ["generate", "-m", MODEL, "ben sees the red c", "-n", "3"];
    run(&[&args[..], &hole].concat()).ends(0, &[]);
    let args = ["generate", "-m", MODEL, "ben sees the red c", "-n", "30"];
    run(&[&args[..], &hole].concat()).ends(1, &["at most 8 fit"]);
}

#[test]
fn inspect_says_where_blocks_begin_and_what_the_adapter_changes() {
    let text = run(&["inspect", MODEL]).ends(0, &[]).stdout;
    for part in [
        "nemotron-labs-diffusion",
        "blocks of 8 from the end of the prompt on, causal attention among clean tokens, row i",
        "autoregressive and block diffusion",
        "rank 4, in the drafts of `verify` alone",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let json: Value = serde_json::from_str(&run(&["inspect", MODEL, "--json"]).ends(0, &[]).stdout)
        .expect("JSON");
    assert_eq!(json["diffusion"]["blocks_from_prompt"], true);
}

#[test]
fn it_converts_to_a_packed_file_and_other_formats_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let packed = at("m.wf.safetensors");
    run(&["convert", MODEL, &packed]).ends(0, &[]);
    for more in
        [&["--decode-mode", "ar"][..], &["--row-cost", "0"], &["--decode-mode", "iterative"]]
    {
        assert_eq!(generate(&packed, more), generate(MODEL, more), "{more:?}");
    }
    let text = run(&["inspect", &packed]).ends(0, &[]).stdout;
    assert!(text.contains("rank 4"), "{text}");
    run(&["convert", MODEL, &at("m.gguf")]).ends(1, &["Nemotron-Labs-Diffusion", "packed file"]);
    let refused = ["linear_spec_lora", "packed file"];
    run(&["convert", MODEL, &at("hf"), "--to", "hf"]).ends(1, &refused);
}
