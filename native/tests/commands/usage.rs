//! Wrong use exits with 2, failures with 1; both say what to do.

use crate::common::{run, run_with_input, wf_run};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn no_arguments_shows_help() {
    run(&[]).ends(2, &["Usage:", "generate", "bench"]);
}

#[test]
fn help_has_examples() {
    for command in [
        "generate",
        "chat",
        "serve",
        "inspect",
        "convert",
        "compare",
        "logits",
        "bench",
        "tune",
        "completions",
    ] {
        let ran = run(&[command, "--help"]).ends(0, &[]);
        assert!(ran.stdout.contains("Examples:"), "{command}: {}", ran.stdout);
    }
    assert!(run(&["--help"]).ends(0, &[]).stdout.contains("WF_ISA"));
}

/// Returns the commands that help lists, without `help`.
pub fn listed_commands(help: &[&str]) -> Vec<String> {
    let help = run(help).ends(0, &[]).stdout;
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let commands = listed.take_while(|line| !line.is_empty());
    let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).map(String::from);
    names.filter(|name| name != "help").collect()
}

#[test]
fn the_documentation_lists_every_command() {
    let page = include_str!("../../../docs/index.md");
    let (_, page) = page.split_once("\n## Commands\n").expect("a section");
    let (table, _) = page.split_once("\n## ").expect("another section");
    let names = listed_commands(&["--help"]);
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let known = [format!("`wf-run {name}`"), format!("`{name}`")];
        assert!(known.iter().any(|text| table.contains(text)), "docs/index.md lacks {name}");
    }
}

/// Commands with options, and the most lines that their short help has.
const COMMANDS: [(&[&str], usize); 23] = [
    (&[], 50),
    (&["generate"], 66),
    (&["chat"], 65),
    (&["serve"], 80),
    (&["health"], 25),
    (&["pull"], 20),
    (&["add"], 20),
    (&["list"], 15),
    (&["rm"], 15),
    (&["ps"], 25),
    (&["inspect"], 30),
    (&["convert"], 30),
    (&["compare"], 30),
    (&["logits"], 35),
    (&["bench"], 60),
    (&["tune"], 30),
    (&["completions"], 20),
    (&["eval"], 20),
    (&["eval", "activations"], 40),
    (&["eval", "agreement"], 50),
    (&["eval", "kv"], 40),
    (&["eval", "perplexity"], 45),
    (&["eval", "quality"], 60),
];

#[test]
fn commands_that_compare_numbers_are_exact_by_default() {
    let default = |command: &[&str]| {
        let help = run(&[command, &["--help"]].concat()).ends(0, &[]).stdout;
        let (_, option) = help.split_once("--activations <BITS>").expect("the option");
        let (_, value) = option.split_once("[default: ").expect("a default");
        value.split_once(']').expect("its end").0.to_string()
    };
    for what in ["perplexity", "quality", "agreement", "activations", "kv"] {
        assert_eq!(default(&["eval", what]), "exact", "{what}");
    }
    assert_eq!(default(&["logits"]), "exact");
    assert_eq!([default(&["generate"]), default(&["serve"])], ["auto", "auto"]);
}

#[test]
fn short_help_has_a_line_for_each_flag_and_fits_80_columns() {
    for (command, most) in COMMANDS {
        // A wide terminal: clap must not have to wrap anything.
        let mut asked = wf_run(&[command, &["-h"]].concat());
        let ran: crate::common::Ran = asked.env("COLUMNS", "300").output().expect("starts").into();
        let text = ran.ends(0, &[]).stdout;
        assert!(text.lines().count() <= most, "{command:?}: {} lines", text.lines().count());
        let (options, _) = text.split_once("Examples:").unwrap_or((&text, ""));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{command:?}: too wide: {line}");
        }
        for line in options.lines().filter(|line| line.starts_with("  ")) {
            let (flag, help) = line.trim_start().split_once("  ").unwrap_or((line, ""));
            assert!(!help.trim().is_empty(), "{command:?}: {flag} has no line of its own: {line}");
        }
    }
}

#[test]
fn short_help_hides_rare_flags_and_long_help_explains_all() {
    let short = run(&["generate", "-h"]).ends(0, &[]).stdout;
    assert!(short.contains("--help explains all options and shows "), "{short}");
    let long = run(&["generate", "--help"]).ends(0, &[]).stdout;
    for flag in ["--entropy-bound", "--logit-bias", "--activation-sparsity"] {
        assert!(!short.contains(flag) && long.contains(flag), "{flag}");
    }
    assert!(long.contains("possible values") && long.contains("Nucleus sampling"), "{long}");
}

