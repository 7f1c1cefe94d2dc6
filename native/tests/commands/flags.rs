//! Flags of commands, the settings that lead to a server, and the forms of answers in `generate` and `chat`.

use crate::common::model::DEFAULT;
use crate::common::{Ran, run, run_with_input, wf_run};
use crate::usage::listed_commands;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Commands with options, in the order of the table in the documentation.
pub const COMMANDS: [&[&str]; 21] = [
    &["generate"],
    &["chat"],
    &["run"],
    &["serve"],
    &["inspect"],
    &["convert"],
    &["compare"],
    &["logits"],
    &["bench"],
    &["tune"],
    &["eval", "perplexity"],
    &["eval", "quality"],
    &["eval", "agreement"],
    &["eval", "activations"],
    &["eval", "kv"],
    &["pull"],
    &["add"],
    &["list"],
    &["rm"],
    &["ps"],
    &["health"],
];

/// The long flags of a command.
pub fn flags(command: &[&str]) -> BTreeSet<String> {
    if command == ["run"] {
        // It passes options on, and names the model itself.
        let passed = ["generate", "chat"].map(|command| flags(&[command]));
        return passed.into_iter().flatten().filter(|flag| flag != "model").collect();
    }
    let help = run(&[command, &["--help"]].concat()).ends(0, &[]).stdout;
    let flag = |line: &str| {
        let line = line.trim_start();
        let (_, rest) = line.split_once("--").filter(|(short, _)| {
            short.is_empty()
                || (short.len() == 4 && short.starts_with('-') && short.ends_with(", "))
        })?;
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        Some(rest[..end.unwrap_or(rest.len())].to_owned())
    };
    help.lines().filter_map(flag).filter(|flag| !flag.is_empty() && flag != "help").collect()
}

/// The table of flags and commands, as Markdown.
fn table() -> String {
    let of: Vec<BTreeSet<String>> = COMMANDS.iter().map(|command| flags(command)).collect();
    let names = COMMANDS.map(|command| command.join(" "));
    let mut text =
        format!("| flag | {} |\n| --- |{}\n", names.join(" | "), " --- |".repeat(names.len()));
    for flag in of.iter().flatten().collect::<BTreeSet<_>>() {
        let marks: Vec<&str> =
            of.iter().map(|own| if own.contains(flag) { "x" } else { "" }).collect();
        text += &format!("| `--{flag}` | {} |\n", marks.join(" | "));
    }
    text
}

#[test]
fn the_table_of_flags_has_every_command() {
    let parts =
        listed_commands(&["eval", "--help"]).into_iter().map(|part| vec!["eval".into(), part]);
    let single = listed_commands(&["--help"]).into_iter().map(|name| vec![name]);
    let all = single.filter(|command| command[0] != "eval").chain(parts);
    let listed: BTreeSet<Vec<&str>> = COMMANDS.iter().map(|command| command.to_vec()).collect();
    assert_eq!(listed.len(), COMMANDS.len(), "each once");
    for command in all {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let has = !flags(&command).is_empty();
        assert_eq!(listed.contains(&command), has, "COMMANDS and {command:?}");
    }
}

/// Flags that are newer than the table are missing in it; UPDATE_DOCS=1 writes it again.
#[test]
fn the_documentation_says_which_flags_a_command_has() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/command-line.md");
    let page = fs::read_to_string(path).expect("there");
    let (before, listed) = page.split_at(page.find("| flag |").expect("a table"));
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, format!("{before}{table}")).expect("written");
        return;
    }
    let lines: BTreeSet<&str> = table.lines().collect();
    let wrong: Vec<&str> = listed.lines().filter(|line| !lines.contains(line)).collect();
    assert!(wrong.is_empty(), "docs/command-line.md: UPDATE_DOCS=1 corrects {wrong:#?}");
    assert!(listed.lines().count() > 100, "{listed}");
}

