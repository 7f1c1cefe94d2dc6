//! Meaning of an absent option of sampling in each shell, compared with the table in
//! docs/command-line.md. The library reads options as JSON of
//! [`GenerateOptions`]. C, Python and the npm package have tests of the same table.

use crate::common::model::{DEFAULT, write_stating};
use crate::common::server::{Reply, Server};
use crate::common::{run, run_with_input};
use crate::defaults_table::{Absent, Column, Row, rows};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use wrinklefree_easy::{Completion, Engine, GenerateOptions, Message};

const PROMPT: &str = "Tell me a story about a fox.";
/// The same prompt as the chat template writes it.
const RAW: &str = "<|user|>Tell me a story about a fox.<|bot|>";
const SEED: u64 = 3;

type Options = Map<String, Value>;

/// The programs that a model is asked through.
struct Shells {
    model: String,
    server: Server,
    engine: Engine,
}

/// A command, a path of the server or the library.
struct Way {
    place: &'static str,
    column: Column,
    /// Options that other ways of the column have.
    lacks: &'static [&'static str],
    answer: fn(&Shells, &Options) -> String,
}

const WAYS: [Way; 8] = [
    Way { place: "generate", column: Column::Commands, lacks: &[], answer: generated },
    Way { place: "chat", column: Column::Commands, lacks: &["stop"], answer: chatted },
    Way { place: "/v1/chat/completions", column: Column::Server, lacks: &[], answer: chat },
    Way { place: "/v1/completions", column: Column::Server, lacks: &[], answer: completed },
    Way { place: "/v1/messages", column: Column::Server, lacks: &[], answer: messages },
    Way { place: "/api/chat", column: Column::Server, lacks: OLLAMA_LACKS, answer: ollama },
    Way { place: "/completion", column: Column::Server, lacks: &[], answer: llama },
    Way { place: "library", column: Column::Libraries, lacks: &[], answer: library },
];
const OLLAMA_LACKS: &[&str] = &[
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "logit_bias",
];

impl Way {
    /// Returns the value of the table, if it has one for an option of this way.
    fn value(&self, row: &Row) -> Option<Value> {
        match row.absent(self.column, self.place) {
            Absent::Equals(value) if !self.lacks.contains(&&*row.option) => Some(value),
            _ => None,
        }
    }
}

impl Shells {
    fn new(model: &str) -> Self {
        let engine = Engine::builder(model).threads(1).context(512).build().expect("loads");
        let server = Server::start(&["--model", model, "--served-model-name", "m"]);
        Self { model: model.into(), server, engine }
    }

    fn post(&self, path: &str, body: Value, options: &Options) -> Reply {
        self.server.post(path, &merged(&body, options).into())
    }

    fn library(&self, options: &Options) -> Completion {
        let read = serde_json::from_value::<GenerateOptions>(options.clone().into());
        let read = read.unwrap_or_else(|error| panic!("{error}: {options:?}"));
        self.engine.chat(&[Message::user(PROMPT)], &read).expect("answers")
    }

    /// Ids that make up an answer where all others are unlikely, with a colon, which ends repetitions.
    fn few_tokens(&self) -> Value {
        let tokens = self.engine.tokenize(": fox owl").expect("encodes");
        let tokens: BTreeSet<u32> = tokens.into_iter().filter(|&token| token > 4).collect();
        assert!(tokens.len() > 2, "{tokens:?}");
        tokens.into_iter().map(|token| json!([token, 60])).collect()
    }
}

fn object(value: &Value) -> Options {
    value.as_object().expect("an object").clone()
}

fn merged(base: &Value, more: &Options) -> Options {
    object(base).into_iter().chain(more.clone()).collect()
}

