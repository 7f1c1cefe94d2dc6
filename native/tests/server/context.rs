//! Long texts: contexts past the trained length, stretched positions, and texts that shift.

use crate::common::server::{Server, ask};
use crate::common::{Ran, run, run_with_input};
use serde_json::{Value, json};

/// `wf-run generate` with a number of tokens to follow.
const STORY: [&str; 6] = ["generate", "Tell me a story about a fox.", "-t", "1", "--json", "-n"];

fn story(max_tokens: &str, more: &[&str]) -> Value {
    let ran = run(&[&STORY[..], &[max_tokens], more].concat()).ends(0, &[]);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

fn tokens(story: &Value) -> &[Value] {
    story["tokens"].as_array().expect("ids")
}

/// Counts the warnings about the trained length.
fn warnings(ran: &Ran) -> usize {
    ran.stderr.matches("trained for").count()
}

#[test]
fn more_than_the_trained_length_is_said_once_and_done() {
    let long = "word ".repeat(530);
    let ran = run(&["generate", &long, "-n", "2", "--context", "1024"])
        .ends(0, &["a context of 1024 positions", "trained for 512", "--rope-scaling yarn:F"]);
    assert_eq!(warnings(&ran), 1);
    let ran = run(&["generate", &long, "-n", "2", "-c", "1024", "--rope-scaling", "yarn:2"]);
    assert_eq!(warnings(&ran.ends(0, &[])), 0, "it is stretched that far");
    let stretched = run(&["generate", &long, "-n", "2", "--rope-scaling", "linear:2"]);
    stretched.ends(0, &["prompt 5"]);
    let ran = run_with_input(&["chat", "-c", "1024", "-n", "2"], b"Hello\nHello\n");
    assert_eq!(warnings(&ran.ends(0, &["trained for 512"])), 1);
    run(&["inspect", "-c", "1024"]).ends(0, &["trained for 512"]);
    let shown = run(&["inspect"]).ends(0, &[]).stdout;
    assert!(shown.contains(" at 512 positions"), "the default follows: {shown}");
    let quiet = run(&["generate", "Hello!", "-n", "2"]).ends(0, &[]);
    assert_eq!(warnings(&quiet), 0);
}

#[test]
fn positions_are_stretched_by_every_rule() {
    let plain = story("120", &[]);
    assert_eq!(tokens(&story("120", &["--rope-scaling", "none"])), tokens(&plain));
    assert_eq!(tokens(&story("120", &["--rope-scaling", "linear:1"])), tokens(&plain));
    let rules =
        ["linear:9", "ntk:9", "yarn:20"].map(|rule| story("120", &["--rope-scaling", rule]));
    for (i, one) in rules.iter().enumerate() {
        assert!(rules[..i].iter().chain([&plain]).all(|other| tokens(other) != tokens(one)));
    }
}

#[test]
fn texts_go_past_the_context_where_they_shift() {
    let (plain, short) = (story("90", &[]), story("90", &["-c", "48"]));
    assert_eq!((short["finish_reason"].as_str(), tokens(&short).len()), (Some("length"), 37));
    let shifted = story("90", &["-c", "48", "--context-shift"]);
    assert_eq!(tokens(&shifted)[..37], tokens(&plain)[..37]);
    assert_ne!(tokens(&shifted), tokens(&plain), "the beginning is forgotten");
    let timings = &shifted["timings"];
    let counts = [&timings["prompt_tokens"], &timings["generated_tokens"]];
    assert_eq!(counts, [&json!(11), &json!(tokens(&shifted).len())]);
    assert!(tokens(&shifted).len() > 37);
    for more in [&["--decode-mode", "ar"][..], &["--decode-mode", "verify", "--row-cost", "0"]] {
        let other = story("90", &[&["-c", "48", "--context-shift=4"], more].concat());
        assert_eq!(tokens(&other), tokens(&shifted), "{more:?}");
    }
    let other = story("90", &["-c", "48", "--context-shift=20"]);
    assert_ne!(tokens(&other), tokens(&shifted));
    assert_eq!(tokens(&story("90", &["--context-shift"])), tokens(&plain), "there is room");

    // A stop text that begins before a shift and ends after it.
    let text =
        |ids: usize| story(&ids.to_string(), &["-c", "48", "--context-shift"])["text"].clone();
    let (before, after) = (text(36), text(40));
    let (before, after) = (before.as_str().expect("text"), after.as_str().expect("text"));
    let stop = &after[before.len()..];
    let stopped = story("90", &["-c", "48", "--context-shift", "--stop", stop]);
    let whole = shifted["text"].as_str().expect("text");
    assert_eq!(stopped["text"].as_str(), whole.split(stop).next());
    assert_eq!(stopped["finish_reason"], "stop");
}

#[test]
fn a_chat_forgets_its_oldest_messages_where_it_shifts() {
    let talk = "Tell me a story about a fox.\n".repeat(5);
    let chat = ["chat", "-n", "16", "-c", "96", "--system", "Be kind."];
    run_with_input(&chat, talk.as_bytes()).ends(0, &["the context holds 96", "--context-shift"]);
    let shifts = [&chat[..], &["--context-shift"]].concat();
    let ran = run_with_input(&shifts, talk.as_bytes()).ends(0, &["oldest messages are left out"]);
    assert!(!ran.stderr.contains("error"), "{}", ran.stderr);
    assert_eq!(ran.stdout.lines().filter(|line| !line.is_empty()).count(), 5, "{}", ran.stdout);
    // A message that can never fit is refused, and what was said before stays.
    let long = format!("{}{}\nWho is it about?\n", "Hello.\n".repeat(2), "word ".repeat(200));
    let ran = run_with_input(&shifts, long.as_bytes()).ends(0, &["the context holds 96"]);
    assert!(!ran.stderr.contains("--context-shift"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("left out"), "{}", ran.stderr);
}

#[test]
fn a_server_shifts_who_asks_for_more_than_the_context_holds() {
    let server = Server::start(&["-c", "64", "--context-shift=8", "--kv-tokens", "192"]);
    let prompt = "Tell me a story about a fox.";
    let long = |seed: usize| {
        let more = json!({"max_tokens": 150, "ignore_eos": true, "temperature": 0.8, "seed": seed});
        server.chat(&ask(prompt, more)).is(200).json()
    };
    let alone: Vec<Value> = (0..6).map(long).collect();
    for answer in &alone {
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        let counts = [&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]];
        assert_eq!(counts, [&json!(11), &json!(150)]);
    }
    let crowd: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|i| scope.spawn(move || long(i))).collect();
        threads.into_iter().map(|t| t.join().expect("an answer")).collect()
    });
    for (one, other) in alone.iter().zip(&crowd) {
        assert_eq!(one["choices"][0]["message"], other["choices"][0]["message"]);
    }
    let unlimited = server.chat(&ask(prompt, json!({"ignore_eos": true}))).is(200).json();
    assert_eq!(unlimited["usage"]["total_tokens"], 64, "who names no limit gets the context");
    let blocks = |n: usize| {
        let more = json!({"max_tokens": n, "decode_mode": "greedy", "ignore_eos": true});
        server.chat(&ask(prompt, more))
    };
    blocks(20).is(200);
    let error = blocks(150).is(400).json();
    assert_eq!(error["error"]["param"], "decode_mode");
    assert!(error["error"]["message"].as_str().expect("text").contains("context shift"), "{error}");
    server.idle();
    // What counts is the context that sequences get.
    let small = ["serve", "--port", "0", "-c", "4096", "--kv-tokens", "256"];
    run(&[&small[..], &["--context-shift=500"]].concat()).ends(2, &["keeps 500", "holds 256"]);
}