/// A server is found by its own settings, from each source.
#[test]
fn the_settings_of_a_server_lead_to_it() {
    let folder = tempfile::tempdir().expect("a directory");
    let config = folder.path().join("wf.yaml");
    let config = config.to_str().expect("UTF-8");
    // Nobody listens on the ports 2 to 5.
    fs::write(config, "host: 0.0.0.0\nport: 2\nserver:\n  api_key: [a, b]\n").expect("written");
    for command in ["ps", "health"] {
        let asked = |variables: &[(&str, &str)], more: &[&str]| -> Ran {
            let mut asked = wf_run(&[&[command], more].concat());
            asked.envs(variables.iter().copied()).output().expect("starts").into()
        };
        let nobody = |ran: Ran, port: u16, scheme: &str| {
            let parts = [&*format!("no server listens at {scheme}://127.0.0.1:{port}")];
            let ran = ran.ends(1, &parts);
            assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        };
        let both = [("WF_CONFIG", config), ("WF_PORT", "3")];
        nobody(asked(&both[..1], &[]), 2, "http");
        nobody(asked(&[], &["--config", config]), 2, "http");
        nobody(asked(&both[1..], &[]), 3, "http");
        nobody(asked(&both, &[]), 2, "http");
        nobody(asked(&both, &["--port", "4"]), 4, "http");
        nobody(asked(&both, &["127.0.0.1:5"]), 5, "http");
        nobody(asked(&both, &["http://127.0.0.1:5/"]), 5, "http");
        nobody(asked(&[("WF_TLS_CERT", "x.pem"), ("WF_PORT", "3")], &[]), 3, "https");
        // `insecure` of a server means another thing than the flag.
        nobody(asked(&[("WF_INSECURE", "true"), ("WF_PORT", "3")], &[]), 3, "http");
        asked(&[], &["http://"]).ends(2, &["is not an address of a server", "127.0.0.1:30000"]);
        asked(&[("WF_PORT", "x")], &[]).ends(2, &["WF_PORT", "`port` cannot be `x`"]);
    }
}

#[test]
fn a_configuration_means_the_same_in_every_command() {
    let folder = tempfile::tempdir().expect("a directory");
    let config = folder.path().join("wf.yaml");
    let config = config.to_str().expect("UTF-8");
    fs::write(config, "threads: 1\nkv:\n  dtype: f32\n").expect("written");
    let generate = ["generate", "Hello!", "-n", "2", "--json"];
    let threads = |ran: Ran| {
        let answer: Value = serde_json::from_str(&ran.ends(0, &[]).stdout).expect("JSON");
        answer["threads"].as_u64()
    };
    assert_eq!(threads(run(&[&generate[..], &["--config", config]].concat())), Some(1));
    let more = [&generate[..], &["--config", config, "--threads", "2"]].concat();
    assert_eq!(threads(run(&more)), Some(2), "the command line counts more");
    let mut asked = wf_run(&generate);
    asked.env("WF_THREADS", "1");
    assert_eq!(threads(asked.output().expect("starts").into()), Some(1));
    // `run` is `generate` with a model before it.
    let shape = folder.path().join("fox.safetensors");
    crate::common::model::write_with(&shape, "{{ messages[0].content }}", &[]);
    let shape = shape.to_str().expect("UTF-8");
    let mut asked = wf_run(&[&["run", shape], &generate[1..]].concat());
    asked.env("WF_THREADS", "1");
    assert_eq!(threads(asked.output().expect("starts").into()), Some(1));
    let more = ["run", shape, "Hello!", "-n", "2", "--json", "--config", config];
    assert_eq!(threads(run(&more)), Some(1));

    let kv = |args: &[&str]| {
        let ran = run(&[&["inspect", "--json"], args].concat()).ends(0, &[]);
        let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        report["memory"]["kv_cache"].as_u64().expect("bytes")
    };
    assert_eq!(kv(&["--config", config]), kv(&["--kv-dtype", "f32"]));
    assert!(kv(&["--config", config]) > kv(&[]));
    let mut wrong = wf_run(&["logits", "--tokens=1", "--output=x"]);
    wrong.env("WF_THREADS", "many");
    let ran: Ran = wrong.output().expect("starts").into();
    ran.ends(2, &["WF_THREADS", "many"]);
}

