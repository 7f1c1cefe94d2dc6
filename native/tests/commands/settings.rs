//! Every setting in every command, from the file and from the environment.

use crate::common::model::DEFAULT;
use crate::common::{Ran, run, wf_run};
use crate::flags::{COMMANDS, flags};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::process::Stdio;

/// A key of the configuration.
struct Setting {
    /// Its name with its section, as warnings have it.
    shown: String,
    section: String,
    name: String,
    value: String,
    /// Its variable.
    variable: String,
}

/// Values of settings that are not set by default. Those of the server alone need not exist.
const VALUES: &[(&str, &str)] = &[
    ("model_path", DEFAULT),
    ("rope_scaling", "none"),
    ("stop_token", "2"),
    ("chat_template", "chatml"),
    ("draft_model", "/no/drafter"),
    ("draft_layout", "dspark"),
    ("models_dir", "/no/models"),
    ("activation_sparsity", "topk:0.9"),
    ("threads", "1"),
    ("prefill_threads", "1"),
    ("memory_limit", "8G"),
    ("served_model_name", "a"),
    ("alias", "b"),
    ("api_key", "c"),
    ("api_key_file", "/no/keys"),
    ("cors_origin", "http://localhost:1"),
    ("allowed_host", "localhost"),
    ("trusted_proxy", "127.0.0.1"),
    ("demo", "/no/demo"),
    ("slot_save_path", "/no/slots"),
    ("cache_dir", "/no/cache"),
    ("cache_size", "1G"),
    ("tls_cert", "/no/cert"),
    ("tls_key", "/no/key"),
    ("temperature", "0.5"),
    ("top_k", "5"),
    ("top_p", "0.5"),
    ("min_p", "0.1"),
    ("typical_p", "0.5"),
    ("top_n_sigma", "1"),
    ("xtc_probability", "0.5"),
    ("xtc_threshold", "0.2"),
    ("mirostat", "0"),
    ("mirostat_tau", "4"),
    ("mirostat_eta", "0.2"),
    ("repetition_penalty", "1.1"),
    ("frequency_penalty", "0.1"),
    ("presence_penalty", "0.1"),
    ("dry_multiplier", "0.5"),
    ("dry_base", "2"),
    ("dry_allowed_length", "3"),
    ("dry_penalty_last_n", "9"),
    ("dry_sequence_breakers", "x"),
    ("enable_thinking", "false"),
    ("effort", "low"),
    ("thinking_budget", "9"),
    ("preserve_thinking", "true"),
    ("chat_template_kwargs", "{}"),
    ("decode_mode", "ar"),
    ("draft", "ngram"),
    ("draft_length", "3"),
    ("draft_threshold", "0.5"),
    ("row_cost", "0.5"),
    ("block_size", "32"),
    ("small_block_size", "8"),
    ("selector", "threshold"),
    ("threshold", "0.9"),
    ("factor", "1"),
    ("entropy_bound", "0.1"),
    ("slots_per_pass", "2"),
    ("mask_token_id", "0"),
    ("block_attention", "causal"),
    ("logit_shift", "1"),
    ("sub_block_cache", "false"),
    ("commit", "clean"),
    ("context", "64"),
    ("context_shift", "4"),
    ("kv_tokens", "512"),
    ("state_memory", "1M"),
    ("k", "f32"),
    ("v", "f32"),
];

/// Settings that count on the command line alone, by command.
const FLAGS_ALONE: &[(&str, &[&str])] = &[
    ("bench", &["dlm.decode_mode"]),
    ("eval activations", &["activation_sparsity"]),
    ("eval agreement", &["dlm.decode_mode", "dlm.selector", "dlm.threshold"]),
    ("eval perplexity", &["dlm.decode_mode"]),
    ("eval quality", &["dlm.decode_mode", "dlm.selector", "dlm.threshold"]),
];

/// Returns all settings, as `serve --generate-config` prints them, each with a value.
fn settings() -> Vec<Setting> {
    let example = run(&["serve", "--generate-config"]).ends(0, &[]).stdout;
    let (mut section, mut settings) = (String::new(), Vec::new());
    for line in example.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let Some((name, value)) = line.split_once(':') else { continue };
        if value.is_empty() {
            section = name.into();
            continue;
        }
        let inside = name.starts_with(' ');
        let (name, value) = (name.trim(), value.trim());
        let section = if inside { section.clone() } else { String::new() };
        let value = match VALUES.iter().find(|(key, _)| *key == name) {
            Some((_, value)) => value,
            None if ["null", "[]"].contains(&value) => panic!("VALUES lacks {name}"),
            None => value,
        };
        let shown = if inside { format!("{section}.{name}") } else { name.into() };
        let (name, value) = (name.into(), value.to_owned());
        settings.push(Setting { shown, section, name, value, variable: String::new() });
    }
    let named: BTreeSet<&str> = settings.iter().map(|setting| &*setting.name).collect();
    assert!(VALUES.iter().all(|(name, _)| named.contains(name)), "VALUES has other keys");
    name_variables(&mut settings);
    settings
}