#[test]
fn version() {
    let text = run(&["--version"]).ends(0, &[]).stdout;
    let version = concat!("wf-run ", env!("CARGO_PKG_VERSION"), " (");
    let built = text.trim_end().strip_prefix(version).and_then(|rest| rest.strip_suffix(')'));
    let (commit, target) = built.and_then(|built| built.split_once(", ")).expect("both");
    let is_commit = |text: &str| text.len() == 12 && text.chars().all(|c| c.is_ascii_hexdigit());
    assert!(commit == "unknown" || is_commit(commit), "{text}");
    assert!(target.contains('-'), "{text}");
}

/// Command lines that make no sense, and a part of the error.
const NONSENSE: &[(&[&str], &str)] = &[
    (&["nonsense"], "nonsense"),
    (&["generate", "x", "--temperature", "-1"], "not negative"),
    (&["generate", "x", "--activation-sparsity", "topk:0"], "topk:R (0 < R ≤ 1)"),
    (&["chat", "--activation-sparsity", "half"], "--activation-sparsity"),
    (&["bench", "--activation-sparsity", "threshold:2"], "threshold:T (0 ≤ T ≤ 1)"),
    (&["serve", "--activation-sparsity", "adaptive:1"], "or adaptive"),
    (&["eval", "activations", "x", "--policies", "off,topk"], "--policies"),
    (&["eval", "activations", "x", "--activation-sparsity", "adaptive"], "--policies lists"),
    (&["generate", "x", "--logits", "close"], "[possible values: exact, screened]"),
    (&["generate", "x", "--top-p", "2"], "between 0 and 1"),
    (&["generate", "x", "--max-tokens", "0"], "--max-tokens"),
    (&["generate", "x", "--threads", "0"], "--threads"),
    (&["generate", "x", "--threads", "100000"], "1..=1024"),
    (&["bench", "--synthetic", "tiny", "-t", "1,1025"], "1..=1024"),
    (&["generate", "x", "--logprobs", "2"], "-o json"),
    (&["generate", "x", "--stop", ""], "--stop needs a text"),
    (&["generate", "x", "--raw", "--system", "y"], "--raw"),
    (&["generate", "x", "--logit-bias", "a=1"], "token id"),
    (&["generate", ""], "the prompt is empty"),
    (&["generate", "x", "--decode-mode", "fast"], "iterative"),
    (&["generate", "x", "--draft-length", "0"], "--draft-length"),
    (&["generate", "x", "--decode-mode", "iterative", "--threshold", "1.5"], "threshold"),
    (&["generate", "x", "--decode-mode", "adaptive", "--threshold", "0"], "threshold"),
    (&["generate", "x", "--decode-mode", "greedy", "--block-size", "0"], "block_size"),
    (&["generate", "x", "--decode-mode", "greedy", "--small-block-size", "5"], "divide"),
    (&["generate", "x", "--decode-mode", "greedy", "--block-size", "512"], "256 rows"),
    (
        &["generate", "x", "--decode-mode", "greedy", "--block-size", "18446744073709551615"],
        "256 rows",
    ),
    (
        &["generate", "x", "--decode-mode", "greedy", "--block-size", "256", "--commit=fused"],
        "512 rows",
    ),
    (&["generate", "x", "--decode-mode", "greedy", "--selector", "topk"], "iterative"),
    (&["generate", "x", "--decode-mode", "iterative", "--selector", "best"], "entropy"),
    (
        &["generate", "x", "--decode-mode=iterative", "--selector=topk", "--slots-per-pass=0"],
        "slots_per_pass",
    ),
    (&["generate", "x", "--decode-mode=iterative", "--selector=factor", "--factor=-1"], "factor"),
    (
        &["generate", "x", "--decode-mode=iterative", "--selector=entropy", "--entropy-bound=-1"],
        "entropy_bound",
    ),
    (
        &[
            "generate",
            "x",
            "--decode-mode=iterative",
            "--block-attention=causal",
            "--sub-block-cache",
        ],
        "sub_block_cache",
    ),
    (&["generate", "x", "--logit-shift", "2"], "logit_shift must be 0 or 1"),
    (&["generate", "x", "--decode-mode", "verify", "--row-cost", "-1"], "row_cost"),
    (&["generate", "x", "--threshold", "5"], "threshold must be above 0"),
    (&["generate", "x", "--small-block-size", "0"], "small_block_size"),
    (&["bench", "--decode-mode", "ar", "-p", "0"], "-p 0"),
    (&["eval", "perplexity", "--decode-mode", "ar", "x"], "decode_mode"),
    (&["eval", "agreement", "--threshold", "0.5"], "--thresholds"),
    (&["eval", "agreement", "--decode-mode", "ar"], "--modes"),
    (&["eval", "agreement", "--thresholds", "2"], "threshold"),
    (&["eval", "perplexity"], "<TEXT>"),
    (&["generate", "x", "--config", "/no/such.yaml"], "/no/such.yaml"),
    (&["generate", "x", "--decode-mode", "greedy", "--mask-token-id", "9999"], "9999"),
    (&["generate", "x", "--decode-mode", "verify", "--mask-token-id", "9999"], "9999"),
    (&["eval", "kv"], "<TEXT>"),
    (&["eval", "kv", "x", "--types", "fp8"], "fp8-e4m3"),
    (&["eval", "kv", "x", "--attention", "topk"], "topk:K"),
    (&["eval", "kv", "--synthetic", "tiny", "--context", "1"], "--context 1"),
    (&["eval", "kv", "--synthetic", "tiny", "--context", "10000000000000000000"], "--context"),
    (&["eval", "kv", "--synthetic", "tiny", "--rope-scaling", "yarn:2"], "--rope-scaling"),
    (&["generate", "x", "--kv-dtype", "int4"], "int8"),
    (&["generate", "x", "--attention", "window:0"], "window:W,sinks:S"),
    (&["inspect", "--kv-v", "f64"], "bf16"),
    (&["convert", "in"], "<OUT>"),
    (&["convert", "in", "out", "--head", "q4"], "q4"),
    (&["convert", "in", "out", "--type", "TQ1_0"], "--to gguf"),
    (&["convert", "in", "out.gguf", "--layout", "tight"], "--to packed"),
    (&["convert", "in", "out", "--to", "hf", "--head", "q8"], "take f16"),
    (&["convert", "in", "out.gguf", "--type", "Q5_K"], "PTQ1_0"),
    (&["compare", "a"], "<B>"),
    (&["compare", "a", "--baseline", "x.npy"], "--tokens"),
    (&["compare", "a", "b", "--tokens", "1", "--text", "x"], "--text"),
    (&["compare", "a", "b", "--atol", "-1"], "a number from 0"),
    (&["compare", "a", "b", "-o", "csv"], "md or json"),
    (&["logits", "--tokens", "1,2"], "--output"),
    (&["logits", "--tokens", "1,x", "--output", "f"], "--tokens"),
    (&["logits", "--tokens", "1", "--attention-mask", "blocks:0", "--output", "f"], "blocks:N"),
    (&["eval", "kv", "--synthetic", "tiny-hybrid"], "linear attention"),
    (&["bench", "--synthetic", "huge"], "bitnet-2b"),
    (&["bench", "--synthetic", "tiny", "--model", "x"], "--model"),
    (&["bench", "--synthetic", "tiny", "-p", "0", "-n", "0"], "nothing to measure"),
    (&["bench", "--synthetic", "tiny", "--rope-scaling", "yarn:2"], "--rope-scaling"),
    (&["generate", "x", "--rope-scaling", "yarn"], "a factor from 1 to 1024, as in yarn:2"),
    (&["generate", "x", "--rope-scaling", "dynamic:2"], "none, linear:F, ntk:F or yarn:F"),
    (&["generate", "x", "--context", "0"], "1..=1073741824"),
    (&["generate", "x", "--context-shift=some"], "--context-shift"),
    (&["generate", "x", "--context-shift=64", "--context", "64"], "keep fewer"),
    (&["generate", "x", "--context-shift", "--decode-mode", "greedy"], "ar and verify"),
    (&["chat", "--context-shift", "--decode-mode", "iterative"], "ar and verify"),
    (&["serve", "--port", "0", "--context-shift", "--decode-mode=greedy"], "ar and verify"),
    (&["completions", "nosh"], "nosh"),
    (&["generate", "x", "-n", "0"], "'--max-tokens <N>': expected a whole number from 1"),
    (&["generate", "x", "-n", "many"], "expected a whole number, as in 4"),
    (&["generate", "x", "-n", "-5"], "'--max-tokens <N>': expected a number that is not negative"),
    (&["generate", "x", "--seed", "-1"], "'--seed <N>': expected a number that is not negative"),
    (&["generate", "x", "-t", "-2"], "'--threads <N>': expected a number that is not negative"),
    (&["serve", "--port", "-1"], "'--port <PORT>'"),
    (&["generate", "x", "--threads=x"], "'--threads <N>': expected a whole number"),
    (&["generate", "x", "--factor", "x"], "'--factor <F>': expected a number, as in 0.5"),
    (&["bench", "--depth", "x"], "expected a whole number"),
    (&["ps", "--port", "x"], "'--port <PORT>': expected a whole number"),
];