#[test]
fn repetitions_are_penalized() {
    let prompt = "The fox and the owl and the fox and the owl and the fox and the";
    let answer = |more: &[&str]| {
        let args = ["generate", "--raw", prompt, "-n", "16", "--temperature", "0"];
        run(&[&args[..], more].concat()).ends(0, &[]).stdout
    };
    let plain = answer(&[]);
    assert_ne!(answer(&["--dry-multiplier", "9"]), plain);
    let off = ["--dry-multiplier", "9", "--dry-allowed-length", "90"];
    assert_eq!(answer(&off), plain, "no repetition is so long");
    run(&["generate", "Hi", "--dry-multiplier", "1", "--dry-base", "0.5"]).ends(1, &["dry_base"]);
    run(&["generate", "Hi", "--dry-multiplier", "1", "--dry-penalty-last-n", "-9"])
        .ends(2, &["dry_penalty_last_n"]);
    let chat = run_with_input(&["chat"], b"/set dry_multiplier 0.5\n/set\n").ends(0, &[]);
    assert!(
        chat.stdout.contains("dry_multiplier      0.5")
            || chat.stderr.contains("dry_multiplier      0.5")
    );
}

#[test]
fn answers_have_the_form_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a directory");
    let schema = r#"{"type": "object", "required": ["age"], "additionalProperties": false,
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}}"#;
    let file = folder.path().join("schema.json");
    fs::write(&file, schema).expect("written");
    let answer = |option: &str, form: &str| {
        let args = ["generate", "Who is there?", "--temperature", "1", option, form];
        run(&args).ends(0, &[]).stdout.trim().to_owned()
    };
    for form in [schema, file.to_str().expect("UTF-8")] {
        let value: Value = serde_json::from_str(&answer("--json-schema", form)).expect("JSON");
        assert!(value["age"].as_u64().is_some_and(|age| age < 100), "{value}");
    }
    let word = answer("--regex", "(fox|owl) [0-9]{2}");
    assert!(word.len() == 6 && (word.starts_with("fox ") || word.starts_with("owl ")), "{word}");
    assert!(["yes", "no"].contains(&&answer("--grammar", "start: \"yes\" | \"no\"")[..]));
    let chat = ["chat", "--regex", "(fox|owl)"];
    let said = run_with_input(&chat, b"Hello\nAgain\n").ends(0, &[]).stdout;
    assert!(said.lines().count() == 2, "{said}");
    assert!(said.lines().all(|line| ["fox", "owl"].contains(&line)), "{said}");
}

#[test]
fn forms_that_cannot_be_used_are_refused_by_name() {
    for (args, parts) in [
        (&["--json-schema", "{\"type\": 7}"][..], &["--json-schema: "][..]),
        (&["--json-schema", "{oops"], &["--json-schema", "expected a JSON schema"]),
        (&["--json-schema", "/no/file"], &["--json-schema: cannot read /no/file"]),
        (&["--regex", "("], &["--regex: "]),
        (&["--grammar", "start: nothing"], &["--grammar: "]),
        (&["--regex", "a", "--grammar", "start: \"a\""], &["--regex", "cannot be used with"]),
        (&["--image", "cat.png"], &["--image cat.png", "text only"]),
    ] {
        run(&[&["generate", "x"], args].concat()).ends(2, parts);
        run(&[&["chat"], args].concat()).ends(2, parts);
    }
}

