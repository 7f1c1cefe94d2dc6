//! `wf-run eval`, against definitions written plainly.

use crate::common::run;
use serde_json::Value;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{Checkpoint, File, load};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;
use wrinklefree::text::Tokenizer;

const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/eval/text.txt");
const MASK: u32 = 0;
const BLOCK: usize = 32;

fn lines(args: &[&str]) -> Vec<Value> {
    let ran = run(&[&["eval"], args, &["-o", "jsonl"]].concat()).ends(0, &[]);
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"))
}

/// The model inside the program, and the ids of its evaluation text.
fn model_and_ids() -> (Model, Vec<u32>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
    let bytes = std::fs::read(path).expect("there").into();
    let Checkpoint { spec, weights, text, .. } =
        load(vec![File { name: "default".into(), bytes }]).expect("a model");
    let tokenizer = Tokenizer::new(text.vocabulary.as_ref().expect("there")).expect("valid");
    let text = std::fs::read_to_string(TEXT).expect("there");
    let ids = tokenizer.encode(&text, true).expect("encodes");
    (Model::new(spec, weights).expect("fits").with_supported_layout(&runtime()), ids)
}

fn runtime() -> Runtime {
    Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).expect("a thread_pool") }
}

/// All logits of some spans of one sequence, as rows, after one pass over all of them each.
fn logits(model: &Model, spans: &[(usize, &[u32], AttentionMask)]) -> Vec<Vec<f32>> {
    let rt = runtime();
    let mut kv = KvPool::new(model.spec(), 64, KvConfig::default()).expect("memory");
    let seq = kv.open(1024).expect("pages");
    let (mut ws, mut rows) = (Workspace::default(), Vec::new());
    for &(start, tokens, attention_mask) in spans {
        let span = Span { seq, start, tokens, attention_mask, logits: LogitRows::All };
        let logits = model.forward(&rt, &mut kv, &[span], &mut ws);
        rows.extend((0..tokens.len()).map(|row| logits.row(row).to_vec()));
    }
    rows
}

fn nats(logits: &[f32], token: u32) -> f64 {
    let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    sum.ln() - f64::from(logits[token as usize])
}

#[test]
fn perplexity_is_its_definition() {
    let (model, ids) = model_and_ids();
    let rows = lines(&["perplexity", TEXT, "--window", "500"]);
    let (mut sum, mut count) = (0.0, 0);
    for window in ids.chunks(500) {
        let rows = logits(&model, &[(0, window, AttentionMask::Causal)]);
        sum += window[1..].iter().zip(&rows).map(|(&next, row)| nats(row, next)).sum::<f64>();
        count += window.len() - 1;
    }
    assert_eq!(number(&rows[0], "tokens") as usize, count);
    let got = number(&rows[0], "nats_per_token");
    assert!((got - sum / count as f64).abs() < 1e-5, "{got} {}", sum / count as f64);
    assert!((number(&rows[0], "perplexity") - got.exp()).abs() < 1e-9);
    // What PyTorch says of the original checkpoint, in windows of 512 (docs/decode-modes.md).
    let got = number(&lines(&["perplexity", TEXT])[0], "nats_per_token");
    assert!((got - 4.2259).abs() < 1e-3, "{got}");
}

#[test]
fn the_loss_of_masked_tokens_is_its_definition() {
    let (model, ids) = model_and_ids();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("text");
    // A whole story, which is no multiple of a block.
    let text = std::fs::read_to_string(TEXT).expect("there");
    let story = text.split_inclusive("<|eos|>").next().expect("a text");
    std::fs::write(&file, story).expect("written");
    let rows = lines(&["perplexity", file.to_str().expect("UTF-8")]);
    let ids = &ids[..1 + number(&rows[0], "tokens") as usize];
    assert!(ids.len() > 2 * BLOCK && !ids.len().is_multiple_of(BLOCK));
    let (mut sum, mut count) = (0.0, 0);
    for start in (0..ids.len()).step_by(BLOCK) {
        let clean = &ids[start..ids.len().min(start + BLOCK)];
        let mut noisy = [MASK; BLOCK];
        noisy[0] = clean[0];
        let denoise = (start, &noisy[..], AttentionMask::Prefix(start + BLOCK));
        let rows = match start {
            0 => logits(&model, &[denoise]),
            _ => logits(&model, &[(0, &ids[..start], AttentionMask::Causal), denoise]),
        };
        let rows = &rows[start..];
        sum += clean[1..].iter().zip(rows).map(|(&next, row)| nats(row, next)).sum::<f64>();
        count += clean.len() - 1;
    }
    let all = &rows[4];
    assert!(all["loss"].as_str().is_some_and(|name| name.starts_with("100 %")), "{all}");
    assert_eq!(number(all, "tokens") as usize, count);
    let (got, want) = (number(all, "nats_per_token"), sum / count as f64);
    assert!((got - want).abs() < 1e-4, "{got} {want}");
    let losses: Vec<f64> = rows[1..].iter().map(|row| number(row, "nats_per_token")).collect();
    assert!(losses.is_sorted(), "more masks, less known: {losses:?}");
}