/// Returns the flags of a command for options.
fn flags(options: &Options) -> Vec<String> {
    let mut flags = Vec::new();
    for (name, value) in options {
        let listed = ["dry_sequence_breakers", "logit_bias", "stop"].contains(&&**name);
        let name = name.replace("breakers", "breaker").replace('_', "-");
        let values = if listed { value.as_array().cloned() } else { Some(vec![value.clone()]) };
        for value in values.expect("a list") {
            let value = match &value {
                Value::String(text) => text.clone(),
                Value::Array(pair) => format!("{}={}", pair[0], pair[1]),
                other => other.to_string(),
            };
            flags.push(format!("--{name}={value}"));
        }
    }
    flags
}

fn command(name: &str, shells: &Shells, more: &[&str], options: &Options) -> (String, String) {
    let flags = flags(options);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let args = [&[name, "-t", "1", "-m", &shells.model], more, &flags].concat();
    let input = if name == "chat" { format!("{PROMPT}\n/stats\n") } else { String::new() };
    let ran = run_with_input(&args, input.as_bytes()).ends(0, &[]);
    (ran.stdout, ran.stderr)
}

fn generated(shells: &Shells, options: &Options) -> String {
    command("generate", shells, &[PROMPT], options).0
}

fn chatted(shells: &Shells, options: &Options) -> String {
    command("chat", shells, &[], options).0
}

/// Returns options with `logit_bias` as OpenAI's object.
fn openai(options: &Options) -> Options {
    let mut options = options.clone();
    if let Some(Value::Array(pairs)) = options.get("logit_bias") {
        let object: Options =
            pairs.iter().map(|pair| (pair[0].to_string(), pair[1].clone())).collect();
        options.insert("logit_bias".into(), object.into());
    }
    options
}

/// Returns options under the names of Ollama and llama-server.
fn renamed(options: &Options, max_tokens: &str) -> Options {
    let rename = |(name, value): (&String, &Value)| {
        let name = match name.as_str() {
            "max_tokens" => max_tokens,
            "repetition_penalty" => "repeat_penalty",
            name => name,
        };
        (name.to_owned(), value.clone())
    };
    options.iter().map(rename).collect()
}

fn text(value: &Value, place: &str) -> String {
    let text = value.pointer(place).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("no {place}: {value}")).into()
}

fn talk() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": PROMPT}]})
}

fn chat(shells: &Shells, options: &Options) -> String {
    let reply = shells.post("/v1/chat/completions", talk(), &openai(options)).is(200).json();
    text(&reply, "/choices/0/message/content")
}

fn completed(shells: &Shells, options: &Options) -> String {
    let body = json!({"prompt": RAW});
    text(&shells.post("/v1/completions", body, &openai(options)).is(200).json(), "/choices/0/text")
}

fn messages(shells: &Shells, options: &Options) -> String {
    let mut options = openai(options);
    if let Some(stop) = options.remove("stop") {
        options.insert("stop_sequences".into(), stop);
    }
    text(&shells.post("/v1/messages", talk(), &options).is(200).json(), "/content/0/text")
}

fn ollama_reply(shells: &Shells, options: &Options) -> Value {
    let more = json!({"stream": false, "options": renamed(options, "num_predict")});
    shells.post("/api/chat", talk(), &object(&more)).is(200).json()
}

fn ollama(shells: &Shells, options: &Options) -> String {
    text(&ollama_reply(shells, options), "/message/content")
}

fn llama_reply(shells: &Shells, options: &Options) -> Value {
    let body = json!({"prompt": RAW});
    shells.post("/completion", body, &renamed(options, "n_predict")).is(200).json()
}

fn llama(shells: &Shells, options: &Options) -> String {
    text(&llama_reply(shells, options), "/content")
}

fn library(shells: &Shells, options: &Options) -> String {
    shells.library(options).text
}

