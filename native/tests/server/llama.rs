//! llama-server's own API over real connections, and holes between two texts.

use crate::common::model::write_with;
use crate::common::server::Server;
use serde_json::{Value, json};

const PROMPT: &str = "Once upon a time";

/// Returns a request to `/completion` at temperature 0 with additional fields.
fn ask(more: Value) -> Value {
    let mut body = json!({"prompt": PROMPT, "temperature": 0, "n_predict": 16});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Returns the text that OpenAI's API gives with these fields.
fn want(server: &Server, more: Value) -> String {
    let mut body = json!({"prompt": PROMPT, "temperature": 0, "max_tokens": 16});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = server.post("/v1/completions", &body).is(200).json();
    answer["choices"][0]["text"].as_str().unwrap().to_string()
}

#[test]
fn completion_answers_as_openais_api() {
    let server = Server::start(&[]);
    let text = want(&server, json!({}));
    for path in ["/completion", "/completions"] {
        let answer = server.post(path, &ask(json!({"return_tokens": true}))).is(200).json();
        assert_eq!(answer["content"], text);
        assert_eq!((&answer["stop"], &answer["stop_type"]), (&json!(true), &json!("limit")));
        assert_eq!((&answer["tokens_predicted"], &answer["index"]), (&json!(16), &json!(0)));
        assert_eq!(answer["tokens"].as_array().unwrap().len(), 16);
        assert_eq!(answer["prompt"], PROMPT);
        assert_eq!(answer["generation_settings"]["n_predict"], 16);
        assert!(answer["timings"]["predicted_per_second"].as_f64().unwrap() > 0.0, "{answer}");
    }
    let reply = server.post("/completion", &ask(json!({"stream": true}))).is(200);
    let events: Vec<Value> =
        reply.events().iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let streamed: String = events.iter().map(|e| e["content"].as_str().unwrap()).collect();
    assert_eq!(streamed, text);
    let (last, parts) = events.split_last().unwrap();
    assert_eq!((&last["stop"], &last["tokens_predicted"]), (&json!(true), &json!(16)));
    assert!(parts.len() > 5 && parts.iter().all(|part| part["stop"] == false));

    let word = &text[text.len() / 2..][..4];
    let stopped = server.post("/completion", &ask(json!({"stop": [word]}))).is(200).json();
    assert_eq!(stopped["content"], text.split(word).next().unwrap());
    assert_eq!((&stopped["stop_type"], &stopped["stopping_word"]), (&json!("word"), &json!(word)));
    let several = json!({"prompt": ["Once upon", [69, 872]], "n_predict": 4, "temperature": 0});
    let answers = server.post("/completion", &several).is(200).json();
    assert_eq!(answers.as_array().unwrap().len(), 2);
    assert_eq!(answers[1]["tokens_evaluated"], 2);
    let mixed = json!({"prompt": [69, 872, " fox"], "n_predict": 4, "temperature": 0});
    let answer = server.post("/completion", &mixed).is(200).json();
    assert_eq!(answer["tokens_evaluated"], 3, "{answer}");
    let fields = ask(json!({"response_fields": ["content", "generation_settings/n_predict"]}));
    let answer = server.post("/completion", &fields).is(200).json();
    assert_eq!(answer, json!({"content": text, "generation_settings/n_predict": 16}));
}

#[test]
fn options_of_completion_are_honored() {
    let server = Server::start(&[]);
    let complete = |more: Value| server.post("/completion", &ask(more)).is(200).json();
    let scored = complete(json!({"n_probs": 3}));
    let tokens = scored["completion_probabilities"].as_array().unwrap();
    assert_eq!(tokens.len(), 16);
    assert!(tokens.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 3));
    assert!(tokens.iter().all(|token| token["id"] == token["top_logprobs"][0]["id"]), "greedy");
    let first = &tokens[0]["id"];
    let biased = complete(json!({"logit_bias": [[first, false]], "n_probs": 1}));
    assert_ne!(&biased["completion_probabilities"][0]["id"], first);
    let by_text = complete(json!({"logit_bias": [[tokens[0]["token"], false]], "n_probs": 1}));
    assert_ne!(&by_text["completion_probabilities"][0]["id"], first);
    let schema = json!({"type": "object", "properties": {"n": {"enum": [1, 2]}},
                        "required": ["n"], "additionalProperties": false});
    let answer = complete(json!({"json_schema": schema, "n_predict": 200}));
    let value: Value = serde_json::from_str(answer["content"].as_str().unwrap()).expect("JSON");
    assert!(value["n"] == 1 || value["n"] == 2, "{value}");
    let seeded = |seed: u64| complete(json!({"temperature": 1.5, "seed": seed}))["content"].clone();
    assert_eq!(seeded(3), seeded(3));
    assert_ne!(seeded(3), seeded(4));
    let outputs = complete(json!({"n_cmpl": 2, "temperature": 1.5, "seed": 3}));
    assert_eq!(outputs.as_array().unwrap().len(), 2);
    assert_eq!((&outputs[0]["content"], &outputs[1]["content"]), (&seeded(3), &seeded(4)));

    let error = |path: &str, more: Value, status: u16, part: &str| {
        let reply = server.post(path, &ask(more)).is(status).json();
        let error = &reply["error"];
        assert_eq!(error["code"], status, "{reply}");
        assert!(error["type"].is_string(), "{reply}");
        assert!(error["message"].as_str().unwrap().contains(part), "no {part:?} in {reply}");
    };
    error("/completion", json!({"prompt": {"image": 1}}), 400, "prompt");
    error("/completion", json!({"prompt": [1, [2]]}), 400, "prompt");
    error("/completion", json!({"n_probs": 1000}), 400, "n_probs");
    error("/completion", json!({"logit_bias": [["x", "y"]]}), 400, "logit_bias");
    error("/completion", json!({"lora": [{"id": 0, "scale": 1}]}), 400, "lora");
    error("/completion", json!({"samplers": ["infill"]}), 400, "infill");
    error("/completion", json!({"t_max_predict_ms": "x"}), 400, "t_max_predict_ms");
    error("/completion", json!({"prompt": [1, 99999]}), 400, "99999");
    let media = json!({"prompt_string": "a", "multimodal_data": ["aGk="]});
    error("/completion", json!({"prompt": media}), 400, "multimodal_data");
    error("/completion", json!({"prompt": "fox ".repeat(4000)}), 400, "");
    error("/lora-adapters", json!({}), 501, "adapters");
}