#[test]
fn the_server_warns_once_about_the_trained_length() {
    let server = Server::start(&["-c", "4096"]);
    for max_tokens in [4, 4000, 3000, 4000] {
        let more = json!({"max_tokens": max_tokens, "stop": ["."]});
        server.chat(&ask("Tell me a story about a fox.", more)).is(200);
    }
    server.terminate();
    let log = server.ended().ends(0, &["a context of 4096 positions", "--rope-scaling"]).stderr;
    assert_eq!(log.matches("request exceeds the trained context length").count(), 1, "{log}");
    let server = Server::start(&["-c", "1024", "--rope-scaling", "yarn:2"]);
    server.chat(&ask("Hello!", json!({"max_tokens": 4000, "stop": ["."]}))).is(200);
    server.terminate();
    assert!(!server.ended().ends(0, &[]).stderr.contains("trained for"));
}

/// A model with recurrent states continues a chat where it kept them: after the messages, and not after
/// the generation prompt, which templates replace. Another chat with the same beginning finds that too.
#[test]
fn the_second_turn_of_a_hybrid_reads_only_what_is_new() {
    let server = Server::start(&["--synthetic", "tiny-hybrid", "-c", "8192"]);
    let cached = |messages: &Value| {
        let body = json!({"messages": messages, "max_tokens": 24, "ignore_eos": true});
        let answer = server.chat(&body).is(200).json();
        let usage = &answer["usage"];
        let known = usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("counted");
        (known as f64, usage["prompt_tokens"].as_u64().expect("counted") as f64, answer)
    };
    let says = |role: &str, content: &str| json!({"role": role, "content": content});
    let mut messages = vec![says("user", &"Tell me of the fox. ".repeat(700))];
    let (known, prompt, answer) = cached(&json!(messages));
    assert!(known == 0.0 && prompt >= 4000.0, "{known} of {prompt}");
    // An answer as it was, and one of which the template dropped a part.
    let said = answer["choices"][0]["message"]["content"].as_str().expect("a text");
    for said in [said, "Once."] {
        messages.truncate(1);
        messages.extend([says("assistant", said), says("user", "And then?")]);
        let (known, prompt, _) = cached(&json!(messages));
        assert!(known >= 0.95 * prompt, "{known} of {prompt}");
    }
    let loads = server.get("/v1/loads").is(200).json();
    assert!(loads["state_snapshots"].as_u64() >= Some(2), "{loads}");
    assert!(loads["state_bytes"].as_u64() > Some(0), "{loads}");
    let denoise = ask("Hello!", json!({"decode_mode": "iterative"}));
    server.chat(&denoise).is(400);
}