#[test]
fn nonsense_exits_with_2() {
    for (args, part) in NONSENSE {
        run(args).ends(2, &["error: ", part, "--help"]);
    }
}

#[test]
fn a_configuration_file_is_read_and_the_command_line_counts_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("wf.yaml");
    let file = file.to_str().expect("UTF-8");
    let passes = |yaml: &str, more: &[&str]| {
        std::fs::write(file, yaml).expect("written");
        let args = ["generate", "Tell me a story.", "-n", "31", "--json", "--config", file];
        let ran = run(&[&args[..], more].concat()).ends(0, &[]);
        let answer: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        answer["timings"]["forward_passes"].as_u64().expect("a number")
    };
    // The prompt's tail and 31 tokens are two blocks at most: two passes and a commit.
    let greedy = "dlm:\n  decode_mode: greedy # all at once\n";
    assert!(passes(greedy, &[]) <= 3);
    assert_eq!(passes(greedy, &["--decode-mode", "ar"]), 31);
    assert!(passes(&format!("{greedy}  commit: fused\n"), &[]) <= 2);
    std::fs::write(file, "dlm:\n  logit_shift: 7\n").expect("written");
    run(&["generate", "x", "--config", file]).ends(2, &["logit_shift must be 0 or 1, but is 7"]);
    let ran = run(&["generate", "Hello!", "-n", "2", "--commit", "fused"]);
    ran.ends(0, &["commit changes nothing here", "verify"]);
    std::fs::write(file, "dlm:\n  block_sise: 32\n").expect("written");
    let parts = [file, "line 2", "`block_sise`", "did you mean `block_size`?"];
    run(&["generate", "x", "--config", file]).ends(2, &parts);
}