/// Finds the variables of settings: `WF_NAME`, or `WF_SECTION_NAME` where a name alone says too little.
fn name_variables(settings: &mut [Setting]) {
    let long =
        |setting: &Setting| format!("WF_{}_{}", setting.section, setting.name).to_uppercase();
    let mut asked = wf_run(&["inspect"]);
    asked.envs(settings.iter().map(|setting| (long(setting), &setting.value)));
    let ran: Ran = asked.output().expect("starts").into();
    for setting in settings {
        let (long, short) = (long(setting), format!("WF_{}", setting.name).to_uppercase());
        let unknown = format!("the variable {long} sets nothing");
        setting.variable = if ran.stderr.contains(&unknown) { short } else { long };
    }
}

/// Returns the flag of a setting.
fn flag(setting: &Setting) -> String {
    let id = setting.variable.trim_start_matches("WF_").to_lowercase();
    match &*id {
        "model_path" => "model".into(),
        "models_dir" => "models".into(),
        "benchmark_enabled" => "benchmark".into(),
        "enable_radix_cache" => "no-radix-cache".into(),
        "dry_sequence_breakers" => "dry-sequence-breaker".into(),
        id => id.replace('_', "-"),
    }
}

/// The least arguments with which a command begins to run.
fn arguments(command: &[&str], folder: &str) -> Vec<String> {
    let text = format!("{folder}/text.txt");
    let more: Vec<String> = match command {
        ["generate"] => ["Hello", "-n", "1"].map(Into::into).into(),
        ["run"] => [DEFAULT, "Hello", "-n", "1"].map(Into::into).into(),
        ["chat"] | ["inspect"] => Vec::new(),
        // These end with an error that names a missing file, after the warnings.
        ["convert"] => vec!["/no/model".into(), format!("{folder}/out")],
        ["compare"] => ["/no/model", "/no/model"].map(Into::into).into(),
        ["logits"] => {
            vec!["--tokens=1".into(), format!("--output={folder}/l.npy"), "--force".into()]
        }
        ["bench"] => ["-p", "0", "-n", "1", "-r", "1"].map(Into::into).into(),
        ["tune"] => ["--synthetic", "tiny", "--seconds", "0"].map(Into::into).into(),
        ["eval", "perplexity"] => vec![text],
        ["eval", "quality"] | ["eval", "agreement"] => vec!["--prompts=/no/file".into()],
        ["eval", "activations"] => vec!["/no/file".into()],
        ["eval", "kv"] => ["--synthetic", "tiny", "--context", "64", "-r", "1", "--types", "f16"]
            .map(Into::into)
            .into(),
        ["pull"] => vec!["name".into()],
        ["add"] => ["/no/model", "--name", "x"].map(Into::into).into(),
        ["list"] => Vec::new(),
        ["rm"] => vec!["nothing".into()],
        ["ps"] | ["health"] => ["--timeout", "1"].map(Into::into).into(),
        other => panic!("{other:?}"),
    };
    command.iter().map(|&name| name.into()).chain(more).collect()
}

/// Returns the settings that warnings of a command name.
fn unread(ran: &Ran, source: &str, command: &str) -> BTreeSet<String> {
    let (begin, end) = (format!("warning: {source}: "), format!("nothing in `wf-run {command}`"));
    let line = ran.stderr.lines().find_map(|line| line.strip_prefix(&begin)?.strip_suffix(&end));
    let line = line.unwrap_or_else(|| panic!("{command}: {source}: {}", ran.stderr));
    let names = line.trim_end().trim_end_matches("changes").trim_end_matches("change");
    names.split(',').map(|name| name.trim().to_owned()).collect()
}