#[test]
fn prompts_are_objects_too() {
    let server = Server::start(&[]);
    let complete = |prompt: Value| {
        let answer = server.post("/completion", &ask(json!({"prompt": prompt}))).is(200).json();
        answer["content"].clone()
    };
    let object = json!({"prompt_string": PROMPT});
    let want = complete(PROMPT.into());
    assert_eq!(complete(object.clone()), want);
    let several = ask(json!({"prompt": [object, PROMPT, [69, "x", 872], [69, 872]]}));
    let answers = server.post("/completion", &several).is(200).json();
    assert_eq!(answers.as_array().unwrap().len(), 4, "{answers}");
    assert_eq!((&answers[0]["content"], &answers[1]["content"]), (&want, &want));
    assert_eq!(
        (&answers[2]["tokens_evaluated"], &answers[3]["tokens_evaluated"]),
        (&json!(3), &json!(2))
    );

    let embed = |input: Value| {
        let reply = server.post("/v1/embeddings", &json!({"input": input})).is(200).json();
        reply["data"].as_array().unwrap().iter().map(|d| d["embedding"].clone()).collect::<Vec<_>>()
    };
    let one = embed(json!("a fox"));
    let content =
        json!({"content": [{"type": "text", "text": "a "}, {"type": "text", "text": "fox"}]});
    assert_eq!(embed(content.clone()), one);
    let all = embed(json!(["a fox", {"prompt_string": "a fox"}, content, [69, "x"]]));
    assert_eq!(all.len(), 4);
    assert_eq!(all[..3], [one.clone(), one.clone(), one].concat());
}

