//! `diffusing`: streams whose chunks have the whole answer so far, and streams without it, which only grow.

use crate::common::server::{Server, ask};
use crate::reasoning::model;
use serde_json::{Value, json};

const MASK: char = '\u{2591}';
const NEMOTRON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/models/nemotron");
const STORY: &str = "There once was a small fox named Pip. Pip";

/// A body with further fields.
fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// The modes and a prompt for each model.
fn modes() -> Vec<(&'static [&'static str], &'static str, Vec<Value>)> {
    let mode = |name: &str| json!({"decode_mode": name});
    let embedded = ["ar", "verify", "iterative", "adaptive", "greedy"].map(mode);
    let nemotron = ["ar", "verify", "iterative"].map(mode);
    vec![
        (&["--kv-dtype", "f32"], STORY, embedded.to_vec()),
        (&["--kv-dtype", "f32", "-m", NEMOTRON], "anna likes the red", nemotron.to_vec()),
    ]
}

#[test]
fn the_last_snapshot_equals_the_plain_answer() {
    for (args, prompt, modes) in modes() {
        let server = Server::start(args);
        for mode in &modes {
            // Cut by length inside a block, ended by the model or the context, and by a stop string.
            let ends = [json!({"max_tokens": 61}), json!({"max_tokens": 90, "stop": "ed "})];
            for (index, end) in ends.iter().enumerate() {
                let body = with(with(json!({"prompt": prompt, "temperature": 0}), mode), end);
                let plain = server.post("/v1/completions", &body).is(200).json();
                let usage = json!({"stream_options": {"include_usage": true}});
                let asked = with(with(body, &usage), &json!({"stream": true, "diffusing": true}));
                let chunks = server.post("/v1/completions", &asked).is(200).chunks();
                let (last, chunks) = chunks.split_last().expect("chunks");
                assert_eq!(last["usage"]["completion_tokens"], plain["usage"]["completion_tokens"]);
                let text = |chunk: &Value| chunk["choices"][0]["text"].as_str().unwrap().to_owned();
                let texts: Vec<String> = chunks.iter().map(text).collect();
                let end = &chunks.last().expect("a chunk")["choices"][0];
                assert_eq!(end["text"], plain["choices"][0]["text"], "{asked}");
                assert_eq!(end["finish_reason"], plain["choices"][0]["finish_reason"], "{asked}");
                assert!(!texts.last().unwrap().contains(MASK), "{asked}");
                let known = |text: &String| text.split(MASK).next().unwrap_or_default().to_owned();
                let whole = texts.last().unwrap();
                assert!(texts.iter().all(|text| whole.starts_with(&known(text))), "{texts:?}");
                let denoises = !["ar", "verify"].contains(&mode["decode_mode"].as_str().unwrap());
                // Events travel in batches, so the shortest answers may have one snapshot.
                let slow = prompt == STORY && mode["decode_mode"] != "greedy" && index == 0;
                if denoises && slow {
                    assert!(texts.iter().any(|text| text.contains(MASK)), "{asked}: {texts:?}");
                } else if !denoises {
                    let last = texts.last().unwrap();
                    assert!(texts.iter().all(|text| last.starts_with(text)), "{asked}: {texts:?}");
                }
            }
        }
    }
}

#[test]
fn without_the_field_streams_only_grow() {
    for (args, prompt, modes) in modes() {
        let server = Server::start(args);
        for mode in &modes {
            for seed in 0..3 {
                let own =
                    json!({"prompt": prompt, "max_tokens": 70, "seed": seed, "stop": "the b"});
                let body = with(own, mode);
                let plain = server.post("/v1/completions", &body).is(200).json();
                let asked = with(body, &json!({"stream": true, "diffusing": false}));
                let chunks = server.post("/v1/completions", &asked).is(200).chunks();
                let text = |chunk: &Value| chunk["choices"][0]["text"].as_str().unwrap().to_owned();
                let joined: String = chunks.iter().map(text).collect();
                assert_eq!(joined, plain["choices"][0]["text"], "{asked}");
                assert!(!joined.contains(MASK));
            }
        }
    }
}

#[test]
fn chats_have_snapshots_of_the_answer_and_of_the_reasoning() {
    let (_folder, path) = model();
    let server = Server::start(&["-m", &path, "--kv-dtype", "f32"]);
    let more = json!({"max_tokens": 40, "thinking_budget": 6, "temperature": 0, "n": 2});
    for hidden in [false, true] {
        let mode = json!({"decode_mode": "iterative", "include_reasoning": !hidden});
        let body = with(ask("A story, please.", more.clone()), &mode);
        let plain = server.chat(&body).is(200).json();
        let asked = with(body, &json!({"stream": true, "diffusing": true}));
        let chunks = server.chat(&asked).is(200).chunks();
        for index in 0..2 {
            let own = |chunk: &&Value| chunk["choices"][0]["index"] == index;
            let deltas: Vec<&Value> =
                chunks.iter().filter(own).map(|chunk| &chunk["choices"][0]["delta"]).collect();
            let last = |field: &str| deltas.iter().rev().find_map(|delta| delta[field].as_str());
            let message = &plain["choices"][index]["message"];
            assert_eq!(last("content"), message["content"].as_str(), "{plain}");
            assert_eq!(last("reasoning_content"), message["reasoning_content"].as_str());
            assert_eq!(last("reasoning_content").is_none(), hidden, "{plain}");
            assert_eq!(
                chunks.iter().rfind(own).unwrap()["choices"][0]["finish_reason"],
                plain["choices"][index]["finish_reason"]
            );
        }
        let masked = |chunk: &Value| chunk["choices"][0]["delta"].to_string().contains(MASK);
        assert!(chunks.iter().any(masked), "{chunks:?}");
    }
}

