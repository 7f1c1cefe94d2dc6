//! Commands on the model inside the program.

use crate::common::model::DEFAULT;
use crate::common::{Ran, names, run, run_with_input, wf_run};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Never ends by itself: the end-of-text token is out of reach.
const ENDLESS: [&str; 6] =
    ["generate", "--raw", "Once upon a time", "--logit-bias", "2=-1000", "-t1"];

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&run(args).ends(0, &[]).stdout).expect("one JSON value")
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().expect("UTF-8").into()
}

#[test]
fn generate_streams_text_and_sums_up() {
    let ran = run(&["generate", "Tell me a story about a fox."])
        .ends(0, &["[prompt ", " tok/s · generated ", "stop", "peak memory"]);
    assert!(ran.stdout.contains("fox") && ran.stdout.ends_with('\n'), "{}", ran.stdout);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
}

#[test]
fn generate_fills_a_hole_between_two_texts() {
    let fill = |suffix: &str| {
        let args = ["generate", "--suffix", suffix, "-n", "3", "There once was a small"];
        run(&args).ends(0, &[]).stdout
    };
    assert_ne!(fill(" ball."), fill(" dragon slept. The end."));
    let all = json(&["generate", "--json", "--suffix", " ball.", "Tom had a red"]);
    assert!(
        all["tokens"].as_array().is_some_and(|tokens| (1..32).contains(&tokens.len())),
        "{all}"
    );
    let refused = |args: &[&str], code: i32, words: &str| {
        run(&[&["generate", "--suffix", " ball.", "Tom"], args].concat()).ends(code, &[words]);
    };
    refused(&["--decode-mode", "ar"], 1, "decode_mode ar cannot fill a hole");
    refused(&["--enable-thinking"], 2, "--suffix has no thinking");
    refused(&["--raw"], 2, "cannot be used with");
}

#[test]
fn screened_logits_choose_the_same_tokens() {
    for mode in ["ar", "verify"] {
        let story = ["generate", "Tell me a story about an owl.", "--decode-mode", mode];
        let screened = run(&[&story[..], &["--logits", "screened"]].concat());
        let lines = |stderr: &str| stderr.lines().count();
        assert_eq!(lines(&screened.stderr), 1, "no warning: {}", screened.stderr);
        assert_eq!(screened.ends(0, &[]).stdout, run(&story).ends(0, &[]).stdout, "{mode}");
    }
}

#[test]
fn the_prompt_comes_from_standard_input_too() {
    let argument = run(&["generate", "Tell me a story."]).ends(0, &[]).stdout;
    for args in [&["generate"][..], &["generate", "-"]] {
        assert_eq!(run_with_input(args, b"Tell me a story.\n").ends(0, &[]).stdout, argument);
    }
    let raw = run(&["generate", "--raw", "Tell me a story."]).ends(0, &[]).stdout;
    assert_ne!(raw, argument, "the chat template makes a difference");
}

#[test]
fn json_has_text_ids_reason_and_timings() {
    let answer = json(&["generate", "Tell me a story.", "--json", "-n", "3", "--logprobs", "2"]);
    assert_eq!(answer["tokens"].as_array().map(Vec::len), Some(3));
    assert_eq!(answer["finish_reason"], "length");
    assert!(answer["text"].is_string() && answer["isa"].is_string());
    assert_eq!(answer["timings"]["generated_tokens"], 3);
    assert!(answer["timings"]["decode_tokens_per_second"].as_f64() > Some(0.0));
    assert!(answer["peak_memory_bytes"].as_u64() > Some(1 << 20));
    let first = &answer["logprobs"][0];
    assert_eq!(first["token"], answer["tokens"][0]);
    assert_eq!(first["top"].as_array().map(Vec::len), Some(2));
    assert_eq!(first["top"][0]["logprob"], first["logprob"], "greedy takes the most likely");
}

#[test]
fn the_same_seed_gives_the_same_text_with_any_threads() {
    let text = |seed: &str, threads: &str| {
        let args = ["--temperature", "1.5", "--seed", seed, "--threads", threads, "-n", "40"];
        run(&[&["generate", "Tell me a story."], &args[..]].concat()).ends(0, &[]).stdout
    };
    assert_eq!(text("1", "1"), text("1", "2"));
    assert_ne!(text("1", "1"), text("2", "1"));
}