#[test]
fn a_conversation_is_loaded_set_and_answered_again() {
    let folder = tempfile::tempdir().expect("a directory");
    let saved = folder.path().join("talk.json");
    let saved = saved.to_str().expect("UTF-8");
    let commands = format!("Tell me a story.\n/save {saved}\n");
    run_with_input(&["chat", "-n", "8"], commands.as_bytes()).ends(0, &["saved 2 messages"]);

    let commands =
        format!("/load {saved}\n/set temperature 1.5\n/set max_tokens 5\n/set\n/regen\n/stats\n");
    let ran = run_with_input(&["chat", "-n", "8"], commands.as_bytes());
    let parts = [
        "loaded 2 messages",
        "temperature         1.5",
        "max_tokens          5",
        "generated 5 tokens",
    ];
    ran.ends(0, &parts);
    let talk = fs::read_to_string(saved).expect("saved");
    assert!(talk.contains("Tell me a story."), "{talk}");

    fs::write(saved, "[{\"role\": \"assistant\", \"content\": \"x\"}]").expect("written");
    let commands = format!("/load {saved}\n/regen\n/set color red\n");
    let parts =
        ["is not a conversation", "message of the user", "there is no answer yet", "--color"];
    run_with_input(&["chat"], commands.as_bytes()).ends(0, &parts);
}