#[test]
fn prompts_that_are_too_long_get_llama_servers_numbers() {
    let server = Server::start(&["--context", "128"]);
    let long = "fox ".repeat(200);
    let chat = json!({"messages": [{"role": "user", "content": long}]});
    let completion = json!({"prompt": long});
    for (path, body) in [("/completion", &completion), ("/chat/completions", &chat)] {
        let reply = server.post(path, body).is(400).json();
        let error = &reply["error"];
        assert_eq!(
            (&error["type"], &error["n_ctx"]),
            (&json!("exceed_context_size_error"), &json!(128))
        );
        assert!(error["n_prompt_tokens"].as_u64().unwrap() > 128, "{reply}");
    }
    let reply = server.post("/chat/completions", &chat).is(400).json();
    assert_eq!(reply["error"]["code"], "context_length_exceeded", "OpenAI's clients read it");
    let reply = server.post("/v1/chat/completions", &chat).is(400).json();
    assert_eq!(reply["error"]["type"], "invalid_request_error");
}

#[test]
fn the_first_chunk_of_a_chat_has_the_apis_own_form() {
    let server = Server::start(&[]);
    let chat =
        json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "stream": true});
    for (path, content) in [("/chat/completions", Value::Null), ("/v1/chat/completions", json!(""))]
    {
        let first = server.post(path, &chat).is(200).chunks().remove(0);
        let delta = json!({"role": "assistant", "content": content});
        assert_eq!(first["choices"][0]["delta"], delta, "{path}");
    }
}

#[test]
fn fields_of_editors_are_honored() {
    let server = Server::start(&[]);
    let complete = |more: Value| server.post("/completion", &ask(more)).is(200).json();
    let drawn = |more: Value| {
        let mut body = json!({"temperature": 1.5, "seed": 5, "top_k": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        complete(body)["content"].clone()
    };
    let best = complete(json!({}))["content"].clone();
    assert_eq!(drawn(json!({})), best, "top_k is 1");
    assert_eq!(drawn(json!({"samplers": ["top_k", "temperature"]})), best);
    assert_ne!(drawn(json!({"samplers": ["temperature"]})), best, "top_k is off");
    assert_ne!(drawn(json!({"samplers": "t"})), best);
    let infill = json!({"samplers": ["top_k", "top_p", "infill"], "top_k": 40, "n_predict": 300});
    assert_eq!(complete(infill)["stop_type"], "eos", "it ends where no text is likely");

    let held =
        json!({"samplers": ["top_k", "infill"], "top_k": 40, "grammar": "root ::= [a-z]{20}"});
    let held = complete(held)["content"].as_str().expect("text").to_string();
    assert!(held.bytes().all(|b| b.is_ascii_lowercase()) && !held.is_empty(), "{held:?}");

    let code = "root ::= \"a:\\n    b\\nc\\n\"";
    let indented = complete(json!({"grammar": code, "n_indent": 4}));
    assert_eq!(
        (&indented["content"], &indented["stop_type"]),
        (&json!("a:\n    b\n"), &json!("limit"))
    );
    let streamed = ask(json!({"grammar": code, "n_indent": 4, "stream": true}));
    let events = server.post("/completion", &streamed).is(200).events();
    let parts = events.iter().map(|event| serde_json::from_str::<Value>(event).expect("JSON"));
    let text: String = parts.map(|part| part["content"].as_str().unwrap().to_string()).collect();
    assert_eq!(text, "a:\n    b\n");

    // A line is done after the first millisecond, but 300 tokens are not.
    let lines = "root ::= (\"fox\\n\"){100}";
    let timed = complete(json!({"grammar": lines, "n_predict": 300, "t_max_predict_ms": 1}));
    assert_eq!(timed["stop_type"], "limit");
    assert!(timed["tokens_predicted"].as_u64().unwrap() < 300, "{timed}");
    assert!(timed["content"].as_str().unwrap().ends_with("fox\n"), "{timed}");
}

#[test]
fn properties_and_other_paths() {
    let server = Server::start(&["--max-sequences", "3"]);
    let props = server.get("/props").is(200).json();
    assert_eq!(
        (&props["total_slots"], &props["default_generation_settings"]["n_ctx"]),
        (&json!(3), &json!(512))
    );
    assert!(props["chat_template"].as_str().unwrap().contains("messages"));
    let slots = server.get("/slots").is(200).json();
    assert_eq!(slots.as_array().unwrap().len(), 3);
    assert_eq!((&slots[2]["id"], &slots[2]["is_processing"]), (&json!(2), &json!(false)));
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}], "temperature": 0,
                      "max_tokens": 8});
    let want = server.post("/v1/chat/completions", &chat).is(200).json();
    let got = server.post("/chat/completions", &chat).is(200).json();
    assert_eq!(got["choices"][0]["message"], want["choices"][0]["message"]);
    let models = server.get("/models").is(200).json();
    assert_eq!(models, server.get("/v1/models").is(200).json());
    let meta = &models["data"][0]["meta"];
    assert_eq!(meta["n_ctx_train"], 512);
    for (field, least) in
        [("n_params", 1_000_000), ("n_vocab", 1000), ("n_embd", 64), ("size", 1_000_000)]
    {
        assert!(meta[field].as_u64().is_some_and(|n| n > least), "{field}: {meta}");
    }
    let text = json!({"content": "a fox"});
    let embedding = server.post("/embedding", &text).is(200).json();
    let want = server.post("/v1/embeddings", &json!({"input": "a fox"})).is(200).json();
    assert_eq!(embedding[0]["embedding"][0], want["data"][0]["embedding"]);
    let body = json!({"content": "a fox é", "with_pieces": true, "add_special": false});
    let pieces = server.post("/tokenize", &body).is(200).json();
    let bytes = |piece: &Value| match piece.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => serde_json::from_value(piece.clone()).expect("bytes"),
    };
    let all: Vec<u8> =
        pieces["tokens"].as_array().unwrap().iter().flat_map(|t| bytes(&t["piece"])).collect();
    assert_eq!(String::from_utf8(all).unwrap(), "a fox é");
}