#[test]
fn every_decode_mode_answers_and_verify_answers_as_ar() {
    let answer = |mode: &[&str]| {
        let prompt = ["generate", "Tell me a story about a fox.", "-n", "60", "--json"];
        json(&[&prompt, mode].concat())
    };
    let ar = answer(&["--decode-mode", "ar"]);
    assert_eq!(ar["tokens"], answer(&[])["tokens"], "the default of a model with both paths");
    let passes = |answer: &Value| answer["timings"]["forward_passes"].as_u64().unwrap();
    assert_eq!(passes(&ar), 60);
    for draft in ["denoise", "ngram"] {
        let verified = answer(&["--decode-mode", "verify", "--draft", draft]);
        assert_eq!(verified["tokens"], ar["tokens"], "{draft}");
        assert!(passes(&verified) <= 60);
    }
    for mode in ["greedy", "iterative", "adaptive"] {
        let blocks = answer(&["--decode-mode", mode, "--threshold", "0.7", "--sub-block-cache"]);
        let tokens = blocks["tokens"].as_array().unwrap();
        assert!(!tokens.is_empty() && tokens.iter().all(|t| t != 0), "MASK is never output");
        assert!(passes(&blocks) < 60, "{mode}");
    }
}

#[test]
fn steps_show_what_is_new_guessed_and_unknown() {
    let prompt = ["generate", "Tell me a story about a fox.", "-n", "12", "--show-steps"];
    let ran = run(&[&prompt[..], &["--decode-mode", "iterative"]].concat()).ends(0, &["length"]);
    let (steps, text) = ran.stdout.trim_end().rsplit_once('\n').expect("steps, then the text");
    let first = steps.lines().next().expect("a pass");
    assert!(first.starts_with("   1 ") && first.ends_with('_'), "{first}");
    assert!(first.contains("[ fox]") && first.contains('('), "{first}");
    assert!(steps.lines().count() > 3 && !text.contains(['[', '(', '_']), "{text}");
    run(&[&prompt[..], &["--json"]].concat()).ends(2, &["--show-steps"]);
}

#[test]
fn every_pass_of_every_mode_is_shown() {
    let steps = |mode: &[&str], n: &str| {
        let prompt = ["generate", "Tell me a story about a fox.", "-n", n, "--show-steps"];
        let ran = run(&[&prompt[..], mode].concat()).ends(0, &[]);
        let mut lines: Vec<String> = ran.stdout.trim_end().lines().map(Into::into).collect();
        let text = lines.pop().expect("the text");
        (lines, text)
    };
    // A prompt of 11 and 20 tokens fill one block: one pass, which settles everything.
    let (lines, text) = steps(&["--decode-mode", "greedy"], "20");
    assert_eq!(lines.len(), 1);
    assert!(!lines[0].contains('_') && lines[0].matches('[').count() >= 20, "{lines:?} {text}");
    // Three blocks without commits of their own.
    let (lines, _) = steps(&["--decode-mode", "greedy", "--commit", "fused"], "60");
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| !line.contains('_')), "{lines:?}");
    // What is accepted of a draft is bright: all brights together are the text.
    let (lines, text) = steps(&["--decode-mode", "verify", "--row-cost", "0"], "30");
    let bright: String = lines
        .iter()
        .flat_map(|line| line.split('[').skip(1).filter_map(|rest| rest.split_once(']')))
        .map(|(token, _)| token)
        .collect();
    assert_eq!(bright, text);
    let (lines, _) = steps(&["--decode-mode", "ar"], "5");
    assert_eq!(lines.len(), 5);
}

#[test]
fn stop_texts_end_every_mode_and_no_pass_follows() {
    for mode in ["ar", "verify", "greedy", "iterative", "adaptive"] {
        let prompt = ["generate", "Tell me a story about a fox.", "--json", "--decode-mode", mode];
        let whole = json(&prompt);
        let text = whole["text"].as_str().expect("a text");
        let stop = text.split(' ').nth(7).expect("many words");
        let cut = json(&[&prompt[..], &["--stop", stop]].concat());
        assert_eq!(cut["text"].as_str(), text.split(stop).next(), "{mode}");
        assert_eq!(cut["finish_reason"], "stop");
        let passes = |answer: &Value| answer["timings"]["forward_passes"].as_u64();
        assert!(passes(&cut) < passes(&whole), "{mode}");
    }
}

