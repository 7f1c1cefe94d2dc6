//! Fields of requests: each one is honored or refused by name, and unknown ones are named.

use crate::common::server::{Reply, Server, ask};
use serde_json::{Value, json};

fn text(reply: Reply) -> String {
    let answer = reply.is(200).json();
    let message = &answer["choices"][0]["message"]["content"];
    message.as_str().unwrap_or_else(|| panic!("{answer}")).to_string()
}

/// Fields that constrain the output, under the names of all servers.
#[test]
fn every_name_of_a_constraint_is_honored() {
    let server = Server::start(&[]);
    let schema = json!({"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"]});
    let gbnf = "root ::= \"x\" [0-9]{2} end\nend ::= \"!\" | \"?\"";
    let lark = "start: \"x\" /[0-9][0-9]/ (\"!\" | \"?\")";
    let json = "{\"a\": 7}";
    for (fields, want) in [
        (json!({"json_schema": schema}), json),
        (json!({"guided_json": schema}), json),
        (json!({"json_schema": schema.to_string()}), json),
        (json!({"structured_outputs": {"json": schema}}), json),
        (json!({"response_format": {"type": "json_object", "schema": schema}}), json),
        (json!({"response_format": {"type": "json_schema", "schema": schema}}), json),
        (json!({"regex": "x11!"}), "x11!"),
        (json!({"structured_outputs": {"regex": "x11!"}}), "x11!"),
        (json!({"structured_outputs": {"choice": ["x11!"]}}), "x11!"),
        (json!({"grammar": gbnf}), ""),
        (json!({"ebnf": gbnf}), ""),
        (json!({"guided_grammar": gbnf}), ""),
        (json!({"guided_grammar": lark}), ""),
        (json!({"structured_outputs": {"grammar": gbnf}}), ""),
    ] {
        let got = text(server.chat(&ask("Hi!", fields.clone())));
        match want {
            "" => assert!(got.len() == 4 && got.starts_with('x'), "{fields}: {got}"),
            want => assert_eq!(got, want, "{fields}"),
        }
        let mut prompt = fields.clone();
        prompt["prompt"] = "Once".into();
        prompt["max_tokens"] = 30.into();
        let completed = server.post("/v1/completions", &prompt).is(200).json();
        let got = completed["choices"][0]["text"].as_str().expect("text").to_string();
        assert!(
            if want.is_empty() { got.starts_with('x') } else { got == want },
            "{fields}: {got}"
        );
    }
    for (fields, param) in [
        (json!({"grammar": "root ::= ("}), "grammar"),
        (json!({"regex": "a", "json_schema": {}}), "response_format"),
        (json!({"structured_outputs": {}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": "a", "choice": ["b"]}}), "structured_outputs"),
        (json!({"structured_outputs": {"structural_tag": "x"}}), "structured_outputs"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format"),
    ] {
        let error = server.chat(&ask("Hi!", fields.clone())).is(400).json();
        let named = error["error"]["param"].as_str().unwrap_or_default();
        assert!(named.starts_with(param), "{fields}: {error}");
    }
}

/// Schemas with `properties` admit no other members.
#[test]
fn objects_are_closed() {
    let server = Server::start(&[]);
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}});
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": schema}}]);
    for seed in 0..6 {
        let warm = |more: Value| {
            let mut body = ask("Tell me!", more);
            body["temperature"] = 2.into();
            body["seed"] = seed.into();
            body["max_tokens"] = 60.into();
            body
        };
        let answer = text(server.chat(&warm(json!({"json_schema": schema}))));
        assert!(["{}", "{\"a\": true}", "{\"a\": false}"].contains(&answer.as_str()), "{answer}");
        // A named function is called once, also with `parallel_tool_calls`.
        let choice = json!({"type": "function", "function": {"name": "f"}});
        let body =
            warm(json!({"tools": tools, "tool_choice": choice, "parallel_tool_calls": true}));
        let answer = server.chat(&body).is(200).json();
        let calls = answer["choices"][0]["message"]["tool_calls"].as_array().expect("calls");
        assert_eq!(calls.len(), 1, "{answer}");
        let arguments = calls[0]["function"]["arguments"].as_str().expect("text");
        assert!(["{}", "{\"a\": true}", "{\"a\": false}"].contains(&arguments), "{arguments}");
    }
}