#[test]
fn a_hole_and_a_grammar_have_snapshots() {
    let server = Server::start(&["--kv-dtype", "f32"]);
    for more in [
        json!({"prompt": "Tom had a red", "suffix": " ball.", "max_tokens": 6}),
        json!({"prompt": "Tom had a", "regex": " (red|blue) (ball|car)\\.",
            "decode_mode": "iterative"}),
    ] {
        let body = with(json!({"temperature": 0}), &more);
        let plain = server.post("/v1/completions", &body).is(200).json();
        let asked = with(body, &json!({"stream": true, "diffusing": true}));
        let chunks = server.post("/v1/completions", &asked).is(200).chunks();
        let last = &chunks.last().expect("a chunk")["choices"][0];
        assert_eq!(last["text"], plain["choices"][0]["text"], "{asked}");
        let most = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str());
        let masks = most.map(|text| text.chars().filter(|c| *c == MASK).count()).max();
        assert!(masks <= Some(32), "{chunks:?}");
    }
}

/// The MASK token of raw ids is a hole to the model.
#[test]
fn a_mask_token_in_a_prompt_is_refused() {
    let server = Server::start(&[]);
    let info = server.get("/server_info").is(200).json();
    let mask = &info["block_diffusion"]["mask_token_id"];
    let body = json!({"prompt": [5, mask, 6], "max_tokens": 4, "decode_mode": "iterative"});
    let error = server.post("/v1/completions", &body).is(400).json();
    assert_eq!(error["error"]["param"], "prompt", "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("MASK token"), "{error}");
    let plain = with(body, &json!({"decode_mode": "ar"}));
    server.post("/v1/completions", &plain).is(200);
}

/// Preempted texts decode a block again, which no snapshot shows.
#[test]
fn snapshots_of_preempted_texts_only_gain() {
    let cache = ["--kv-tokens", "128", "--kv-dtype", "f32", "--context", "96"];
    let server = Server::start(&[&["-m", NEMOTRON][..], &cache].concat());
    let prompts = ["anna likes the red", "ben sees a blue bird. a", "dan ", "cleo helps a"];
    let body = |prompt: &str| {
        let mode = json!({"decode_mode": "iterative", "max_tokens": 50, "temperature": 0});
        with(json!({"prompt": prompt}), &mode)
    };
    let alone = prompts.map(|prompt| {
        let answer = server.post("/v1/completions", &body(prompt)).is(200).json();
        answer["choices"][0]["text"].as_str().expect("text").to_owned()
    });
    std::thread::scope(|scope| {
        for (prompt, whole) in prompts.iter().zip(&alone) {
            let (server, body) = (&server, &body);
            scope.spawn(move || {
                let asked = with(body(prompt), &json!({"stream": true, "diffusing": true}));
                let chunks = server.post("/v1/completions", &asked).is(200).chunks();
                let text = |chunk: &Value| chunk["choices"][0]["text"].as_str().unwrap().to_owned();
                let texts: Vec<String> = chunks.iter().map(text).collect();
                assert_eq!(texts.last(), Some(whole));
                let known = texts.iter().map(|text| text.split(MASK).next().unwrap_or_default());
                let known: Vec<&str> = known.collect();
                assert!(known.windows(2).all(|two| two[1].starts_with(two[0])), "{texts:?}");
                assert!(known.iter().all(|known| whole.starts_with(known)), "{texts:?}");
            });
        }
    });
}

#[test]
fn what_has_no_snapshots_is_refused_by_name() {
    let server = Server::start(&[]);
    let refused = |path: &str, body: Value, param: &str| {
        let error = server.post(path, &body).is(400).json();
        // Every API has its own form of errors.
        let text = error.to_string();
        assert!(text.contains(param), "{path} {body}: {error}");
    };
    let plain = json!({"prompt": "Tom", "max_tokens": 4, "diffusing": true});
    refused("/v1/completions", plain.clone(), "set `stream`");
    for (field, value) in [
        ("logprobs", json!(1)),
        ("echo", json!(true)),
        ("return_token_ids", json!(true)),
        ("return_tokens_as_token_ids", json!(true)),
        ("diffusing", json!("yes")),
    ] {
        let body = with(with(plain.clone(), &json!({"stream": true})), &json!({field: value}));
        refused("/v1/completions", body, field);
    }
    let chat = ask("Hi", json!({"diffusing": true, "stream": true, "max_tokens": 4}));
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    for (field, value) in [("logprobs", json!(true)), ("tools", json!([tool]))] {
        refused("/v1/chat/completions", with(chat.clone(), &json!({field: value})), field);
    }
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for (path, body) in [
        ("/completion", json!({"prompt": "Tom", "n_predict": 4})),
        ("/infill", json!({"input_prefix": "a", "input_suffix": "b", "n_predict": 2})),
        ("/v1/responses", json!({"input": "Hi"})),
        ("/v1/messages", json!({"messages": messages, "max_tokens": 4})),
        ("/api/chat", json!({"model": "default", "messages": messages})),
        ("/api/generate", json!({"model": "default", "prompt": "Hi"})),
    ] {
        let asked = json!({"stream": true, "diffusing": true});
        refused(path, with(body, &asked), "diffusing");
    }
}