#[test]
fn a_denoising_model_fills_holes() {
    let server = Server::start(&[]);
    let body = json!({"input_prefix": "Tom had a red", "input_suffix": " ball.", "temperature": 0,
                      "n_predict": 3});
    let fill = server.post("/infill", &body).is(200).json();
    assert!((1..=3).contains(&fill["tokens_predicted"].as_u64().unwrap()), "{fill}");
    assert_eq!(fill["stop_type"], "eos", "a full hole is finished");
    let hole = json!({"prompt": "Tom had a red", "suffix": " ball.", "temperature": 0,
                      "max_tokens": 3});
    let same = server.post("/v1/completions", &hole).is(200).json();
    assert_eq!(same["choices"][0]["text"], fill["content"]);
    assert_eq!(same["choices"][0]["finish_reason"], "stop");
    let ollama = json!({"model": "default", "prompt": "Tom had a red", "suffix": " ball.",
                        "stream": false, "options": {"temperature": 0, "num_predict": 3}});
    let same = server.post("/api/generate", &ollama).is(200).json();
    assert_eq!(same["response"], fill["content"]);
    // What follows decides what is in the hole.
    let mut fills: Vec<Value> = [
        " ball.",
        " dragon slept. The end.",
        " the red ball and was very happy.",
    ]
    .iter()
    .map(|suffix| {
        let body = json!({"input_prefix": "Tom was a boy. He found a", "input_suffix": suffix,
                              "temperature": 0, "n_predict": 4, "ignore_eos": true});
        server.post("/infill", &body).is(200).json()["content"].clone()
    })
    .collect();
    fills.dedup();
    assert!(fills.len() > 1, "{fills:?}");
    let mut long = hole.clone();
    long["max_tokens"] = 100.into();
    let error = server.post("/v1/completions", &long).is(400).json();
    assert_eq!(error["error"]["param"], "suffix");
    assert!(error["error"]["message"].as_str().unwrap().contains("fit"), "{error}");
    let mut autoregressive = hole;
    autoregressive["decode_mode"] = "ar".into();
    let error = server.post("/v1/completions", &autoregressive).is(400).json();
    assert_eq!(error["error"]["param"], "decode_mode");
}