#[test]
fn stop_texts_end_before_themselves() {
    let whole = run(&["generate", "Tell me a story."]).ends(0, &[]).stdout;
    let args = ["generate", "Tell me a story.", "--stop", "never there", "--stop", ". "];
    let ran = run(&args).ends(0, &[" stop "]);
    let first = whole.split(". ").next().expect("a sentence");
    assert_eq!(ran.stdout, format!("{first}\n"));
}

#[test]
fn a_prompt_longer_than_the_context() {
    let prompt = "word ".repeat(3000);
    let ran = run(&["generate", &prompt])
        .ends(1, &["error: ", "tokens", "or configure a longer context\n"]);
    assert!(!ran.stderr.contains("raise"), "nothing raises it: {}", ran.stderr);
}

#[test]
fn a_closed_pipe_stops_generating_quietly() {
    let mut child = wf_run(&ENDLESS).spawn().expect("starts");
    let mut byte = [0];
    child.stdout.take().expect("piped").read_exact(&mut byte).expect("some text");
    let ran: crate::common::Ran = child.wait_with_output().expect("ends").into();
    assert_eq!(ran.ends(0, &[]).stderr, "");
}

#[test]
#[cfg(unix)]
fn ctrl_c_sums_up_and_exits_with_130() {
    let mut child = wf_run(&ENDLESS).spawn().expect("starts");
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut [0]).expect("some text");
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill runs").success());
    stdout.read_to_end(&mut Vec::new()).expect("the rest");
    let ran: crate::common::Ran = child.wait_with_output().expect("ends").into();
    ran.ends(130, &["[prompt ", "cancelled"]);
}

