//! The engine's front door on the embedded model.
#![cfg(all(feature = "default-model", feature = "grammar"))]

use serde_json::{Value, json};
use std::thread;
use wrinklefree_easy::machine::{self, Threads};
use wrinklefree_easy::models::engine::SingleSequence;
use wrinklefree_easy::models::{Loaded, OpenOptions};
use wrinklefree_easy::wrinklefree::cache::KvConfig;
use wrinklefree_easy::wrinklefree::decode::DecodeMode;
use wrinklefree_easy::wrinklefree::engine::{Event, Request, Step};
use wrinklefree_easy::{Engine, Error, GenerateOptions, Message, Mode};

const PROMPT: &str = "Once upon a time";

fn engine() -> Engine {
    Engine::builder_default().threads(1).context(512).build().expect("the embedded model opens")
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(max_tokens).temperature(0.0)
}

/// Returns the text that one sequence on the core's engine gives, as `wf-run generate` runs it.
fn single(prompt: &str, max_tokens: usize) -> String {
    let runtime = machine::runtime(Threads::all(1)).expect("a runtime");
    let loaded = Loaded::open(&OpenOptions::default(), &runtime, &mut ()).expect("opens");
    let tokens = loaded.tokenizer().expect("there").encode(prompt, true).expect("encodes");
    let modes = [DecodeMode::Autoregressive];
    let needs = SingleSequence { context: 512, kv: KvConfig::default(), modes: &modes };
    let mut engine = needs.engine(loaded.model, loaded.tokenizer, runtime).expect("fits");
    let eos = loaded.defaults.eos;
    engine.submit(Request { tokens, max_tokens, eos, ..Request::default() }).expect("valid");
    let mut text = String::new();
    while engine.step() != Step::Idle {
        while let Some(event) = engine.poll() {
            if let Event::Token { text: new, .. } | Event::Finished { text: new, .. } = event {
                text += &new;
            }
        }
    }
    text
}

#[test]
fn generate_equals_the_stream_and_a_single_sequence() {
    let engine = engine();
    let whole = engine.generate(PROMPT, &greedy(48)).expect("generates");
    let chunks: Result<Vec<_>, Error> =
        engine.stream(PROMPT, &greedy(48)).expect("starts").collect();
    let chunks = chunks.expect("no error");
    assert_eq!(chunks.iter().map(|c| c.text.as_str()).collect::<String>(), whole.text);
    assert_eq!(chunks.iter().filter_map(|c| c.token).collect::<Vec<_>>(), whole.tokens);
    assert_eq!(whole.text, single(PROMPT, 48));
    assert_eq!(whole.prompt_tokens, engine.tokenize(PROMPT).expect("encodes").len());
    let ar = engine.generate(PROMPT, &greedy(48).decode_mode(Mode::Ar)).expect("generates");
    assert_eq!((ar.text, ar.tokens), (whole.text, whole.tokens));
}

#[test]
fn requests_of_two_threads_give_the_same_texts_as_alone() {
    let engine = engine();
    let prompts = ["The fox", "A little owl"];
    let alone = prompts.map(|p| engine.generate(p, &greedy(64)).expect("generates").text);
    let threads = prompts.map(|prompt| {
        let engine = engine.clone();
        thread::spawn(move || engine.generate(prompt, &greedy(64)).expect("generates").text)
    });
    assert_eq!(threads.map(|t| t.join().expect("no panic")), alone);
}

#[test]
fn a_dropped_stream_frees_its_sequence() {
    let engine = engine();
    let mut stream = engine.stream(PROMPT, &greedy(400)).expect("starts");
    assert!(stream.next().expect("a chunk").is_ok());
    drop(stream);
    // The worker cancels before its next pass; the next request runs after that.
    engine.generate("The", &greedy(1)).expect("generates");
    let stats = engine.stats().expect("runs");
    assert_eq!((stats.running, stats.waiting), (0, 0));
    assert_eq!(stats.free_pages + stats.idle_pages, stats.kv_pages);
}

#[test]
fn a_stream_outlives_its_engine() {
    let engine = engine();
    let stream = engine.stream(PROMPT, &greedy(8)).expect("starts");
    drop(engine);
    assert_eq!(stream.collect_all().expect("generates").tokens.len(), 8);
}

#[test]
fn a_json_schema_is_kept() {
    let schema = json!({"type": "object", "properties": {"old": {"type": "boolean"}},
        "required": ["old"], "additionalProperties": false});
    let options = greedy(64).json_schema(schema);
    let answer = engine().chat(&[Message::user("Hello!")], &options).expect("answers");
    let value: Value = serde_json::from_str(&answer.text).expect("JSON");
    assert!(value["old"].is_boolean(), "{}", answer.text);
}

#[test]
fn embeddings_have_length_1_and_tokens_become_text_again() {
    let engine = engine();
    let vector = engine.embed("A fox in the forest.").expect("embeds");
    let length: f32 = vector.iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-4, "{length}");
    let tokens = engine.tokenize("A fox.").expect("encodes");
    assert!(engine.detokenize(&tokens).contains("A fox."));
}

#[test]
fn errors_name_the_culprit() {
    let missing = Engine::builder("no/such/model.gguf").build().err().expect("is missing");
    assert!(missing.to_string().contains("no/such/model.gguf"), "{missing}");
    let engine = engine();
    let error = |options| engine.generate(PROMPT, &options).expect_err("refused").to_string();
    assert!(error(greedy(0)).contains("max_tokens"));
    assert!(error(greedy(1).top_p(2.0)).contains("top_p"));
    assert!(error(greedy(1).regex("(")).contains("grammar"));
    let long = engine.generate(&PROMPT.repeat(600), &greedy(1)).expect_err("too long");
    assert!(long.to_string().contains("the context holds 512"), "{long}");
}