#[test]
fn tokens_for_holes_stand_around_prefix_and_suffix() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fim.wf.safetensors");
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}";
    let names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"];
    write_with(&path, template, &names);
    let server = Server::start(&["-m", path.to_str().unwrap()]);
    let body = json!({"input_prefix": "def f(", "input_suffix": "return 1", "n_predict": 5,
                      "temperature": 0, "input_extra": [{"filename": "a.py", "text": "x = 1"}],
                      "prompt": "self"});
    let fill = server.post("/infill", &body).is(200).json();
    let order = [
        "<|file_sep|>a.py\nx = 1<|file_sep|>",
        "<|fim_prefix|>def f(",
        "<|fim_suffix|>return 1",
        "<|fim_middle|>self",
    ];
    let prompt = fill["prompt"].as_str().unwrap();
    let places: Vec<_> = order.iter().map(|part| prompt.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{prompt}");
    let name = server.get("/v1/models").json()["data"][0]["id"].clone();
    let show = server.post("/api/show", &json!({"model": name})).is(200).json();
    assert!(show["capabilities"].as_array().unwrap().contains(&json!("insert")), "{show}");
}

#[test]
fn slots_are_saved_and_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["--slot-save-path", folder.path().to_str().unwrap(), "--max-sequences", "2"];
    let first = Server::start(&args);
    let prompt = "Tell me a story about a fox who lives in the forest. ".repeat(6);
    let body = |slot: i64| {
        json!({"prompt": prompt, "temperature": 0, "n_predict": 20,
                                  "id_slot": slot, "seed": 1})
    };
    let want = first.post("/completion", &body(1)).is(200).json();
    assert_eq!(want["id_slot"], 1);
    let file = json!({"filename": "fox.slot"});
    let saved = first.post("/slots/1?action=save", &file).is(200).json();
    let positions = saved["n_saved"].as_u64().unwrap();
    assert!(positions >= 64 && positions.is_multiple_of(32), "{saved}");
    let size = std::fs::metadata(folder.path().join("fox.slot")).expect("a file").len();
    assert_eq!(saved["n_written"], size);
    drop(first);

    let server = Server::start(&args);
    let cached = |server: &Server| {
        let body = json!({"prompt": prompt, "temperature": 0, "max_tokens": 1});
        let answer = server.post("/v1/completions", &body).is(200).json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let restored = server.post("/slots/0?action=restore", &file).is(200).json();
    assert_eq!(restored["n_restored"], positions);
    assert_eq!(restored["n_read"], size);
    assert!(cached(&server) >= 64, "the prompt is cached");
    let answer = server.post("/completion", &body(0)).is(200).json();
    assert_eq!(answer["content"], want["content"]);
    let erased = server.send("POST", "/slots/0?action=erase", "", "").is(200).json();
    assert!(erased["n_erased"].as_u64().unwrap() > 64, "{erased}");
    assert_eq!(cached(&server), 0);

    let error = |path: &str, name: &str, status: u16, part: &str| {
        let reply = server.post(path, &json!({"filename": name})).is(status).json();
        assert!(reply["error"]["message"].as_str().unwrap().contains(part), "{reply}");
    };
    error("/slots/9?action=save", "a", 400, "below 2");
    error("/slots/0?action=fly", "a", 400, "action");
    for name in ["", "../a", "a/b", ".a", "a\u{0}"] {
        error("/slots/0?action=save", name, 400, "filename");
        error("/slots/0?action=restore", name, 400, "filename");
    }
    error("/slots/0?action=restore", "none", 400, "cannot read");
    let bytes = std::fs::read(folder.path().join("fox.slot")).expect("a file");
    let mut other = bytes.clone();
    other[40] ^= 1;
    for (name, bytes, part) in [
        ("short", &bytes[..bytes.len() - 1], "damaged"),
        ("head", &bytes[..10], "damaged"),
        ("text", &b"hello"[..], "damaged"),
        ("kind", &b"hello, hello"[..], "another kind"),
        ("other", &other[..], "damaged"),
    ] {
        std::fs::write(folder.path().join(name), bytes).expect("written");
        error("/slots/0?action=restore", name, 400, part);
    }
    let closed = Server::start(&[]);
    closed.post("/slots/0?action=save", &file).is(501);
    let floats = Server::start(&[&args[..], &["--kv-dtype", "f32"]].concat());
    let refused = floats.post("/slots/0?action=restore", &file).is(400).json();
    assert!(refused["error"]["message"].as_str().unwrap().contains("another model"), "{refused}");
}