#[test]
fn chat_remembers_resets_and_saves() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = path(directory.path(), "talk.json");
    let notes = path(directory.path(), "notes.txt");
    std::fs::write(&notes, "mine").expect("written");
    let talk = format!(
        "/save {file}\nHello\n\"\"\"\nTell me\na story.\n\"\"\"\n/stats\n/save {file}\n/save {notes}\n\
         /nope\n/reset\n/quit\nnot read\n"
    );
    let args = ["chat", "-n", "8", "--system", "Be kind."];
    run_with_input(&args, talk.as_bytes()).ends(
        0,
        &[
            "tok/s",
            "saved 5 messages",
            "notes.txt exists and is not a conversation: choose another name",
            "/nope is no command",
            "new conversation",
        ],
    );
    assert_eq!(std::fs::read_to_string(notes).expect("kept"), "mine");
    let saved = std::fs::read_to_string(file).expect("saved");
    let saved: Vec<Value> = serde_json::from_str(&saved).expect("JSON");
    let roles: Vec<_> = saved.iter().map(|m| m["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert_eq!(saved[3]["content"], "Tell me\na story.");
}

#[test]
fn chat_gives_a_line_of_json_for_each_message() {
    let long = "word ".repeat(200);
    let talk = format!("Hello\n/stats\n{long}\n/regen\n");
    let args = ["chat", "-o", "json", "--context", "64", "-n", "4"];
    let ran = run_with_input(&args, talk.as_bytes()).ends(0, &["tok/s"]);
    let lines: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [hello, refused, again] = &lines[..] else { panic!("{} lines", lines.len()) };
    for answer in [hello, again] {
        assert_eq!(answer["finish_reason"], "length");
        assert_eq!(answer["tokens"].as_array().expect("ids").len(), 4);
        assert_eq!(answer["timings"]["generated_tokens"], 4);
        assert!(answer["commit"].is_string() && !answer["text"].as_str().expect("text").is_empty());
    }
    assert!(refused["error"].as_str().expect("a text").contains("the context holds 64"));
}

#[test]
fn chat_says_when_the_context_is_full() {
    let long = format!("{}\nHello\n", "word ".repeat(200));
    let ran = run_with_input(&["chat", "--context", "64", "-n", "4"], long.as_bytes())
        .ends(0, &["the context holds 64", "/reset"]);
    assert!(!ran.stdout.trim().is_empty(), "the next message is answered");
}

#[test]
fn chat_leaves_out_what_is_no_text() {
    let args = ["chat", "-n", "4"];
    let ran = run_with_input(&args, b"\xff\xfe\nHello\n/stats\n").ends(0, &["not UTF-8", "tok/s"]);
    assert!(!ran.stdout.trim().is_empty(), "the next line is answered");
}

#[test]
fn a_bias_can_ban_a_token() {
    let first = |args: &[&str]| {
        json(&[&["generate", "Hello", "--json", "-n", "1"], args].concat())["tokens"][0].as_u64()
    };
    let chosen = first(&[]).expect("a token");
    assert_ne!(first(&["--logit-bias", &format!("{chosen}=-inf")]), Some(chosen));
}

#[test]
fn inspect_shows_what_there_is() {
    let text = run(&["inspect"]).ends(0, &[]).stdout;
    for part in ["bitnet", "attention q", "ternary", "chat template", "kernels", "memory"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let report = json(&["inspect", "--json", "--context", "64"]);
    assert_eq!(report["memory"]["context"], 64);
    let bytes = |field: &str| report["memory"][field].as_u64().expect("bytes");
    let parts = ["weights", "kv_cache", "states", "tokenizer", "buffers"].map(bytes);
    assert_eq!(parts.iter().sum::<u64>(), bytes("total"));
    let groups = report["tensors"].as_array().expect("groups").iter();
    assert_eq!(groups.map(|g| g["bytes"].as_u64().expect("bytes")).sum::<u64>(), bytes("weights"));
    run(&["inspect", "--context", "18446744073709551615"]).ends(2, &["--context", "1073741824"]);
    assert!(run(&["inspect", "--template"]).ends(0, &[]).stdout.contains("{%"));
}

#[test]
#[cfg(unix)]
fn links_are_followed_and_devices_stay() {
    let directory = tempfile::tempdir().expect("a directory");
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
    let [same, link, pipe] = ["same", "link", "pipe"].map(|name| path(directory.path(), name));
    std::fs::write(&same, "").expect("written");
    std::os::unix::fs::symlink(&same, &link).expect("linked");
    run(&["convert", default, &link, "--force"]).ends(0, &[]);
    assert!(Path::new(&link).is_symlink());
    assert!(std::fs::read(&same).expect("there") == std::fs::read(default).expect("there"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("runs").success());
    run(&["convert", default, &pipe, "--force"]).ends(1, &["no regular file"]);
}

#[test]
fn convert_round_trips_and_never_overwrites_unasked() {
    let directory = tempfile::tempdir().expect("a directory");
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
    let [same, wide, back] = ["same", "wide", "back"].map(|name| path(directory.path(), name));
    run(&["convert", default, &same]).ends(0, &["every weight equal", "logits equal"]);
    assert!(std::fs::read(&same).expect("written") == std::fs::read(default).expect("there"));
    run(&["convert", default, &same]).ends(1, &["exists", "--force"]);
    run(&["convert", default, &same, "--force"]).ends(0, &[]);
    run(&["convert", default, &wide, "--head", "f16"]).ends(0, &["same most likely token at"]);
    let answer = json(&["generate", "Hello", "--json", "-n", "4", "--model", &wide]);
    assert_eq!(answer["model"], "wide");
    // What eight bits hold exactly loses nothing on the way there and back.
    run(&["convert", &wide, &back, "--head", "q8"]).ends(0, &["every weight equal"]);
    let logits = |model: &str| {
        let out = path(directory.path(), "logits");
        let args = ["logits", "--tokens", "1,3,400,564", "--model", model, "--force", "--output"];
        run(&[&args[..], &[&out]].concat()).ends(0, &[]);
        std::fs::read(out).expect("written")
    };
    assert!(logits(&back) == logits(default));
    assert_eq!(names(directory.path()), ["back", "logits", "same", "wide"]);
}

#[test]
fn weights_in_either_layout_and_place_give_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
    let [plain, tight] = ["plain", "tight"].map(|name| path(directory.path(), name));
    run(&["convert", default, &plain, "--layout", "two-bit"]).ends(0, &["every weight equal"]);
    run(&["convert", &plain, &tight]).ends(0, &["every weight equal", "logits equal"]);
    let size = |file: &str| std::fs::metadata(file).expect("written").len();
    assert!(size(&tight) < size(&plain));
    let story = |model: &str, layout: &str, place: &str| {
        let args = ["generate", "-m", model, "Tell me a story.", "-n", "40"];
        run(&[&args[..], &["--layout", layout, "--weights", place]].concat()).ends(0, &[]).stdout
    };
    let want = story(&plain, "two-bit", "mapped");
    for model in [&plain, &tight] {
        for (layout, place) in [("auto", "auto"), ("tight", "mapped"), ("tight", "copied")] {
            assert_eq!(story(model, layout, place), want, "{model} {layout} {place}");
        }
    }
}

#[test]
fn kernels_that_do_not_read_the_tight_layout_say_so() {
    let mut command = wf_run(&["generate", "Hello", "-n", "3", "--layout", "tight"]);
    let ran: Ran = command.env("WF_ISA", "scalar").output().expect("wf-run starts").into();
    ran.ends(0, &["warning: scalar kernels do not read the tight layout here"]);
}

#[test]
fn convert_moves_columns_together_that_are_zero_at_the_same_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/eval/text.txt");
    let out = path(directory.path(), "reordered.safetensors");
    let convert = ["convert", default, &out, "--reorder-ffn"];
    run(&[&convert[..], &[text]].concat())
        .ends(0, &["that are all zero on the text: ", "every weight equal", "logits within"]);
    let answer = |model: &str| {
        run(&["generate", "-m", model, "Tell me a story.", "-n", "40"]).ends(0, &[]).stdout
    };
    assert_eq!(answer(&out), answer(default));
    let nothing = path(directory.path(), "nothing");
    run(&[&convert[..], &[&nothing, "--force"]].concat()).ends(1, &["calibration text", &nothing]);
    std::fs::write(&nothing, "").expect("written");
    let empty = run(&[&convert[..], &[&nothing, "--force"]].concat());
    empty.ends(1, &["calibration text", "is empty"]);
}

#[test]
fn every_rule_for_activations_works_in_every_decode_mode() {
    for rule in ["off", "threshold:0.05", "topk:0.7", "adaptive", "topk:0.3@down"] {
        let answer = |mode: &str| {
            let prompt = ["generate", "Tell me a story.", "-n", "40", "--json"];
            let how = ["--activation-sparsity", rule, "--decode-mode", mode];
            json(&[&prompt[..], &how].concat())["tokens"].clone()
        };
        let ar = answer("ar");
        assert_eq!(answer("verify"), ar, "{rule}: drafts change nothing");
        for mode in ["greedy", "iterative", "adaptive"] {
            assert!(!answer(mode).as_array().expect("ids").is_empty(), "{rule} {mode}");
        }
    }
}

#[test]
fn a_failed_convert_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (bad, out) = (path(directory.path(), "bad.safetensors"), path(directory.path(), "out"));
    std::fs::write(&bad, b"no model at all").expect("written");
    run(&["convert", &bad, &out]).ends(1, &["error: cannot load", "bad.safetensors"]);
    assert_eq!(names(directory.path()), ["bad.safetensors"]);
    run(&["convert", &bad, directory.path().to_str().expect("UTF-8")]).ends(1, &["a directory"]);
    run(&["convert", &bad, "/no/such/place/out"]).ends(1, &["cannot write in /no/such/place"]);
}