#[test]
fn every_setting_means_something_in_every_command_or_is_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().to_str().expect("UTF-8");
    fs::write(format!("{path}/text.txt"), "Once there was a fox.").expect("written");
    let settings = settings();
    assert!(settings.len() > 80, "{}", settings.len());
    let (mut yaml, mut section) = (String::new(), "");
    for setting in &settings {
        if section != setting.section {
            section = &setting.section;
            writeln!(yaml, "{section}:").expect("a text");
        }
        let indent = if section.is_empty() { "" } else { "  " };
        let Setting { name, value, .. } = setting;
        writeln!(yaml, "{indent}{name}: \"{value}\"").expect("a text");
    }
    let config = format!("{path}/wf.yaml");
    fs::write(&config, yaml).expect("written");
    for command in COMMANDS.iter().filter(|command| command[0] != "serve") {
        let args = arguments(command, path);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let own = flags(command);
        let unset = |setting: &&Setting| {
            let flag = flag(setting);
            let positional = flag == "model" && ["run", "inspect"].contains(&command[0]);
            // The layout of a file is not the layout in memory, and tune writes numbers of threads.
            let has = (own.contains(&flag) || positional)
                && (command[0], &*flag) != ("convert", "layout");
            let written = command[0] == "tune" && flag.contains("threads");
            let alone = FLAGS_ALONE
                .iter()
                .any(|(of, names)| *of == command.join(" ") && names.contains(&&*setting.shown));
            (!has || alone) && !written
        };
        let want: BTreeSet<String> =
            settings.iter().filter(unset).map(|setting| setting.shown.clone()).collect();
        let name = command.join(" ").replace("run", "generate");
        for source in [&*config, "environment"] {
            let mut asked = wf_run(&args);
            asked.env("HF_HUB_CACHE", path);
            if source == config {
                asked.env("WF_CONFIG", &config);
            } else {
                asked.envs(settings.iter().map(|s| (&s.variable, &s.value)));
            }
            let ran: Ran = asked.output().expect("starts").into();
            assert!(!ran.stderr.contains("sets nothing"), "{name}: {}", ran.stderr);
            if matches!(command[0], "ps" | "health") {
                ran.ends(1, &["no server listens at https://127.0.0.1:30000"]);
                continue;
            }
            assert_eq!(unread(&ran, source, &name), want, "{name}: {source}");
            assert_ne!(ran.code, Some(2), "{name} names what nobody typed: {}", ran.stderr);
        }
    }
}

/// Arguments with which a setting means nothing, its variable, and how it is typed.
type Unused = (&'static [&'static str], (&'static str, &'static str), &'static str);

const UNUSED: &[Unused] = &[
    (&["bench", "-p", "0", "-n", "1", "-r", "1"], ("WF_DECODE_MODE", "ar"), "--decode-mode=ar"),
    (&["bench", "-p", "1", "-n", "0", "-r", "1"], ("WF_THRESHOLD", "0.5"), "--threshold=0.5"),
    (
        &["bench", "--depth", "1", "-p", "1", "-n", "0"],
        ("WF_DECODE_MODE", "ar"),
        "--decode-mode=ar",
    ),
    (&["eval", "perplexity", "TEXT"], ("WF_DECODE_MODE", "ar"), "--decode-mode=ar"),
    (&["eval", "quality", "-n1", "--prompts=PROMPTS"], ("WF_THRESHOLD", "0.5"), "--threshold=0.5"),
    (
        &["eval", "agreement", "-n1", "--prompts=PROMPTS"],
        ("WF_DECODE_MODE", "ar"),
        "--decode-mode=ar",
    ),
    (
        &["eval", "agreement", "-n1", "--prompts=PROMPTS", "--modes=greedy"],
        ("WF_SELECTOR", "margin"),
        "--selector=margin",
    ),
    (
        &["eval", "activations", "TEXT", "--policies=off", "--windows=1"],
        ("WF_ACTIVATION_SPARSITY", "topk:0.9"),
        "--activation-sparsity=topk:0.9",
    ),
    (&["generate", "a", "-n1", "--raw"], ("WF_EFFORT", "low"), "--reasoning-effort=low"),
    (&["generate", "a", "-n1", "--suffix=b"], ("WF_THINKING_BUDGET", "9"), "--thinking-budget=9"),
    (
        &["generate", "a", "-n1", "--decode-mode=greedy"],
        ("WF_CONTEXT_SHIFT", "4"),
        "--context-shift=4",
    ),
];

#[test]
fn settings_without_use_are_refused_only_where_they_are_typed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().to_str().expect("UTF-8");
    fs::write(format!("{path}/TEXT"), "Once there was a fox.").expect("written");
    fs::write(format!("{path}/PROMPTS"), "{\"prompt\": \"Once\"}\n").expect("written");
    for (args, (variable, value), typed) in UNUSED {
        let mut asked = wf_run(args);
        let ran: Ran =
            asked.current_dir(path).env(variable, value).output().expect("starts").into();
        assert_eq!(ran.code, Some(0), "{args:?} with {variable}: {}", ran.stderr);
        let mut asked = wf_run(args);
        let ran: Ran = asked.current_dir(path).arg(typed).output().expect("starts").into();
        assert_eq!(ran.code, Some(2), "{args:?} with {typed}: {}", ran.stderr);
    }
}

/// A default is no demand; an option is one.
#[test]
fn configured_thinking_asks_no_model_that_knows_none() {
    for command in [&["generate", "a", "-n1"][..], &["chat", "-n1"]] {
        let mut asked = wf_run(command);
        let asked = asked.env("WF_ENABLE_THINKING", "true").stdin(Stdio::null());
        let ran: Ran = asked.output().expect("starts").into();
        assert_eq!(ran.code, Some(0), "{command:?}: {}", ran.stderr);
    }
    let ran: Ran = wf_run(&["generate", "a", "--enable-thinking"]).output().expect("starts").into();
    assert!(ran.code != Some(0) && ran.stderr.contains("knows no thinking"), "{}", ran.stderr);
}