/// Returns options with which the option changes an answer, and a value that changes it. `few` are the
/// biases of few tokens, whose answers repeat themselves.
fn visible(option: &str, few: &Value) -> Option<(Value, Value)> {
    let repeats = |more: Value| {
        merged(&json!({"logit_bias": few, "dry_multiplier": 2, "max_tokens": 48}), &object(&more))
    };
    let cuts = json!({"temperature": 1, "xtc_probability": 1});
    let surprise = json!({"mirostat": 2});
    Some(match option {
        "top_k" => (json!({}), json!(40)),
        "top_p" => (json!({}), json!(0.95)),
        "min_p" => (json!({}), json!(0.05)),
        "typical_p" => (json!({}), json!(0.9)),
        "top_n_sigma" => (json!({}), json!(1)),
        "xtc_probability" => (json!({"temperature": 1}), json!(1)),
        "xtc_threshold" => (cuts, json!(0.01)),
        "mirostat" => (json!({}), json!(2)),
        "mirostat_tau" => (surprise, json!(3)),
        "mirostat_eta" => (surprise, json!(0.9)),
        "repetition_penalty" => (json!({}), json!(1.1)),
        "frequency_penalty" | "presence_penalty" => (json!({}), json!(2)),
        "dry_multiplier" => (repeats(json!({"dry_multiplier": 0})).into(), json!(2)),
        "dry_base" => (repeats(json!({})).into(), json!(8)),
        "dry_allowed_length" => (repeats(json!({})).into(), json!(9)),
        "dry_penalty_last_n" => (repeats(json!({})).into(), json!(0)),
        "dry_sequence_breakers" => (repeats(json!({})).into(), json!(["none"])),
        _ => return None,
    })
}

/// Samples that any change of the probabilities would change.
fn base() -> Options {
    object(&json!({"temperature": 2, "seed": SEED, "max_tokens": 24}))
}

/// A row for each option, and a reason for each difference.
#[test]
fn the_table_of_defaults_has_all_options_and_reasons() {
    let rows = rows();
    let names: BTreeSet<&str> = rows.iter().map(|row| &*row.option).collect();
    assert_eq!(names.len(), rows.len(), "each option once");
    let help = run(&["generate", "--help"]).ends(0, &[]).stdout;
    let (_, sampling) = help.split_once("\nSampling:\n").expect("a section");
    let section = sampling.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
    let flags = section.filter_map(|line| line.trim_start().strip_prefix("--"));
    let flags: Vec<&str> = flags.filter_map(|flag| flag.split(' ').next()).collect();
    assert!(flags.len() > 15, "{help}");
    for flag in flags {
        let name = flag.replace('-', "_").replace("breaker", "breakers");
        assert!(names.contains(&*name), "docs/command-line.md: the table of defaults lacks {name}");
    }
    for row in &rows {
        assert_eq!(row.agrees(), row.reason == "–", "{}: equal, or a reason: {row:?}", row.option);
    }
}

/// An absent option gives the same answer as the value of the table, and another value does not.
#[test]
fn absent_options_mean_what_the_table_says() {
    let (shells, rows) = (Shells::new(DEFAULT), rows());
    let few = shells.few_tokens();
    for way in &WAYS {
        let plain = (way.answer)(&shells, &base());
        let stated = rows.iter().filter(|row| !base().contains_key(&row.option));
        let values = stated.filter_map(|row| Some((row.option.clone(), way.value(row)?)));
        let all: Options = values.filter(|(name, _)| name != "n").collect();
        assert!(all.len() > 7, "{}: {all:?}", way.place);
        let base = Value::from(base());
        assert_eq!((way.answer)(&shells, &merged(&base, &all)), plain, "{}: {all:?}", way.place);
        for row in &rows {
            let (Some(value), Some((near, other))) = (way.value(row), visible(&row.option, &few))
            else {
                continue;
            };
            let ask = |value: Option<&Value>| {
                let mut options = merged(&base, &object(&near));
                options.extend(value.map(|value| (row.option.clone(), value.clone())));
                (way.answer)(&shells, &options)
            };
            let absent = ask(None);
            assert_eq!(ask(Some(&value)), absent, "{}: {} is {value}", way.place, row.option);
            assert_ne!(ask(Some(&other)), absent, "{}: {} matters", way.place, row.option);
        }
    }
    // llama-server's API says what is in effect.
    let settings = llama_reply(&shells, &Options::new())["generation_settings"].clone();
    for row in rows.iter().filter(|row| row.absent(Column::Server, "") != Absent::Drawn) {
        let name = renamed(&Options::from_iter([(row.option.clone(), Value::Null)]), "n_predict");
        let (name, _) = name.iter().next().expect("one");
        if let (Absent::Equals(want), Some(found)) =
            (row.absent(Column::Server, "/completion"), settings.get(name))
        {
            let close = |x: &Value| (x.as_f64().expect("a number") * 1e6).round();
            assert_eq!(close(found), close(&want), "{name}: {settings}");
        }
    }
}