#[test]
fn modes_are_compared_with_a_reference() {
    let rows = lines(&["agreement", "--limit", "12", "-n", "40", "-t", "1"]);
    let row = |mode: &str| {
        let found = rows.iter().find(|row| row["mode"] == mode);
        found.unwrap_or_else(|| panic!("{mode} in {rows:?}"))
    };
    let ar = row("ar");
    assert_eq!((number(ar, "same_tokens"), number(ar, "tokens_per_pass")), (1.0, 1.0));
    assert_eq!(number(ar, "prompts"), 12.0);
    assert!(number(ar, "of") >= 8.0 && ar["passes_per_block"].is_null());
    for lossless in ["verify, denoise", "verify, denoise, row cost 0", "verify, ngram"] {
        let verify = row(lossless);
        assert_eq!((number(verify, "same_tokens"), number(verify, "same_texts")), (1.0, 1.0));
        assert_eq!((&verify["right"], &verify["tokens"]), (&ar["right"], &ar["tokens"]));
    }
    assert!(number(row("verify, denoise, row cost 0"), "tokens_per_pass") > 1.3);
    let (greedy, iterative) = (row("greedy"), row("iterative 0.9"));
    assert!(number(greedy, "tokens_per_pass") > number(iterative, "tokens_per_pass"));
    assert!(number(greedy, "passes_per_block") <= 2.0);
    assert!(number(row("greedy, fused"), "passes_per_block") <= 1.0);
    assert!(number(row("iterative 0.5"), "forward_passes") <= number(iterative, "forward_passes"));
}

#[test]
fn quality_counts_right_answers_and_coherent_stories() {
    let few = ["--limit", "41", "--modes", "ar,verify", "--row-cost", "0", "-t", "1"];
    let quality = |more: &[&str]| lines(&[&["quality", "-n", "40"], &few[..], more].concat());
    let (rows, agreement) = (quality(&[]), lines(&["agreement", "-n", "40", "--limit", "41"]));
    let (ar, verify) = (&rows[0], &rows[1]);
    assert_eq!((&ar["right"], &ar["of"]), (&agreement[0]["right"], &agreement[0]["of"]));
    let stories = number(ar, "stories");
    assert_eq!(number(ar, "of") + stories, 41.0);
    assert_eq!(number(ar, "samples"), 4.0 * stories);
    for lossless in ["right", "tokens", "coherent", "distinct_2"] {
        assert_eq!(ar[lossless], verify[lossless], "{lossless}");
    }
    assert!(ar["accepted_per_draft"].is_null());
    assert!(number(verify, "accepted_per_draft") > 1.0, "{verify}");
    assert!(number(ar, "distinct_1") < number(ar, "distinct_3"), "{ar}");
    let others = quality(&["--samples", "2", "--seed", "7"]);
    assert_eq!(number(&others[0], "samples"), 2.0 * stories);
    assert_ne!(others[0]["distinct_3"], ar["distinct_3"]);
    let known = quality(&["--samples", "1", "--temperature", "0"]);
    assert_eq!(known[0]["right"], ar["right"]);
}

