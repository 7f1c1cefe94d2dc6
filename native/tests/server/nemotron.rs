//! Nemotron-Labs-Diffusion: requests choose between its three ways of decoding, at the same time.

use crate::common::server::Server;
use serde_json::{Value, json};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/models/nemotron");

#[test]
fn requests_of_all_modes_share_passes() {
    // Two pages of keys and values more than one text needs: texts are preempted.
    let cache = ["--kv-tokens", "128", "--kv-dtype", "f32", "--context", "96"];
    let server = Server::start(&[&["-m", MODEL][..], &cache].concat());
    let text = |prompt: &str, more: &Value| {
        let mut body = json!({"prompt": prompt, "max_tokens": 50, "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/completions", &body).is(200).json()["choices"][0]["text"].clone()
    };
    let prompts = ["anna likes the red", "ben sees a blue bird. a", "dan ", "cleo helps a"];
    let modes = [
        json!({"decode_mode": "ar"}),
        json!({"decode_mode": "verify", "row_cost": 0}),
        json!({"decode_mode": "iterative", "threshold": 0.9}),
        json!({"decode_mode": "iterative", "selector": "product", "threshold": 0.5}),
    ];
    let cases: Vec<(&str, &Value)> =
        prompts.iter().flat_map(|prompt| modes.iter().map(move |mode| (*prompt, mode))).collect();
    let alone: Vec<Value> = cases.iter().map(|(prompt, mode)| text(prompt, mode)).collect();
    for answers in alone.chunks(modes.len()) {
        assert_eq!(answers[0], answers[1], "`verify` gives the text of `ar`");
        assert!(answers.iter().all(|answer| answer.as_str().is_some_and(|text| text.len() > 10)));
    }
    let together: Vec<Value> = std::thread::scope(|scope| {
        let ask = &text;
        let asked: Vec<_> =
            cases.iter().map(|&(prompt, mode)| scope.spawn(move || ask(prompt, mode))).collect();
        asked.into_iter().map(|thread| thread.join().expect("answered")).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn holes_are_filled_within_one_block() {
    let server = Server::start(&["-m", MODEL]);
    let fill = |tokens: usize| {
        let mode = json!({"prompt": "ben sees the ", "suffix": "cat.", "max_tokens": tokens,
            "temperature": 0, "decode_mode": "iterative"});
        server.post("/v1/completions", &mode)
    };
    let found = fill(4).is(200).json();
    assert_eq!(found["choices"][0]["text"].as_str().map(str::len), Some(4), "{found}");
    let refused = fill(5).is(400).json();
    assert_eq!(refused["error"]["param"], "suffix", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("at most 8 fit"), "{refused}");
}

#[test]
fn grammars_log_probabilities_and_cancelled_texts_in_every_mode() {
    let server = Server::start(&["-m", MODEL, "--kv-dtype", "f32", "--row-cost", "0"]);
    let modes = ["ar", "verify", "iterative"];
    let body = |mode: &str, more: Value| {
        let mut body = json!({"prompt": "anna likes the", "decode_mode": mode, "temperature": 0,
            "max_tokens": 40});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let answer = |mode: &str, more: Value| {
        let answer = server.post("/v1/completions", &body(mode, more)).is(200).json();
        (answer["choices"][0]["text"].clone(), answer["choices"][0]["logprobs"].clone())
    };
    let grammar = json!({"regex": "( (red|blue) (cat|bird)){3}\\."});
    let texts = modes.map(|mode| answer(mode, grammar.clone()).0);
    assert_eq!(texts[0], texts[1], "`verify` gives the text of `ar`");
    for text in texts.iter().map(|text| text.as_str().expect("text")) {
        let words: Vec<&str> = text.strip_suffix('.').expect("a dot").split(' ').skip(1).collect();
        assert_eq!(words.len(), 6, "{text}");
        assert!(words.iter().all(|word| ["red", "blue", "cat", "bird"].contains(word)), "{text}");
    }
    let scored = modes.map(|mode| answer(mode, json!({"logprobs": 2, "max_tokens": 20})).1);
    assert_eq!(scored[0], scored[1]);
    for (mode, logprobs) in modes.iter().zip(&scored) {
        let values = logprobs["token_logprobs"].as_array().expect("values");
        assert!(!values.is_empty() && values.iter().all(Value::is_number), "{mode}: {logprobs}");
    }
    // Clients that leave in the middle of a block change no other text.
    let before = modes.map(|mode| answer(mode, json!({})).0);
    for mode in modes {
        let endless = json!({"stream": true, "max_tokens": 400, "ignore_eos": true});
        let body = body(mode, endless).to_string();
        drop(server.open("POST", "/v1/completions", "", &body));
    }
    assert_eq!(modes.map(|mode| answer(mode, json!({})).0), before);
    server.idle();
}