#[test]
fn tune_writes_what_is_best_into_a_configuration() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("wf.yaml");
    let config = path.to_str().expect("UTF-8");
    std::fs::write(&path, "threads: 7 # mine\nport: 1234\n").expect("written");
    let tune = ["tune", "--synthetic", "tiny", "--seconds", "1", "--config", config];
    let ran = run(&tune).ends(0, &[]);
    let best = ran.stdout.lines().find_map(|l| l.strip_prefix("best: --threads ")).expect("said");
    let (decode, rest) = best.split_once(" --prefill-threads ").expect("both");
    let prefill = rest.trim_end_matches(" --pin-threads");
    let pinned = rest.ends_with("--pin-threads");
    let text = std::fs::read_to_string(&path).expect("there");
    let same = format!("threads: {decode} # mine\nport: 1234\n");
    assert!(text.ends_with(&same), "{text}");
    assert!(text.contains(&format!("prefill_threads: {prefill}\n")), "{text}");
    assert!(text.contains(&format!("pin_threads: {pinned}\n")), "{text}");
    let shown = run(&["serve", "--config", config, "--print-config"]).ends(0, &[]).stdout;
    assert!(shown.contains(&format!("prefill_threads: {prefill} ")), "{shown}");
    let json = ["tune", "--synthetic", "tiny", "--seconds", "1", "-o", "json"];
    let report: serde_json::Value =
        serde_json::from_str(&run(&json).ends(0, &[]).stdout).expect("JSON");
    assert!(report["best"]["threads"].as_u64() > Some(0) && report["cpu"].is_string(), "{report}");
    assert!(report["measured"][0]["decode_tokens_per_second"].as_f64() > Some(0.0), "{report}");
    std::fs::write(&path, "thread: 7\n").expect("written");
    run(&tune).ends(2, &["thread", "line 1"]);
}

#[test]
fn threads_are_counted_and_kept() {
    run(&["generate", "Hello", "-n", "4", "--threads", "1", "--prefill-threads", "2"]).ends(0, &[]);
    run(&["generate", "Hello", "-n", "4", "--threads", "1", "--pin-threads"]).ends(0, &[]);
    run(&["generate", "Hello", "--threads", "1024", "--pin-threads"])
        .ends(2, &["1024 threads cannot be pinned"]);
}