#[test]
fn logits_are_a_numpy_file_with_any_attention_mask() {
    let directory = tempfile::tempdir().expect("a directory");
    let tokens: Vec<_> = (5..105).map(|t| t.to_string()).collect();
    let logits = |name: &str, attention_mask: &str, count: usize| {
        let (file, ids) = (path(directory.path(), name), tokens[..count].join(","));
        run(&["logits", "--tokens", &ids, "--attention-mask", attention_mask, "--output", &file])
            .ends(0, &[]);
        let bytes = std::fs::read(file).expect("written");
        let mut reader = BufReader::new(&bytes[10..]);
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        assert!(header.contains(&format!("'shape': ({count}, 3072)")), "{header}");
        let mut values = Vec::new();
        reader.read_to_end(&mut values).expect("values");
        assert_eq!(values.len(), count * 3072 * 4);
        values
    };
    let causal = logits("causal", "causal", 100);
    assert!(causal.starts_with(&logits("short", "causal", 70)), "later tokens change nothing");
    let blocks = logits("blocks", "blocks:24", 100);
    assert!(blocks != causal);
    assert!(blocks.starts_with(&logits("three", "blocks:24", 72)), "nor do later blocks");
    assert!(logits("ones", "blocks:1", 100) == causal);
    let file = path(directory.path(), "causal");
    run(&["logits", "--tokens", "1", "--output", &file]).ends(1, &["exists"]);
    run(&["logits", "--tokens", "3072", "--output", "x"]).ends(2, &["outside the vocabulary"]);
}