/// The screen of a terminal after a conversation, by util-linux's `script` with all lines typed at once.
#[cfg(target_os = "linux")]
fn talk_in_a_terminal(options: &str, typed: &str) -> String {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().expect("a directory");
    let talk = format!("stty cols 30 rows 20; {} chat {options}", env!("CARGO_BIN_EXE_wf-run"));
    let mut script = Command::new("script");
    script.args(["-qec", &talk, "/dev/null"]);
    script.env("XDG_STATE_HOME", folder.path()).env("TERM", "xterm");
    let mut child =
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is there");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(typed.as_bytes()).expect("typed");
    let output = child.wait_with_output().expect("ends");
    drop(stdin);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn lines_that_are_typed_ahead_survive() {
    let folder = tempfile::tempdir().expect("a directory");
    let saved = folder.path().join("talk.json");
    let typed = format!("Hello!\rAgain!\r/save {}\r/quit\r", saved.display());
    let shown = talk_in_a_terminal("-n 4", &typed);
    let text = fs::read_to_string(&saved).unwrap_or_else(|_| panic!("{shown}"));
    let messages: Value = serde_json::from_str(&text).expect("JSON");
    let said = |i: usize| messages[i]["content"].as_str();
    assert_eq!((said(0), said(2)), (Some("Hello!"), Some("Again!")), "{text}");
}

/// The lines that show a text in a terminal, from the one that begins as the text does.
#[cfg(target_os = "linux")]
fn shown_lines(shown: &str, text: &str) -> Vec<String> {
    let plain = anstream::adapter::strip_str(shown).to_string();
    let lines = plain.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty());
    let begins = |line: &&str| line.len() > 10 && text.starts_with(line);
    let mut left = text.split_whitespace().count();
    let told = lines.skip_while(|line| !begins(line)).take_while(|line| {
        let goes_on = left > 0;
        left = left.saturating_sub(line.split_whitespace().count());
        goes_on
    });
    told.map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn answers_break_between_words_in_a_terminal() {
    let typed = "Tell me a story.\r/quit\r";
    let whole = run_with_input(&["chat"], b"Tell me a story.\n").ends(0, &[]).stdout;
    let shown = talk_in_a_terminal("", typed);
    let lines = shown_lines(&shown, &whole);
    let words: Vec<&str> = whole.split_whitespace().collect();
    assert_eq!(lines.join(" "), words.join(" "), "the same words: {shown}");
    assert!(lines.len() > 3 && lines.iter().all(|line| line.chars().count() <= 30), "{lines:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_last_answer_is_printed_as_the_model_wrote_it() {
    let folder = tempfile::tempdir().expect("a directory");
    let saved = folder.path().join("talk.json");
    let typed = format!("Tell me a story.\r/raw\r/save {}\r/quit\r", saved.display());
    let shown = talk_in_a_terminal("-n 30", &typed);
    let talk: Value =
        serde_json::from_str(&fs::read_to_string(&saved).expect("saved")).expect("JSON");
    let told = talk[1]["content"].as_str().expect("an answer");
    assert!(told.len() > 60 && shown.contains(told), "in one line, as wide as it is: {shown}");
}

#[test]
fn every_result_is_json_with_its_origin() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("packed.safetensors");
    let file = file.to_str().expect("UTF-8");
    let text = folder.path().join("text.txt");
    fs::write(&text, "Once there was a fox.").expect("written");
    let text = text.to_str().expect("UTF-8");
    let fields: [(&[&str], &str, &str); 8] = [
        (&["inspect"], "", "/spec/context_length"),
        (&["generate", "Hello!", "-n", "2"], "", "/timings/generated_tokens"),
        (&["convert", DEFAULT, file], "", "/logits/equal"),
        (&["compare", DEFAULT, DEFAULT, "--tokens", "1,2"], "", "/weights/tensors"),
        (&["tune", "--synthetic", "tiny", "--seconds", "0"], "", "/best/threads"),
        (&["bench", "-p", "0", "-n", "1", "-r", "1"], "/0", "/tokens_per_second"),
        (&["eval", "perplexity", text], "/0", "/perplexity"),
        (&["bench", "--decode-mode", "ar", "-n", "2", "-r", "1"], "/0", "/tokens_per_pass"),
    ];
    for (args, record, field) in fields {
        let ran = run(&[args, &["-o", "json"]].concat()).ends(0, &[]);
        let value: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let record = value.pointer(record).expect("a record");
        assert!(record.pointer(field).is_some_and(|found| !found.is_null()), "{args:?}: {value}");
        for name in ["cpu", "version", "commit", "date"] {
            assert!(record[name].is_string(), "{args:?}: {name}: {value}");
        }
    }
    run(&["inspect", "-o", "json", "--json"]).ends(2, &["cannot be used with"]);
    run(&["inspect", "-o", "yaml"]).ends(2, &["yaml", "text, json"]);
}

#[test]
fn tables_have_columns_of_one_width_and_tune_is_drawn() {
    let folder = tempfile::tempdir().expect("a directory");
    let drawn = folder.path().join("tune.svg");
    let tune = ["tune", "--synthetic", "tiny", "--seconds", "0", "--plot"];
    let bench =
        ["bench", "-p", "16", "-n", "2", "-r", "2", "--roofline", "--profile", "-d", "0,64"];
    let eval = ["eval", "kv", "--synthetic", "tiny", "--context", "64", "-r", "1"];
    for args in [&[&tune[..], &[drawn.to_str().expect("UTF-8")]].concat()[..], &bench, &eval] {
        let text = run(args).ends(0, &[]).stdout;
        let width = |line: &str| line.chars().count();
        let lines: Vec<&str> = text.lines().collect();
        let tables = lines.chunk_by(|a, b| a.starts_with('|') && b.starts_with('|'));
        let tables: Vec<_> = tables.filter(|table| table.len() > 2).collect();
        assert!(!tables.is_empty(), "{text}");
        for table in tables {
            assert!(table.iter().all(|line| width(line) == width(table[0])), "{table:#?}");
        }
    }
    let svg = fs::read_to_string(drawn).expect("drawn");
    assert!(
        svg.contains("decode, 1 thread<") && svg.contains("prompt, 1 thread, pinned<"),
        "{svg}"
    );
}

#[test]
fn results_have_their_origin_and_are_drawn() {
    let folder = tempfile::tempdir().expect("a directory");
    let drawn = folder.path().join("speed.svg");
    let args = ["bench", "-p", "0", "-n", "2", "-r", "1", "-t", "1", "-o", "json", "--plot"];
    let ran = run(&[&args[..], &[drawn.to_str().expect("UTF-8")]].concat()).ends(0, &[]);
    let rows: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    for name in ["cpu", "instruction_sets", "version", "commit", "date"] {
        assert!(rows[0][name].is_string(), "{name}: {rows}");
    }
    assert!(rows[0]["fraction_of_bandwidth_limit"].as_f64() <= Some(1.0), "{rows}");
    let svg = fs::read_to_string(drawn).expect("drawn");
    assert!(svg.contains("tg2, 1 thread") && svg.contains(" t/s</text>"), "{svg}");
    let nowhere = run(&[&args[..], &["/no/such/place.svg"]].concat());
    nowhere.ends(1, &["cannot write in /no/such"]);
}