/// A model with recurrent states continues after a restart where it was.
#[test]
fn slots_of_a_hybrid_are_saved_and_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().unwrap();
    let args = ["--synthetic", "tiny-hybrid", "-c", "4096", "--slot-save-path", path];
    let chat = |server: &Server, messages: &[Value]| {
        let body = json!({"messages": messages, "temperature": 0, "max_tokens": 60});
        let answer = server.post("/v1/chat/completions", &body).is(200).json();
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        let prompt = answer["usage"]["prompt_tokens"].as_u64().unwrap();
        (answer["choices"][0]["message"]["content"].clone(), cached, prompt)
    };
    let question = |text: String| json!({"role": "user", "content": text});
    let mut messages = vec![question("Tell me of the fox in the forest. ".repeat(20))];
    let file = json!({"filename": "fox.slot"});
    let first = Server::start(&args);
    let (answer, _, prompt) = chat(&first, &messages);
    let saved = first.post("/slots/0?action=save", &file).is(200).json();
    assert!(saved["n_saved"].as_u64().unwrap() + 64 > prompt, "{saved}");
    messages.extend([json!({"role": "assistant", "content": answer}), question("Go on.".into())]);
    let (want, at_once, _) = chat(&first, &messages);
    drop(first);

    let server = Server::start(&args);
    let restored = server.post("/slots/0?action=restore", &file).is(200).json();
    assert_eq!(restored["n_restored"], saved["n_saved"]);
    assert!(server.get("/slots").json()[0]["n_states"].as_u64() > Some(1));
    let (content, cached, _) = chat(&server, &messages);
    assert_eq!((content, cached), (want, at_once));
    assert!(cached + 64 > prompt, "{cached} of {prompt}");

    let path = folder.path().join("fox.slot");
    let mut bytes = std::fs::read(&path).expect("a file");
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let refused = server.post("/slots/0?action=restore", &file).is(400).json();
    assert!(refused["error"]["message"].as_str().unwrap().contains("damaged"), "{refused}");
}

/// A prompt cache belongs to the key that saved it.
#[test]
fn slots_of_other_keys_stay_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().unwrap();
    let args = ["--slot-save-path", path, "--api-key", "ann", "--api-key", "bob"];
    let server = Server::start(&args);
    let post = |server: &Server, key: &str, path: &str, body: Value| {
        let headers = format!("authorization: Bearer {key}\r\n");
        server.send("POST", path, &headers, &body.to_string())
    };
    let file = || json!({"filename": "fox.slot"});
    let prompt = "Tell me a story about a fox who lives in the forest. ".repeat(6);
    let body = |text: &str| json!({"prompt": text, "n_predict": 8, "id_slot": 0});
    post(&server, "ann", "/completion", body(&prompt)).is(200);
    post(&server, "ann", "/slots/0?action=save", file()).is(200);
    let refused = post(&server, "bob", "/slots/0?action=restore", file()).is(400).json();
    assert!(refused["error"]["message"].as_str().unwrap().contains("cannot read"), "{refused}");
    // Bob's file of the same name does not replace hers.
    post(&server, "bob", "/completion", body(&prompt.replace("fox", "owl"))).is(200);
    post(&server, "bob", "/slots/0?action=save", file()).is(200);
    drop(server);
    let server = Server::start(&["--slot-save-path", path, "--api-key", "bob", "--api-key", "ann"]);
    post(&server, "ann", "/slots/0?action=restore", file()).is(200);
    let headers = "authorization: Bearer ann\r\n";
    let body = json!({"prompt": prompt, "max_tokens": 1}).to_string();
    let answer = server.send("POST", "/v1/completions", headers, &body).is(200).json();
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached >= 64, "her own cache is there after a restart: {answer}");
}