#[test]
fn bench_measures_each_test() {
    let bench = |format: &str| {
        run(&["bench", "-p", "8,4", "-n", "4", "-r", "2", "-t", "1", "-o", format])
            .ends(0, &[])
            .stdout
    };
    let rows: Vec<Value> = serde_json::from_str(&bench("json")).expect("an array");
    let tests: Vec<_> = rows.iter().map(|r| r["test"].as_str().expect("a test")).collect();
    assert_eq!(tests, ["pp8", "pp4", "tg4"]);
    assert!(rows.iter().all(|r| r["samples"].as_array().map(Vec::len) == Some(2)));
    assert!(rows[2]["fraction_of_bandwidth_limit"].as_f64() > Some(0.0));
    let table = bench("md");
    assert!(table.contains("1 thread can read"));
    // What somebody who sends the table must say, too.
    assert!(table.lines().last().is_some_and(|line| line.contains("; scalar")), "{table}");
}

#[test]
fn inspect_and_bench_agree_about_the_size_of_a_model() {
    let directory = tempfile::tempdir().expect("a directory");
    let two_bit = path(directory.path(), "two-bit.safetensors");
    run(&["convert", DEFAULT, &two_bit, "--layout", "two-bit"]).ends(0, &[]);
    let sizes = [DEFAULT, &two_bit].map(|model| {
        let inspected = json(&["inspect", "-o", "json", model]);
        for layout in ["auto", "two-bit"] {
            let bench = ["bench", "-p", "0", "-n", "1", "-r", "1", "-t", "1", "-o", "json"];
            let rows = json(&[&bench[..], &["--layout", layout, "-m", model]].concat());
            assert_eq!(rows[0]["size_bytes"], inspected["bytes"], "{layout}");
            assert_eq!(rows[0]["parameters"], inspected["parameters"]);
        }
        inspected["bytes"].as_u64()
    });
    assert!(sizes[0] < sizes[1], "the embedded model is tight: {sizes:?}");
}

#[test]
fn bench_measures_requests_in_a_decode_mode() {
    let bench = |args: &[&str]| {
        let common = ["bench", "-t", "1", "--iterations", "3", "-o", "json"];
        let ran = run(&[&common[..], args].concat()).ends(0, &[]);
        let rows: Vec<Value> = serde_json::from_str(&ran.stdout).expect("an array");
        rows.into_iter().next().expect("a row")
    };
    let sizes = ["--prompt-tokens", "20", "--max-tokens", "44", "--ignore-eos"];
    let ar = bench(&[&sizes[..], &["--decode-mode", "ar"]].concat());
    assert_eq!((&ar["prompt_tokens"], &ar["max_tokens"]), (&20.into(), &44.into()));
    assert_eq!(ar["tokens_per_request"], 44.0);
    assert_eq!(ar["tokens_per_pass"], 1.0);
    assert_eq!(ar["latencies_ms"].as_array().map(Vec::len), Some(3));
    let number = |name: &str| ar[name].as_f64().expect("a number");
    assert!(number("latency_p50_ms") <= number("latency_p99_ms"));
    assert!((number("total_seconds") - 3e-3 * number("latency_mean_ms")).abs() < 1e-9);
    // A block of 32: one pass for its tail of 12, a commit, and one for the next.
    let greedy = bench(&[&sizes[..], &["--decode-mode", "greedy"]].concat());
    assert_eq!(greedy["tokens_per_pass"], 44.0 / 3.0);
    let random = bench(&["--synthetic", "tiny", "-n", "4", "--decode-mode", "iterative"]);
    assert_eq!(
        (&random["mode"], &random["tokens_per_request"]),
        (&"iterative 0.9".into(), &4.0.into())
    );
    let text = run(&["bench", "--decode-mode", "verify", "-r", "2", "-n", "8"]).ends(0, &[]).stdout;
    assert!(text.contains("p95") && text.contains("| verify, denoise |"), "{text}");
    run(&["bench", "--threshold", "0.5"]).ends(2, &["--decode-mode"]);
    let long = ["bench", "--decode-mode", "ar", "-p", "500", "-n", "60", "-r", "1"];
    run(&long).ends(0, &["560 positions", "trained for 512"]);
}