#[test]
fn a_story_is_checked_against_its_request_and_a_vocabulary() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_string();
    let (prompts, vocabulary) = (path("prompts.jsonl"), path("vocabulary.json"));
    let write = |file: &str, text: &str| std::fs::write(file, text).expect("written");
    let request = |story: &str| {
        write(
            &prompts,
            &format!(
                "{{\"messages\": [{{\"role\": \"user\", \"content\": \"Tell me a story.\"}}], \
                 \"story\": {story}}}\n"
            ),
        );
    };
    let eval = ["quality", "--prompts", &prompts, "--modes", "ar", "-n", "20"];
    let row = |more: &[&str]| lines(&[&eval[..], more].concat()).remove(0);
    request("{}");
    let taught = row(&[]);
    assert_eq!((number(&taught, "asked"), number(&taught, "lost")), (4.0, 0.0));
    request("{\"asked\": [\"nosuchword\"], \"thing\": \"nosuchthing\"}");
    let asked = row(&[]);
    for none in ["asked", "found", "coherent"] {
        assert_eq!(number(&asked, none), 0.0, "{none}");
    }
    assert_eq!((&asked["spelled"], &asked["lost"]), (&taught["spelled"], &asked["samples"]));
    let nothing = "{\"words\": [], \"names\": [], \"species\": [], \"colors\": [], \"things\": []}";
    write(&vocabulary, nothing);
    assert_eq!(number(&row(&["--vocabulary", &vocabulary]), "spelled"), 0.0);
    let table = run(&[&["eval"], &eval[..]].concat()).ends(0, &[]).stdout;
    let cells: Vec<&str> = table.split_whitespace().collect();
    let cells = cells.join(" ");
    assert!(cells.contains("| ar | – |") && cells.contains("| 0.0 % |"), "{table}");

    let fails = |more: &[&str], parts: &[&str]| {
        run(&[&["eval"], &eval[..], more].concat()).ends(1, parts);
    };
    write(&vocabulary, "{\"words\": []}");
    fails(&["--vocabulary", &vocabulary], &[&vocabulary, "names"]);
    let missing = path("missing");
    fails(&["--vocabulary", &missing], &[&missing]);
    run(&[&["eval"], &eval[..], &["--temperature=-1"]].concat()).ends(2, &["temperature"]);
    request("{\"askd\": []}");
    fails(&[], &[&prompts, "line 1", "askd"]);
}

#[test]
fn prompts_come_from_files_and_wrong_lines_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("prompts.jsonl");
    let path = file.to_str().expect("UTF-8");
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    write(
        "{\"prompt\": \"Once upon a time\"}\n\n\
         {\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"answer\": \"no such\"}\n",
    );
    let eval = ["agreement", "--prompts", path, "--modes", "iterative", "-n", "8"];
    let rows = lines(&[&eval[..], &["--thresholds", "1", "--against", "block"]].concat());
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["against"], "iterative, 1 per pass");
    // A threshold of 1 unmasks the surest, one a pass.
    assert_eq!((number(&rows[0], "same_tokens"), number(&rows[0], "of")), (1.0, 1.0));
    let fails = |text: &str, parts: &[&str]| {
        write(text);
        run(&["eval", "agreement", "--prompts", path]).ends(1, &[&[path], parts].concat());
    };
    fails(
        "{\"prompt\": \"a\"}\n{\"promt\": \"b\"}\n",
        &["line 2", "no field `promt`, only messages, prompt"],
    );
    fails("{\"answer\": \"a\"}\n", &["line 1", "either `messages` or `prompt`"]);
    fails("{\"prompt\": \"\"}\n", &["line 1", "empty"]);
    let long = "word ".repeat(600);
    fails(&format!("\n{{\"prompt\": \"{long}\"}}\n"), &["line 2", "tokens", "holds 512"]);
    write("{\"prompt\": \"a\", \"answer\": \"b\", \"category\": \"x|y\\n\"}\n");
    let table = run(&[&["eval"], &eval[..]].concat()).ends(0, &[]).stdout;
    assert!(table.contains("x\\|y\u{fffd} 0/1"), "{table}");
    write("{\"prompt\": \"a\"}\n");
    let factor = [&eval[..], &["--selector", "factor"]].concat();
    assert_eq!(lines(&factor).len(), 1, "a threshold means nothing to it");
    let all = ["eval", "agreement", "--prompts", path, "-n", "2", "--selector", "margin"];
    run(&all).ends(0, &["left out greedy", "left out adaptive"]);
    fails("\n", &["no prompts"]);
    fails("nonsense\n", &["line 1"]);
    let nothing = directory.path().join("nothing");
    let nothing = nothing.to_str().expect("UTF-8");
    run(&["eval", "agreement", "--prompts", nothing]).ends(1, &[nothing]);
    std::fs::write(&file, "").expect("written");
    run(&["eval", "perplexity", path]).ends(2, &["nothing to predict"]);
    run(&["eval", "perplexity", TEXT, "--window", "1"]).ends(2, &["--window 1"]);
}