/// The states of a hybrid take the memory that `--state-memory` allows, four at least. The system text stays
/// while other chats come and go, and the load, the metrics and the slots count the states.
#[test]
fn a_system_text_stays_in_few_states() {
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}answer:";
    let options = ["--synthetic", "tiny-hybrid", "-c", "4096", "--chat-template", template];
    let server = Server::start(&[&options[..], &["--state-memory", "1"]].concat());
    let system = "You tell stories of the fox and the hen. ".repeat(60);
    let cached = |question: &str| {
        let messages = json!([{"role": "system", "content": system},
            {"role": "user", "content": question}]);
        let body = json!({"messages": messages, "max_tokens": 40, "ignore_eos": true});
        let usage = server.chat(&body).is(200).json()["usage"].clone();
        let known = usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("counted");
        (known, usage["prompt_tokens"].as_u64().expect("counted"))
    };
    assert_eq!(cached("Who is it?").0, 0);
    for number in 0..8 {
        let (known, prompt) = cached(&format!("{number} foxes?"));
        assert!(known + 50 >= prompt, "{known} of {prompt}");
    }
    let loads = server.get("/v1/loads").is(200).json();
    assert_eq!((&loads["state_snapshot_limit"], &loads["state_snapshots"]), (&json!(4), &json!(4)));
    assert!(loads["state_snapshots_dropped"].as_u64() > Some(0), "{loads}");
    let slots = server.get("/slots").is(200).json();
    let kept = slots.as_array().expect("slots").iter().filter_map(|slot| slot["n_states"].as_u64());
    assert!(kept.clone().any(|states| states >= 2), "{slots}");
    server.idle();
    let metrics = server.get("/metrics").is(200).body;
    for line in
        ["wf_state_snapshots 4", "wf_state_snapshot_limit 4", "wf_state_snapshots_dropped_total"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // A model without such states says so.
    let server = Server::start(&["--state-memory", "1G"]);
    server.terminate();
    server.ended().ends(0, &["--state-memory has no effect"]);
}
