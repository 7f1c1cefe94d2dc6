//! Tests of each source of settings, of precedence and of errors.

use super::*;
use clap::ArgMatches;
use std::num::NonZeroUsize;
use wrinklefree::settings::{Commit, Mode, Selector};
use wrinklefree_easy::models::rope_scaling::RopeRule;

fn layers(text: &str, variables: &[(&str, &str)]) -> Result<Layers, String> {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    Layers::new(Some(("wf.yaml".into(), text.into())), variables)
}

/// Parses these flags on top of the layers.
fn matches(layers: &Layers, flags: &[&str]) -> ArgMatches {
    layers.defaults(command()).get_matches_from(flags)
}

fn keys(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> Keys {
    let layers = layers(text, variables).expect("valid");
    Keys::from_arg_matches(&matches(&layers, flags)).expect("valid")
}

#[test]
fn the_example_has_every_key_and_says_the_defaults() {
    let text = example();
    let said = layers(&text, &[]).expect("valid").said;
    let defaults = matches(&Layers::default(), &[]);
    let root = entries(file::parse(&text).expect("YAML"), "").expect("a map");
    let (mut there, mut lines) = (Vec::new(), text.lines());
    for (name, node) in root {
        if SECTIONS.contains(&name.as_str()) {
            there.extend(entries(node, "").unwrap().into_iter().map(|e| (name.clone(), e.0)))
        } else {
            there.push((String::new(), name))
        }
    }
    for key in Key::all() {
        let own = (key.section.to_string(), key.name().to_string());
        assert!(there.contains(&own), "{own:?} is missing");
        let default = defaults.get_raw(key.id()).into_iter().flatten();
        let default: Vec<_> = default.map(OsString::from).collect();
        let example = said.get(key.id()).map(|said| said.values.clone()).unwrap_or_default();
        assert_eq!(example, default, "{own:?}");
        let explained = lines.find(|line| !line.is_empty() && line.trim_start().starts_with('#'));
        assert!(explained.is_some(), "{own:?}");
    }
    assert_eq!(there.len(), Key::all().len(), "nothing else: {there:?}");
}

#[test]
fn every_key_of_the_dlm_section() {
    let dlm = "dlm:\n  decode_mode: adaptive\n  block_size: 16\n  small_block_size: 4\n  threshold: \
               0.7\n  mask_token_id: null\n  selector: topk\n  slots_per_pass: 3\n  factor: 2\n  \
               entropy_bound: 0.5\n  block_attention: causal\n  logit_shift: 0\n  sub_block_cache: \
               true\n  commit: fused\n  row_cost: 0.25\n  draft: ngram\n  draft_length: 5\n";
    let dlm = layers(dlm, &[]).expect("valid").settings().expect("valid");
    assert_eq!((dlm.decode_mode, dlm.block_size), (Some(Mode::Adaptive), Some(16)));
    assert_eq!((dlm.threshold, dlm.mask_token_id), (Some(0.7), None));
    assert_eq!((dlm.commit, dlm.selector), (Some(Commit::Fused), Some(Selector::Topk)));
    assert_eq!((dlm.sub_block_cache, dlm.draft_length), (Some(true), NonZeroUsize::new(5)));
    let said = Settings { threshold: Some(0.5), ..Settings::default() }.or(dlm);
    assert_eq!((said.threshold, said.small_block_size), (Some(0.5), Some(4)));
}

#[test]
fn the_command_line_counts_more_than_the_file_and_that_more_than_the_environment() {
    let text = "model_path: file\nport: 2\nserver:\n  max_body: 2\n  api_key: [b, c]\ndlm:\n  \
                threshold: 0.2\nscheduler:\n  max_sequences: 2\n  enable_radix_cache: false\n\
                benchmark:\n  enabled: true\n  iterations: 2\n";
    let variables = [
        ("MODEL_PATH", "env"),
        ("WF_PORT", "1"),
        ("WF_MAX_BODY", "1"),
        ("WF_API_KEY", "a"),
        ("WF_THRESHOLD", "0.1"),
        ("WF_MAX_SEQUENCES", "1"),
        ("WF_ENABLE_RADIX_CACHE", "true"),
        ("WF_KV_DTYPE", "f32"),
        ("WF_BENCHMARK_ENABLED", "false"),
        ("WF_BENCHMARK_ITERATIONS", "1"),
        ("WF_DRAIN", ""),
    ];
    let flags = [
        "--model=flag",
        "--port=3",
        "--max-body=3",
        "--api-key=d",
        "--threshold=0.3",
        "--max-sequences=3",
        "--benchmark=false",
        "--benchmark-iterations=3",
    ];
    let of = |keys: &Keys| {
        (
            (keys.model.model.clone(), keys.port, keys.server.max_body, keys.settings.threshold),
            (keys.scheduler.max_sequences.get(), keys.scheduler.enable_radix_cache),
            (keys.benchmark.benchmark_enabled, keys.benchmark.benchmark_iterations.get()),
            keys.server.api_key.concat(),
        )
    };
    let model = |name: &str| Some(name.into());
    let default = ((None, 30000, 4 << 20, None), (16, true), (false, 3), String::new());
    assert_eq!(of(&keys("", &[], &[])), default);
    let environment = ((model("env"), 1, 1, Some(0.1)), (1, true), (false, 1), "a".into());
    assert_eq!(of(&keys("", &variables, &[])), environment);
    let file = ((model("file"), 2, 2, Some(0.2)), (2, false), (true, 2), "bc".into());
    assert_eq!(of(&keys(text, &variables, &[])), file);
    let command_line = ((model("flag"), 3, 3, Some(0.3)), (3, false), (false, 3), "d".into());
    assert_eq!(of(&keys(text, &variables, &flags)), command_line);
    assert!(!keys("", &variables, &["--no-radix-cache"]).scheduler.enable_radix_cache);
    assert_eq!(keys("", &variables, &[]).server.drain, 30, "an empty variable is not there");
    let two = [("MODEL_PATH", "theirs"), ("WF_MODEL_PATH", "ours")];
    assert_eq!(keys("", &two, &[]).model.model, model("ours"));
    assert_eq!(
        keys("", &[("WF_CORS_ORIGIN", "http://a, http://b")], &[]).server.cors_origin.len(),
        2
    );
}

#[test]
fn long_texts_are_said_everywhere() {
    let of = |keys: Keys| {
        let scheduler = keys.scheduler;
        (keys.model.rope_scaling, scheduler.context, scheduler.context_shift)
    };
    assert_eq!(of(keys("", &[], &[])), (None, None, None));
    let yaml = "rope_scaling: yarn:2\nscheduler:\n  context: 4096\n  context_shift: 8\n";
    let file = (Some(RopeRule::Yarn(2.0)), Some(4096), Some(8));
    assert_eq!(of(keys(yaml, &[], &[])), file);
    let variables = [("WF_ROPE_SCALING", "ntk:4"), ("WF_CONTEXT", "99"), ("WF_CONTEXT_SHIFT", "0")];
    let environment = (Some(RopeRule::Ntk(4.0)), Some(99), Some(0));
    assert_eq!(of(keys("", &variables, &[])), environment);
    let flags = ["--rope-scaling=none", "--context=64", "--context-shift"];
    let command_line = (Some(RopeRule::None), Some(64), Some(4));
    assert_eq!(of(keys(yaml, &variables, &flags)), command_line);
}

#[test]
fn what_counts_is_shown_with_its_source() {
    let text = "server:\n  api_key: secret\n  served_model_name: a b\nscheduler:\n  \
                enable_radix_cache: false\n";
    let layers = layers(text, &[("WF_PORT", "1"), ("WF_MAX_WAITING", "5")]).expect("valid");
    let shown = effective(&layers, &matches(&layers, &["--port=3", "--context=99"]));
    let line = |key: &str| {
        let mut lines = shown.lines().map(str::trim).filter(|line| line.starts_with(key));
        let line = lines.next().unwrap_or_else(|| panic!("no {key} in {shown}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("port:"), "port: 3 # command line");
    assert_eq!(line("max_waiting:"), "max_waiting: 5 # WF_MAX_WAITING");
    assert_eq!(line("served_model_name:"), "served_model_name: [\"a b\"] # wf.yaml:3");
    assert_eq!(line("enable_radix_cache:"), "enable_radix_cache: false # wf.yaml:5");
    assert_eq!(line("host:"), "host: 127.0.0.1 # default");
    assert_eq!(line("threshold:"), "threshold: null # default: 0.9");
    assert_eq!(line("api_key:"), "api_key: [\"***\"] # wf.yaml:2");
    assert!(!shown.contains("secret"), "{shown}");
    // It is a configuration: only keys are not in it.
    let again = super::tests::layers(&shown, &[]).expect("valid");
    assert_eq!(matches(&again, &[]).get_one::<u16>("port"), Some(&3));
}

#[test]
fn wrong_files_name_line_key_and_what_was_meant() {
    for (text, parts) in [
        ("dlm:\n  treshold: 1\n", &["line 2", "`treshold`", "did you mean `threshold`?"][..]),
        ("dml:\n  threshold: 1\n", &["line 1", "`dml`", "did you mean `dlm`?"]),
        ("\nprot: 1\n", &["line 2", "`prot`", "did you mean `port`?"]),
        ("block_size: 1\n", &["line 1", "it belongs in section `dlm`"]),
        ("dlm:\n  port: 1\n", &["line 2", "it stands outside of sections"]),
        ("kv:\n  xyz: 1\n", &["line 2", "in section `kv`: expected one of dtype, k, v, attention"]),
        (
            "kv:\n  dtype: fp8\n",
            &["line 2", "`dtype` cannot be `fp8`: there is f32, f16, bf16, fp8-e4m3"],
        ),
        ("kv:\n  attention: window:0\n", &["line 2", "`attention` cannot be `window:0`", "topk:K"]),
        ("dlm:\n  decode_mode: gredy\n", &["line 2", "iterative", "did you mean `greedy`?"]),
        (
            "dlm:\n  threshold: high\n",
            &["line 2", "`threshold` cannot be `high`: expected a number"],
        ),
        ("rope_scaling: yarn\n", &["line 1", "`rope_scaling` cannot be `yarn`", "from 1 to 1024"]),
        ("scheduler:\n  context_shift: yes\n", &["line 2", "`context_shift`", "a whole number"]),
        ("scheduler:\n  context_shfit: 4\n", &["line 2", "did you mean `context_shift`?"]),
        ("scheduler:\n  context: 0\n", &["line 2", "`context`", "1073741824"]),
        ("dlm:\n  threshold: 5\n", &["line 2", "threshold must be above 0 and at most 1"]),
        ("dlm:\n  block_size: -1\n", &["line 2", "`block_size`"]),
        ("dlm:\n  draft_length: 0\n", &["line 2", "a whole number from 1"]),
        ("port: 70000\n", &["line 1", "`port` cannot be `70000`", "65535"]),
        ("port: [1]\n", &["line 1", "`port` takes one value"]),
        ("port:\n  a: 1\n", &["line 1", "`port` takes a value"]),
        ("host: example.org\n", &["line 1", "`host` cannot be `example.org`", "IP address"]),
        ("warmup: 3\n", &["line 1", "`warmup` cannot be `3`", "true"]),
        ("scheduler:\n  enable_radix_cache: x\n", &["line 2", "`enable_radix_cache`", "true"]),
        ("server:\n  cors_origin: [http://a, b]\n", &["line 2", "`cors_origin`", "origin"]),
        ("server:\n  cors_origin: [[b]]\n", &["line 2", "a list of texts"]),
        ("dlm: 1\n", &["line 1", "the section `dlm` has lines"]),
        ("- 1\n", &["line 1", "a configuration has lines"]),
        ("port: 1\nport: 2\n", &["line 2", "`port` is on line 1 already"]),
    ] {
        let error = layers(text, &[]).expect_err(text);
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(error.starts_with("the configuration wf.yaml: line "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn wrong_variables_are_named() {
    for (name, value, parts) in [
        ("WF_PORT", "x", &["`port` cannot be `x`: expected a whole number"][..]),
        ("WF_THRESHOLD", "5", &["threshold must be above 0"]),
        ("WF_INSECURE", "1", &["true"]),
        ("WF_CORS_ORIGIN", "http://a,x", &["origin"]),
        ("WF_DECODE_MODE", "gredy", &["did you mean `greedy`?"]),
    ] {
        let error = layers("", &[(name, value)]).expect_err(name);
        for part in parts {
            assert!(error.starts_with(&format!("{name}: ")) && error.contains(part), "{error}");
        }
    }
    let variables = [
        ("WF_PROT", "1"),
        ("WF_LOG", "x"),
        ("WF_ISA", "x"),
        ("WF_CONFIG", "x"),
        ("XWF_PORT", "1"),
        ("WF_SOMETHING", "x"),
    ];
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let layers = environment::read(&Key::all(), variables).expect("no error");
    assert!(layers.said.is_empty());
    let wanted = [
        "the variable WF_PROT sets nothing; did you mean `WF_PORT`?",
        "the variable WF_SOMETHING sets nothing",
    ];
    assert_eq!(layers.warnings, wanted);
}