#[test]
fn absent_temperatures_seeds_and_recommendations_mean_what_the_table_says() {
    let shells = Shells::new(DEFAULT);
    let rows = rows();
    let row = |name: &str| rows.iter().find(|row| row.option == name).expect("a row");
    for way in &WAYS {
        let ask = |options: Value| (way.answer)(&shells, &object(&options));
        let without = ask(json!({"seed": SEED, "max_tokens": 24}));
        let temperature = way.value(row("temperature")).expect("a value");
        let stated = |t: &Value| ask(json!({"seed": SEED, "max_tokens": 24, "temperature": t}));
        assert_eq!(stated(&temperature), without, "{}: temperature", way.place);
        assert_ne!(stated(&json!(0.75)), without, "{}: temperature matters", way.place);

        let draws = || ask(json!({"temperature": 2, "max_tokens": 24}));
        let texts: BTreeSet<String> = (0..3).map(|_| draws()).collect();
        match row("seed").absent(way.column, way.place) {
            Absent::Drawn => assert!(texts.len() > 1, "{}: a seed is drawn", way.place),
            Absent::Equals(seed) => {
                let stated = ask(json!({"temperature": 2, "max_tokens": 24, "seed": seed}));
                assert_eq!(texts, BTreeSet::from([stated]), "{}: seed", way.place);
            }
            other => panic!("{}: seed: {other:?}", way.place),
        }
    }
}

/// The same model in each format, with and without a recommendation of its authors.
#[test]
fn recommendations_and_their_absence_survive_convert() {
    let folder = tempfile::tempdir().expect("a directory");
    let at = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let stated = json!({"temperature": 0.5, "top_p": 0.75, "top_k": 3, "repetition_penalty": 1.5});
    let silent =
        json!({"temperature": null, "top_p": null, "top_k": null, "repetition_penalty": null});
    let recommending = at("recommending.safetensors");
    write_stating(recommending.as_ref(), &stated);
    let rows = rows();
    for (name, model, recommended) in
        [("silent", DEFAULT.to_owned(), &silent), ("stated", recommending, &stated)]
    {
        let [gguf, directory, packed] =
            ["gguf", "directory", "safetensors"].map(|form| at(&format!("{name}.{form}")));
        run(&["convert", &model, &gguf]).ends(0, &[]);
        run(&["convert", &gguf, &directory, "--to", "hf"]).ends(0, &[]);
        run(&["convert", &directory, &packed]).ends(0, &[]);
        for model in [model, gguf, directory, packed] {
            let shells = Shells::new(&model);
            for way in &WAYS {
                let ask = |more: Options| {
                    let base = json!({"seed": SEED, "max_tokens": 16});
                    (way.answer)(&shells, &merged(&base, &more))
                };
                let meant = rows.iter().filter_map(|row| {
                    let recommended = recommended.get(&row.option)?;
                    let value = Some(recommended.clone()).filter(|value| !value.is_null());
                    Some((row.option.clone(), value.or_else(|| way.value(row))?))
                });
                let meant: Options = meant.collect();
                assert_eq!(meant.len(), 4, "{meant:?}");
                assert_eq!(ask(meant.clone()), ask(Options::new()), "{model}: {}", way.place);
                if name == "stated" {
                    let table = rows.iter().filter(|row| meant.contains_key(&row.option));
                    let table = table.filter_map(|row| Some((row.option.clone(), way.value(row)?)));
                    assert_ne!(ask(table.collect()), ask(Options::new()), "{}", way.place);
                }
            }
        }
    }
}