#[test]
fn kernels_that_do_not_exist() {
    let args = ["bench", "--synthetic", "tiny", "-n", "1"];
    let ran: crate::common::Ran =
        wf_run(&args).env("WF_ISA", "mmx").output().expect("starts").into();
    // Every machine has this set; the unit test of the message has the sets of others.
    let ran =
        ran.ends(2, &["WF_ISA=mmx is unknown: expected scalar, avx2", "; this machine has scalar"]);
    assert!(!ran.stderr.contains("simd128"), "a program has no sets of browsers: {}", ran.stderr);
}

#[test]
fn instruction_sets_are_compared() {
    let args = ["bench", "--synthetic", "tiny", "-p", "4", "-n", "0", "-r", "1", "-t", "1"];
    let compared = |more: &[&str]| run(&[&args[..], more].concat());
    // Other tests disturb the speeds, so the exit code says nothing here.
    let rows = compared(&["--isa", "all", "-o", "json"]).stdout;
    let rows: serde_json::Value = serde_json::from_str(&rows).expect("JSON");
    let rows = rows.as_array().expect("records");
    let sets: Vec<&str> = rows.iter().filter_map(|row| row["backend"].as_str()).collect();
    assert_eq!(rows[0]["instruction_sets"], sets.join(" "), "{rows:?}");
    assert!(rows[0]["narrower"].is_null(), "{rows:?}");
    for (row, narrower) in rows[1..].iter().zip(&sets) {
        assert_eq!(row["narrower"], **narrower, "{row}");
        assert!(row["ratio"].as_f64() > Some(0.0) && row["test"] == "pp4", "{row}");
    }
    let alone = compared(&["--isa", "scalar"]).ends(0, &[]).stdout;
    assert!(alone.contains("| scalar "), "{alone}");
    let elsewhere = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    compared(&["--isa", elsewhere]).ends(2, &[elsewhere, "this machine has scalar"]);
    compared(&["--isa", "mmx"]).ends(2, &["mmx", "all, scalar, avx2, avxvnni"]);
    compared(&["--isa", "all", "--roofline"]).ends(2, &["cannot be used with"]);
}

#[test]
fn every_line_of_a_json_log_is_json() {
    let args = ["serve", "--port=0", "--log-format=json", "--layout=tight"];
    let mut command = wf_run(&args);
    command.env("WF_ISA", "scalar").env("WF_NONSENSE", "1");
    let (mut child, _) = crate::common::server::start(command);
    let log = BufReader::new(child.stderr.take().expect("piped"));
    let mut messages = Vec::new();
    for line in log.lines() {
        let line = line.expect("UTF-8");
        let entry: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        messages.push(entry["fields"]["message"].as_str().expect("a message").to_owned());
        if messages.last().is_some_and(|message| message == "ready") {
            break;
        }
    }
    child.kill().expect("runs");
    child.wait().expect("ends");
    for part in ["WF_NONSENSE sets nothing", "weights are kept in two bits", "ready"] {
        assert!(messages.iter().any(|message| message.contains(part)), "{part}: {messages:?}");
    }
}

#[test]
fn empty_input_is_usage_and_broken_input_is_failure() {
    run_with_input(&["generate"], b"\n").ends(2, &["the prompt is empty"]);
    run_with_input(&["generate", "-"], b"\xff").ends(1, &["the prompt on standard input", "utf-8"]);
}

#[test]
fn models_that_are_not_there() {
    let path = ["generate", "x", "--model", "/no/such/model"];
    run(&path).ends(1, &["error: there is no file or directory /no/such/model", "org/name"]);
    let path = ["inspect", "models/nothing.gguf"];
    run(&path).ends(1, &["no file or directory models/nothing.gguf"]);
}

#[test]
fn directories_without_weights() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    run(&["inspect", path]).ends(1, &[path, "no weights", "model.safetensors", "found nothing"]);
    std::fs::write(directory.path().join("pytorch_model.bin"), "x").expect("written");
    run(&["inspect", path]).ends(1, &["found pytorch_model.bin"]);
    std::fs::write(directory.path().join("a.gguf"), "x").expect("written");
    std::fs::write(directory.path().join("b.gguf"), "x").expect("written");
    run(&["inspect", path]).ends(1, &["several models: name one of a.gguf, b.gguf"]);
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).ends(0, &[]).stdout;
        assert!(script.contains("generate") && script.contains("max-tokens"), "{shell}");
    }
}

#[test]
#[cfg(unix)]
fn a_closed_pipe_is_a_quiet_end() {
    let mut child =
        wf_run(&["completions", "bash"]).stdout(Stdio::piped()).spawn().expect("starts");
    drop(child.stdout.take());
    let ran: crate::common::Ran = child.wait_with_output().expect("ends").into();
    assert_eq!(ran.ends(0, &[]).stderr, "");
}