#[test]
fn caches_are_compared_with_f32() {
    let base = ["kv", TEXT, "--context", "300,700", "-r", "1"];
    let rows = lines(&base);
    assert_eq!(rows.len(), 12, "six types, two contexts");
    for row in &rows {
        let (keys, first) =
            (row["keys"].as_str().expect("a name"), number(row, "first_layer_cosine"));
        let least = number(row, "first_layer_cosine_least");
        assert!(least <= first && first <= 1.0 + 1e-9, "{row}");
        // Heads of 64: a scale of four bytes each.
        let (size, near) = match keys {
            "f32" => (4.0, 1.0 - 1e-9),
            "f16" | "bf16" => (2.0, 0.9999),
            "int8" => (1.0 + 4.0 / 64.0, 0.999),
            "fp8-e4m3" => (1.0 + 4.0 / 64.0, 0.998),
            _ => (1.0 + 4.0 / 64.0, 0.995),
        };
        assert!(first > near, "{row}");
        let pages = (number(row, "context") / 32.0).ceil();
        assert_eq!(number(row, "bytes"), pages * 32.0 * 6.0 * 4.0 * 2.0 * 64.0 * size, "{row}");
        assert_eq!(number(row, "share_of_pages_read"), 1.0);
        assert!(number(row, "tokens_per_second") > 0.0 && number(row, "perplexity") > 1.0);
    }
    let ways = ["window:128", "topk:256", "threshold:0.1", "dynamic"];
    let ways: Vec<&str> = ways.iter().flat_map(|way| ["--attention", way]).collect();
    let rows = lines(&[&base[..], &ways, &["--types", "int8,f32"]].concat());
    assert_eq!(rows.len(), 16, "four ways, two types, two contexts");
    for row in &rows {
        assert!(number(row, "share_of_pages_read") < 1.0, "{row}");
        assert!(number(row, "logits_cosine") < 1.0 && number(row, "logits_cosine") > 0.9, "{row}");
    }
    let window = &rows[8];
    assert_eq!(
        (&window["attention"], number(window, "context")),
        (&"window:128,sinks:4".into(), 700.0)
    );
    // Its pages are 1 of sinks and those that the last token's window touches.
    assert_eq!(number(window, "bytes"), 6.0 * 32.0 * 6.0 * 4.0 * 2.0 * 68.0);
}

#[test]
fn any_cache_gives_a_text_and_says_what_it_takes() {
    let inspect = |more: &[&str]| -> Value {
        let args = [&["inspect", "--json"], more].concat();
        serde_json::from_str(&run(&args).ends(0, &[]).stdout).expect("JSON")
    };
    let memory = &inspect(&["--context", "2048", "--kv-k", "int8", "--kv-v", "f16"])["memory"];
    let by = &memory["kv_cache_by_type"];
    assert_eq!(number(by, "f32"), 2.0 * number(by, "bf16"));
    assert_eq!(2.0 * number(memory, "kv_cache"), number(by, "int8") + number(by, "f16"));
    let text = |more: &[&str]| {
        let args = [&["generate", "Tell me a story about a fox.", "-n", "40"], more].concat();
        run(&args).ends(0, &[]).stdout
    };
    let plain = text(&[]);
    assert_eq!(text(&["--kv-dtype", "f16"]), plain, "so short a text is the same");
    assert_ne!(text(&["--attention", "window:1,sinks:0"]), plain);
    for mode in ["ar", "verify", "greedy", "iterative", "adaptive"] {
        let more = ["--kv-dtype", "int8", "--attention", "topk:64", "--decode-mode", mode];
        assert!(!text(&more).trim().is_empty(), "{mode}");
    }
}

#[test]
fn rules_for_activations_are_compared_with_off() {
    let policies = "off,topk:1,threshold:0.05@down,topk:0.3@down,topk:0.5";
    let args =
        ["activations", TEXT, "--policies", policies, "--windows", "1", "-n", "8", "-r", "1"];
    let rows = lines(&args);
    let row = |policy: &str| {
        let found = rows.iter().find(|row| row["activation_sparsity"] == policy);
        found.unwrap_or_else(|| panic!("{policy} in {rows:?}"))
    };
    let off = row("off");
    for all in [off, row("topk:1")] {
        assert_eq!((&all["equals_dense"], number(all, "least_cosine")), (&true.into(), 1.0));
        assert_eq!(all["perplexity"], off["perplexity"]);
        assert_eq!(all["down_zeros"], off["down_zeros"]);
    }
    // ReLU² leaves most inputs of down_proj at zero.
    assert!(number(off, "down_zeros") > 0.7 && number(off, "down_zero_blocks") < 0.3, "{off}");
    let down = row("threshold:0.05@down");
    assert!(number(down, "down_zero_blocks") > 0.3 && number(down, "cosine") > 0.98, "{down}");
    assert!(number(row("topk:0.3@down"), "cosine") >= 0.98);
    assert!(number(row("topk:0.5"), "zeros") > number(down, "zeros"));
    assert!(rows.iter().all(|row| number(row, "times_dense") > 0.0));
    // The first window, as `eval perplexity` has it.
    let text = std::fs::read_to_string(TEXT).expect("there");
    assert!(number(off, "tokens") == 511.0 && text.len() > 2048);
    let table = run(&[&["eval"], &args[..]].concat()).ends(0, &[]).stdout;
    assert!(table.contains("| topk:0.3@down "), "{table}");
}