/// Answers that only their length ends.
#[test]
fn absent_lengths_mean_what_the_table_says() {
    let shells = Shells::new(DEFAULT);
    let rows = rows();
    let row = |name: &str| rows.iter().find(|row| row.option == name).expect("a row");
    let length = |column, place: &str| row("max_tokens").absent(column, place);
    let endless: Value =
        shells.engine.defaults().eos.iter().map(|&token| json!([token, -1000])).collect();
    let endless = object(&json!({"logit_bias": endless, "temperature": 1, "seed": SEED}));

    let (stdout, _) =
        command("generate", &shells, &[PROMPT, "--json", "--context", "2048"], &endless);
    let answer: Value = serde_json::from_str(&stdout).expect("JSON");
    let count = answer["tokens"].as_array().expect("ids").len();
    assert_eq!(Absent::Equals(json!(count)), length(Column::Commands, "generate"));
    assert!(answer["logprobs"].is_null(), "{answer}");
    let (_, stderr) = command("chat", &shells, &["--context", "2048"], &endless);
    let (_, after) = stderr.split_once("generated ").expect("statistics");
    let count: u64 = after.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert_eq!(Absent::Equals(json!(count)), length(Column::Commands, "chat"));
    let answer = shells.library(&endless);
    assert_eq!(Absent::Equals(json!(answer.tokens.len())), length(Column::Libraries, "library"));
    assert!(answer.tokens.iter().all(|token| token.logprob.is_none()));

    let context = 96;
    let server = Server::start(&["--context", "96", "--served-model-name", "m"]);
    let shells = Shells { server, ..shells };
    let more = openai(&endless);
    let answer = shells.post("/v1/chat/completions", talk(), &more).is(200).json();
    assert_eq!(length(Column::Server, "/v1/chat/completions"), Absent::Fits);
    assert_eq!(answer["usage"]["total_tokens"], context, "{answer}");
    let choices = answer["choices"].as_array().expect("choices");
    let outputs = row("n").absent(Column::Server, "/v1/chat/completions");
    assert_eq!(Absent::Equals(json!(choices.len())), outputs);
    assert!(choices[0]["logprobs"].is_null(), "{answer}");
    let answer = shells.post("/v1/completions", json!({"prompt": RAW}), &more).is(200).json();
    let count = answer["usage"]["completion_tokens"].clone();
    assert_eq!(Absent::Equals(count), length(Column::Server, "/v1/completions"));
    let answer = llama_reply(&shells, &endless);
    let total = answer["tokens_evaluated"].as_u64().zip(answer["tokens_predicted"].as_u64());
    assert_eq!(total.map(|(read, written)| read + written), Some(context), "{answer}");
    // Ollama has no biases: some seed gives an answer that does not end by itself.
    let mut long = (0..20).map(|seed| ollama_reply(&shells, &object(&json!({"seed": seed}))));
    let answer = long.find(|answer| answer["done_reason"] == "length");
    let answer = answer.expect("a long answer");
    let total = answer["prompt_eval_count"].as_u64().zip(answer["eval_count"].as_u64());
    assert_eq!(total.map(|(read, written)| read + written), Some(context), "{answer}");
    let reply = shells.post("/v1/messages", talk(), &Options::new()).is(400);
    assert!(reply.body.contains("max_tokens"), "{}", reply.body);
}