/// Sends a request for a story with further fields.
fn story(server: &Server, more: Value) -> Reply {
    let mut body = ask("Tell me a story!", json!({"max_tokens": 24, "seed": 3}));
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.chat(&body)
}

#[test]
fn samplers_are_honored_and_drafts_stay_lossless() {
    let server = Server::start(&[]);
    let plain = |more: Value| story(&server, more);
    let warm = |more: Value| {
        let mut more = more;
        more["temperature"] = 1.into();
        text(plain(more))
    };
    let usual = warm(json!({}));
    for sampler in [
        json!({"typical_p": 0.2}),
        json!({"top_n_sigma": 0.05}),
        json!({"xtc_probability": 1, "xtc_threshold": 0.01}),
        json!({"mirostat": 1, "mirostat_tau": 1}),
        json!({"mirostat": 2, "mirostat_tau": 0.5, "mirostat_eta": 0.9}),
    ] {
        let got = warm(sampler.clone());
        assert_ne!(got, usual, "{sampler}");
        assert_eq!(got, warm(sampler.clone()), "{sampler}");
        let mut drafted = sampler.clone();
        drafted["decode_mode"] = "verify".into();
        assert_eq!(got, warm(drafted), "drafts are lossless with {sampler}");
    }
    for (fields, param) in [
        (json!({"mirostat": 3}), "mirostat"),
        (json!({"xtc_probability": 0.5}), "xtc_probability"),
        (json!({"typical_p": 2}), "typical_p"),
        (json!({"dry_multiplier": 1, "dry_base": 0}), "dry_base"),
        (json!({"min_tokens": 30}), "min_tokens"),
        (json!({"stop_token_ids": [99999]}), "stop_token_ids"),
        (json!({"bad_words": [" "]}), "bad_words"),
        (json!({"truncate_prompt_tokens": 0}), "truncate_prompt_tokens"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"),
        (json!({"prompt_logprobs": 1, "stream": true}), "prompt_logprobs"),
    ] {
        let error = plain(fields.clone()).is(400).json();
        assert_eq!(error["error"]["param"], param, "{fields}: {error}");
    }
}

#[test]
fn dry_ends_repetitions() {
    let server = Server::start(&[]);
    // A token that prolongs a repetition wins by its bias alone, and loses with DRY.
    let again = "The fox ran. The fox sang. The fox ran. The fox sang. The fox";
    let tokens = server.post("/tokenize", &json!({"prompt": again})).is(200).json();
    let tokens = tokens["tokens"].as_array().expect("ids");
    let (last, before) = tokens.split_last().expect("some");
    let next = &tokens[before.iter().rposition(|token| token == last).expect("repeats") + 1];
    let first = |more: Value| {
        let mut body = json!({"prompt": again, "max_tokens": 1, "temperature": 0,
            "logit_bias": {next.to_string(): 30}, "return_token_ids": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = server.post("/v1/completions", &body).is(200).json();
        answer["choices"][0]["token_ids"][0].clone()
    };
    let dry = json!({"dry_multiplier": 60, "dry_allowed_length": 1});
    assert_eq!((&first(json!({})), &first(dry.clone()) == next), (next, false));
    // A breaker inside the repetition ends it.
    let mut broken = dry;
    broken["dry_sequence_breakers"] = json!([" fox"]);
    assert_eq!(&first(broken), next);
}

#[test]
fn ends_and_bad_words_are_honored() {
    let server = Server::start(&[]);
    let plain = |more: Value| story(&server, more);
    let greedy = text(plain(json!({})));
    let words: Vec<&str> = greedy.split(' ').collect();
    let banned = text(plain(json!({"bad_words": [words[1]]})));
    assert!(!banned.split(' ').any(|word| word == words[1]), "{banned}");
    let ids = |more: Value| {
        let mut more = more;
        more["return_token_ids"] = true.into();
        let answer = plain(more).is(200).json();
        let ids = answer["choices"][0]["token_ids"].as_array().expect("ids").clone();
        (ids, answer)
    };
    let (all, answer) = ids(json!({}));
    assert_eq!(answer["usage"]["completion_tokens"], all.len());
    assert_eq!(
        answer["usage"]["prompt_tokens"],
        answer["prompt_token_ids"].as_array().unwrap().len()
    );
    let (cut, answer) = ids(json!({"stop_token_ids": [all[5]]}));
    let first = all.iter().position(|id| *id == all[5]).unwrap();
    assert_eq!((cut.len(), &answer["choices"][0]["finish_reason"]), (first + 1, &json!("stop")));
    let (later, _) = ids(json!({"stop_token_ids": [all[5]], "min_tokens": 12}));
    assert!(later.len() > 12, "{later:?}");
    assert!(!later[..12].contains(&all[5]));
    let (limited, _) = ids(json!({"max_tokens": null, "n_predict": 5}));
    assert_eq!(limited.len(), 5);
    let streamed = plain(json!({"return_token_ids": true, "stream": true})).is(200).chunks();
    assert!(streamed[0]["prompt_token_ids"].is_array());
    let of_chunk = |chunk: &Value| chunk["choices"][0]["token_ids"].as_array().cloned();
    let streamed: Vec<Value> = streamed.iter().filter_map(of_chunk).flatten().collect();
    assert_eq!(streamed, all);
}

#[test]
fn prompts_are_cut_and_scored() {
    let server = Server::start(&[]);
    let plain = |more: Value| story(&server, more);
    // Only the last tokens of the prompt remain.
    let cut = json!({"truncate_prompt_tokens": 3, "return_token_ids": true});
    let answer = plain(cut).is(200).json();
    assert_eq!(answer["prompt_token_ids"].as_array().unwrap().len(), 3);
    let [last, first] = ["left", "right"].map(|side| {
        let cut = json!({"prompt": [5, 6, 7, 8], "truncate_prompt_tokens": 2, "max_tokens": 1,
                         "truncation_side": side, "return_token_ids": true});
        let answer = server.post("/v1/completions", &cut).is(200).json();
        answer["choices"][0]["prompt_token_ids"].clone()
    });
    assert_eq!((last, first), (json!([7, 8]), json!([5, 6])));
    let answer = plain(json!({"prompt_logprobs": 2})).is(200).json();
    let scores = answer["prompt_logprobs"].as_array().expect("scores");
    assert_eq!(answer["usage"]["prompt_tokens"], scores.len());
    assert!(scores[0].is_null());
    for score in &scores[1..] {
        let entries = score.as_object().expect("an object");
        assert!((2..=3).contains(&entries.len()), "{score}");
        assert!(entries.values().all(|entry| entry["logprob"].as_f64().expect("one") <= 0.0));
    }
}

#[test]
fn log_probabilities_name_tokens_as_vllm_does() {
    let server = Server::start(&[]);
    let body = json!({"prompt": "Once upon", "max_tokens": 4, "temperature": 0, "logprobs": 2,
                      "return_tokens_as_token_ids": true, "return_token_ids": true});
    let answer = server.post("/v1/completions", &body).is(200).json();
    let choice = &answer["choices"][0];
    let ids = choice["token_ids"].as_array().unwrap();
    let names: Vec<String> = ids.iter().map(|id| format!("token_id:{id}")).collect();
    assert_eq!(choice["logprobs"]["tokens"], json!(names));
    for (top, name) in choice["logprobs"]["top_logprobs"].as_array().unwrap().iter().zip(&names) {
        assert!(
            top[name].is_number() && (2..=3).contains(&top.as_object().unwrap().len()),
            "{top}"
        );
    }
    let chat = story(
        &server,
        json!({"logprobs": true, "top_logprobs": 1, "temperature": 0,
                                     "return_tokens_as_token_ids": true}),
    )
    .is(200)
    .json();
    let token = &chat["choices"][0]["logprobs"]["content"][0];
    assert!(token["token"].as_str().unwrap().starts_with("token_id:"), "{token}");
    assert_eq!(token["token"], token["top_logprobs"][0]["token"]);

    // The token itself is there also without alternatives.
    let body = json!({"prompt": "Once upon", "max_tokens": 2, "logprobs": 0});
    let answer = server.post("/v1/completions", &body).is(200).json();
    let logprobs = &answer["choices"][0]["logprobs"];
    let own = logprobs["tokens"][0].as_str().unwrap();
    assert_eq!(logprobs["top_logprobs"][0][own], logprobs["token_logprobs"][0]);
}

#[test]
fn usage_is_streamed_as_vllm_does() {
    let server = Server::start(&[]);
    let usage = |options: Value| {
        let chunks =
            story(&server, json!({"stream": true, "stream_options": options})).is(200).chunks();
        chunks.iter().filter(|chunk| !chunk["usage"].is_null()).count()
    };
    assert_eq!(usage(json!({"continuous_usage_stats": true})), 0);
    assert_eq!(usage(json!({"include_usage": true})), 1);
    assert!(usage(json!({"include_usage": true, "continuous_usage_stats": true})) > 2);
}

#[test]
fn a_last_message_of_the_assistant_is_continued() {
    let server = Server::start(&[]);
    let messages = json!([{"role": "user", "content": "Tell me a story!"},
        {"role": "assistant", "content": "Once upon a time, there was a dragon"}]);
    let body = |more: Value| {
        let mut body = json!({"messages": messages, "temperature": 0, "max_tokens": 8});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let prompt = server.post("/apply-template", &body(json!({}))).is(200).json();
    let prompt = prompt["prompt"].as_str().expect("text");
    assert!(prompt.ends_with("there was a dragon"), "{prompt}");
    let tokenize = |body: Value| server.post("/tokenize", &body);
    let tokens = tokenize(json!({"prompt": prompt, "add_special_tokens": false})).is(200).json();
    let messages = body(json!({}))["messages"].clone();
    let mut talk = json!({"messages": messages});
    assert_eq!(tokenize(talk.clone()).is(200).json()["tokens"], tokens["tokens"]);
    talk["add_generation_prompt"] = true.into();
    assert!(tokenize(talk.clone()).is(200).json()["count"].as_u64() > tokens["count"].as_u64());
    talk["content"] = "and a text".into();
    assert_eq!(tokenize(talk).is(400).json()["error"]["param"], "content");
    let next = text(server.chat(&body(json!({}))));
    let completed = json!({"prompt": prompt, "temperature": 0, "max_tokens": 8});
    let completed = server.post("/v1/completions", &completed).is(200).json();
    assert_eq!(completed["choices"][0]["text"], next.as_str());
    let asked = json!({"continue_final_message": true, "add_generation_prompt": false});
    assert_eq!(text(server.chat(&body(asked.clone()))), next);
    let fresh = text(server.chat(&body(json!({"add_generation_prompt": true}))));
    assert_ne!(fresh, next);
    let whole = format!("Once upon a time, there was a dragon{next}");
    assert_eq!(text(server.chat(&body(json!({"echo": true})))), whole);
    let streamed = server.chat(&body(json!({"echo": true, "stream": true}))).is(200).streamed();
    assert_eq!(streamed, whole);
    let answer = server.post("/v1/messages", &body(json!({}))).is(200).json();
    assert_eq!(answer["content"][0]["text"], next.as_str());
    let both = body(json!({"continue_final_message": true, "add_generation_prompt": true}));
    assert_eq!(server.chat(&both).is(400).json()["error"]["param"], "continue_final_message");
    let user = ask("Hi!", json!({"continue_final_message": true}));
    assert_eq!(server.chat(&user).is(400).json()["error"]["param"], "continue_final_message");
}

#[test]
fn unknown_fields_are_named_and_known_ones_are_refused() {
    let server = Server::start(&[]);
    let body =
        ask("Hi!", json!({"max_tokens": 1, "nonsense": 1, "cache_prompt": true, "user": "u"}));
    for _ in 0..2 {
        let reply = server.chat(&body).is(200);
        let named = reply.head.lines().find_map(|line| line.strip_prefix("x-ignored-fields: "));
        assert_eq!(named, Some("cache_prompt, nonsense"), "{}", reply.head);
    }
    let plain = server.chat(&ask("Hi!", json!({"max_tokens": 1, "n_probs": 0}))).is(200);
    assert!(!plain.head.contains("x-ignored-fields"), "{}", plain.head);
    let long = ask("Hi!", json!({"max_tokens": 1, format!("a\r\nb: {}", "x".repeat(500)): 1}));
    let reply = server.chat(&long).is(200);
    assert!(
        reply.head.contains("x-ignored-fields: ab:xxx") && !reply.head.contains(&"x".repeat(70))
    );
    for (path, field, value) in [
        ("/v1/chat/completions", "use_beam_search", json!(true)),
        ("/v1/chat/completions", "chat_template", json!("x")),
        ("/v1/chat/completions", "skip_special_tokens", json!(false)),
        ("/v1/chat/completions", "repeat_last_n", json!(64)),
        ("/v1/messages", "mcp_servers", json!([{"url": "x"}])),
        ("/v1/responses", "background", json!(true)),
    ] {
        let mut body = ask("Hi!", json!({"max_tokens": 1, "input": "Hi!"}));
        body[field] = value;
        let error = server.post(path, &body).is(400).json();
        let message = error["error"]["message"].as_str().expect("text");
        assert!(message.contains(&format!("`{field}` is not supported")), "{error}");
    }
    server.terminate();
    let log = server.ended().stderr;
    assert_eq!(log.matches("nonsense").count(), 1, "{log}");
}

/// The APIs of llama-server and Ollama name fields without effect as the others do.
#[test]
fn every_api_names_fields_without_effect() {
    let server = Server::start(&[]);
    let chat = json!([{"role": "user", "content": "Hi"}]);
    for (path, body, names) in [
        ("/completion", json!({"prompt": "Hi", "n_predict": 1}), "sparkle"),
        ("/embedding", json!({"content": "Hi"}), "sparkle"),
        (
            "/api/chat",
            json!({"messages": chat, "stream": false, "options": {"num_predict": 1, "num_keep": null, "glow": 1}}),
            "sparkle, options.glow",
        ),
        (
            "/api/generate",
            json!({"prompt": "Hi", "stream": false, "keep_alive": "5m", "images": [], "options": {"num_predict": 1, "glow": 1}}),
            "sparkle, options.glow",
        ),
        ("/api/embed", json!({"input": "Hi", "options": {"temperature": 0}}), "sparkle"),
        ("/v1/embeddings", json!({"input": "Hi", "user": "x"}), "sparkle"),
        ("/pooling", json!({"input": "Hi"}), "sparkle"),
        ("/tokenize", json!({"prompt": "Hi", "add_special": true}), "sparkle"),
        ("/detokenize", json!({"tokens": [5]}), "sparkle"),
        ("/apply-template", json!({"messages": chat}), "sparkle"),
    ] {
        let with = |more: Option<&str>| {
            let mut body = body.clone();
            body["model"] = "default".into();
            if let Some(field) = more {
                body[field] = 1.into();
            }
            server.post(path, &body).is(200).head
        };
        let head = with(Some("sparkle"));
        assert!(head.contains(&format!("x-ignored-fields: {names}\r\n")), "{path}: {head}");
        let own =
            names.strip_prefix("sparkle, ").map(|rest| format!("x-ignored-fields: {rest}\r\n"));
        let head = with(None);
        assert_eq!(head.contains("x-ignored-fields"), own.is_some(), "{path}: {head}");
        assert!(own.is_none_or(|own| head.contains(&own)), "{path}: {head}");
    }
}

/// Errors of types name those of JSON, not of Rust.
#[test]
fn wrong_types_are_named_in_the_words_of_json() {
    let server = Server::start(&[]);
    let chat = "/v1/chat/completions";
    for (path, field, value, part) in [
        (chat, "temperature", json!("hot"), r#"`temperature`: expected a number, not "hot""#),
        (chat, "max_tokens", json!(-1), "`max_tokens`: expected a whole number from 0, not -1"),
        (
            chat,
            "max_tokens",
            json!("x"),
            r#"`max_tokens`: expected a whole number from 0, not "x""#,
        ),
        (chat, "messages", json!(3), "`messages`: expected an array, not 3"),
        (chat, "stream_options", json!(3), "`stream_options`: expected an object, not 3"),
        (chat, "stream", json!(3), "`stream`: expected true or false, not 3"),
        (chat, "stop", json!(3), "`stop`: expected a string or an array of strings, not 3"),
        (
            chat,
            "messages",
            json!([{"content": "Hi"}]),
            "`messages[0]`: the field `role` is missing",
        ),
        (
            chat,
            "messages",
            json!([{"role": "user", "content": 3}]),
            "`messages[0].content`: expected a string or an array of text parts, not 3",
        ),
        (
            chat,
            "response_format",
            json!({"type": "xml"}),
            r#"`response_format.type`: expected one of text, json_object, json_schema, not "xml""#,
        ),
        (
            chat,
            "decode_mode",
            json!("fast"),
            r#"`decode_mode`: expected one of auto, ar, greedy, iterative, adaptive, verify, not "fast""#,
        ),
        (chat, "decode_mode", json!(3), "`decode_mode`: expected a string, not 3"),
        ("/v1/completions", "seed", json!("x"), r#"`seed`: expected a whole number, not "x""#),
        ("/v1/messages", "messages", json!([3]), "`messages[0]`: expected an object, not 3"),
        ("/completion", "n_predict", json!("x"), r#"expected a whole number, not "x""#),
        ("/api/chat", "options", json!(3), "`options`: expected an object, not 3"),
        ("/api/chat", "options", json!({"temperature": "hot"}), r#"expected a number, not "hot""#),
        (
            "/v1/embeddings",
            "encoding_format",
            json!("int8"),
            r#"`encoding_format`: expected one of float, base64, not "int8""#,
        ),
        ("/v1/embeddings", "input", Value::Null, "`input`: expected"),
    ] {
        let mut body = ask("Hi!", json!({"prompt": "Hi", "max_tokens": 1, "model": "default"}));
        if field == "n_predict" {
            body.as_object_mut().unwrap().remove("max_tokens");
        }
        body[field] = value;
        let reply = server.post(path, &body).is(400);
        let part = part.replace('"', "\\\"");
        assert!(reply.body.contains(&part), "{path} {field}: {}", reply.body);
        for word in
            ["f32", "usize", "u64", "i64", "struct", "sequence", "map", "variant", "invalid"]
        {
            let message = reply.body.replace("invalid_", "");
            assert!(!message.contains(word), "{path} {field}: {}", reply.body);
        }
    }
}

/// Settings of loading are the server's: a request that brings its own is answered, and they are named.
#[test]
fn settings_of_loading_are_hints() {
    let server = Server::start(&[]);
    let head = |path: &str, body: Value| server.post(path, &body).is(200).head;
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for (option, value) in [
        ("num_thread", json!(4)),
        ("num_gpu", json!(33)),
        ("num_batch", json!(512)),
        ("num_keep", json!(24)),
        ("num_ctx", json!(1 << 20)),
        ("use_mmap", json!(false)),
        ("use_mlock", json!(true)),
        ("main_gpu", json!(1)),
        ("low_vram", json!(true)),
        ("numa", json!(true)),
        ("vocab_only", json!(false)),
    ] {
        let options = |value: Value| json!({"num_predict": 1, option: value});
        for (path, mut body) in [
            ("/api/chat", json!({"messages": messages, "stream": false})),
            ("/api/generate", json!({"prompt": "Hi", "stream": false})),
            ("/api/generate", json!({"prompt": "Hi", "stream": true})),
        ] {
            body["model"] = "default".into();
            body["options"] = options(value.clone());
            let named = head(path, body.clone());
            let want = format!("x-ignored-fields: options.{option}\r\n");
            assert!(named.contains(&want), "{path} {option}: {named}");
            body["options"] = options(Value::Null);
            assert!(!head(path, body).contains("x-ignored-fields"), "{path} {option}: null");
        }
    }
    for (path, field, value) in [
        ("/completion", "n_keep", json!(-1)),
        ("/completion", "n_discard", json!(64)),
        ("/completion", "speculative.ngram_size_n", json!(16)),
        ("/v1/chat/completions", "n_keep", json!(8)),
        ("/v1/chat/completions", "guided_decoding_backend", json!("outlines")),
        ("/v1/completions", "priority", json!(1)),
        ("/v1/completions", "guided_decoding_backend", json!("xgrammar")),
    ] {
        let named = head(
            path,
            json!({"prompt": "Hi", "messages": messages, "max_tokens": 1, field: value}),
        );
        assert!(named.contains("x-ignored-fields: "), "{path} {field}: {named}");
        assert!(named.contains(field), "{path} {field}: {named}");
    }
}

/// Samplers of the server hold for requests that do not set their own.
#[test]
fn a_server_has_defaults_of_all_samplers() {
    let prompt = "The fox and the owl and the fox and the owl and the fox and the";
    let flags = [
        ("--dry-multiplier", "5", "dry_multiplier"),
        ("--top-n-sigma", "0.01", "top_n_sigma"),
        ("--xtc-probability", "1", "xtc_probability"),
        ("--typical-p", "0.05", "typical_p"),
        ("--min-p", "0.9", "min_p"),
        ("--presence-penalty", "2", "presence_penalty"),
    ];
    let answer = |server: &Server, more: Value| {
        let mut body = json!({"prompt": prompt, "max_tokens": 24, "seed": 5, "temperature": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = server.post("/v1/completions", &body).is(200).json();
        body["choices"][0]["text"].as_str().expect("text").to_string()
    };
    let plain = Server::start(&[]);
    let without = answer(&plain, json!({}));
    for (flag, value, field) in flags {
        let server = Server::start(&[flag, value]);
        let number: f64 = value.parse().expect("a number");
        let want = answer(&plain, json!({field: number}));
        assert_ne!(want, without, "{flag} changes this answer");
        assert_eq!(answer(&server, json!({})), want, "{flag}");
    }
    // Samplers of the server do not refuse greedy requests.
    let args = ["--typical-p", "0.5", "--xtc-probability", "0.5"];
    answer(&Server::start(&args), json!({"temperature": 0}));
    let server = Server::start(&["--mirostat", "2", "--mirostat-tau", "1"]);
    assert_eq!(
        answer(&server, json!({})),
        answer(&plain, json!({"mirostat": 2, "mirostat_tau": 1}))
    );
    answer(&server, json!({"temperature": 0}));
    for (flag, value) in [("--min-p", "2"), ("--dry-base", "0.5"), ("--dry-penalty-last-n", "-7")] {
        let args = ["serve", "--port", "0", "--dry-multiplier", "1", flag, value];
        let ran = crate::common::run(&args);
        assert_ne!(ran.code, Some(0), "{flag} {value}: {}", ran.stderr);
        assert!(ran.stderr.contains(&flag[2..].replace('-', "_")), "{flag}: {}", ran.stderr);
    }
}

/// All names of a model answer, and lists have those that are meant for lists.
#[test]
fn a_model_has_several_served_names() {
    let args = ["--served-model-name", "tales", "stories", "--served-model-name", "more"];
    let server = Server::start(&[&args[..], &["--alias", "gpt-4o"]].concat());
    for name in ["tales", "stories", "more", "gpt-4o", "default"] {
        let answer = server.chat(&ask("Hi", json!({"model": name, "max_tokens": 1})));
        assert_eq!(answer.is(200).json()["model"], "tales", "{name}");
    }
    server.chat(&ask("Hi", json!({"model": "other"}))).is(404);
    let list = server.get("/v1/models").is(200).json();
    let ids = list["data"].as_array().unwrap().iter().map(|card| card["id"].as_str().unwrap());
    assert_eq!(ids.collect::<Vec<_>>(), ["tales", "stories", "more"]);
    assert_eq!(server.get("/v1/models/stories").is(200).json()["id"], "tales");
}
