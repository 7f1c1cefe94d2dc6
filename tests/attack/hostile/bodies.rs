//! Bodies that cost a server much.

use super::Attacker;
use fastrand::Rng;
use serde_json::{Value, json};

pub const CHAT: &str = "/v1/chat/completions";

pub fn chat(more: &Value) -> String {
    let mut body = json!({"messages": [{"role": "user", "content": "Tell me a story."}]});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body.to_string()
}

pub fn large(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let (path, body) = &attacker.large[rng.usize(..attacker.large.len())];
    attacker.post(path, body)
}

pub fn growing_grammar(attacker: &Attacker, rng: &mut Rng) -> u16 {
    // Different each time, so that no cache helps.
    let n = rng.u32(1_000_000..99_999_999) | 1;
    let grammar = match rng.u32(..5) {
        0 => json!({"guided_json": {"type": "integer", "multipleOf": n}}),
        1 => json!({"guided_json": {"type": "number", "multipleOf": f64::from(n) / 1e4}}),
        2 => json!({"guided_regex": format!("([a-z]{{1,{}}}[0-9]){{1,300}}", n % 500)}),
        3 => {
            let words: Vec<String> = (0..4000).map(|i| format!("w{}x{i}", n ^ i)).collect();
            json!({"guided_regex": format!("({})+", words.join("|"))})
        }
        _ => json!({"guided_grammar": format!("start: /(.*a){{{}}}/", 10 + n % 40)}),
    };
    attacker.post(CHAT, &chat(&grammar))
}

pub fn many_constrained(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let regex = format!("(.*[a-z]{{{}}}.*)+", rng.u32(2..30));
    attacker.post(CHAT, &chat(&json!({"n": 8, "guided_regex": regex, "max_tokens": 200})))
}

pub fn forced_tool(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let of = rng.u32(10_000_000..99_999_999);
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer", "multipleOf": of}},
        "required": ["x"]});
    let tool = json!({"name": "f", "input_schema": schema});
    let body = json!({"max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool], "tool_choice": {"type": "tool", "name": "f"}});
    attacker.post("/v1/messages", &body.to_string())
}

pub fn recursive_schema(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let branch = json!({"$ref": "#"});
    let names = (0..rng.u32(2..200)).map(|n| (format!("p{n}"), branch.clone()));
    let schema = json!({"type": "object", "properties": serde_json::Map::from_iter(names)});
    attacker.post(CHAT, &chat(&json!({"guided_json": schema, "max_tokens": 100})))
}

pub fn endless(attacker: &Attacker, _: &mut Rng) -> u16 {
    attacker.post(CHAT, &chat(&json!({"n": 8, "ignore_eos": true, "stream": true})))
}

pub fn long_prompt(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let prompt: Vec<u32> = (0..rng.u32(500..2000)).map(|_| rng.u32(..1000)).collect();
    attacker.post("/v1/completions", &json!({"prompt": prompt, "max_tokens": 1}).to_string())
}

pub fn scored(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let prompts: Vec<Vec<u32>> =
        (0..8).map(|_| (0..200).map(|_| rng.u32(..1000)).collect()).collect();
    let body =
        json!({"prompt": prompts, "echo": true, "logprobs": 5, "max_tokens": 50, "best_of": 2});
    attacker.post("/v1/completions", &body.to_string())
}

pub fn embeddings(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let word = rng.u32(..).to_string();
    attacker.post("/v1/embeddings", &json!({"input": vec![word; 2048]}).to_string())
}

pub fn salts(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let length = if rng.bool() { 1000 } else { 2_000_000 };
    let salt = format!("{}{}", rng.u64(..), "s".repeat(length));
    attacker.post(CHAT, &chat(&json!({"cache_salt": salt, "max_tokens": 2})))
}

pub fn biases(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let entries = |spell: fn(u32) -> String| -> serde_json::Map<String, Value> {
        (0..18_000).map(|n| (spell(n), json!(1.5))).collect()
    };
    let bias = if rng.bool() {
        entries(|n| format!("{:0width$}", 7, width = n as usize % 200 + 1))
    } else {
        entries(|n| n.to_string())
    };
    attacker.post(CHAT, &chat(&json!({"logit_bias": bias, "max_tokens": 20, "n": 4})))
}

pub fn control_tokens(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let marks = ["<|im_end|>", "<|eot_id|>", "<|mask|>", "</s>", "<tool_call>", "<|endoftext|>"];
    let text: String = (0..rng.u32(1..500)).map(|_| marks[rng.usize(..marks.len())]).collect();
    let mode = ["ar", "verify", "iterative"][rng.usize(..3)];
    let message = json!([{"role": "user", "content": text}]);
    attacker
        .post(CHAT, &json!({"messages": message, "decode_mode": mode, "max_tokens": 5}).to_string())
}

pub fn odd_messages(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let roles = ["user", "assistant", "system", "tool", "developer", "nobody"];
    let message = |rng: &mut Rng| {
        let call = json!({"function": {"name": "f", "arguments": "[".repeat(rng.usize(..300))}});
        let calls = if rng.u32(..4) == 0 { vec![call] } else { Vec::new() };
        let role = roles[rng.usize(..roles.len())];
        json!({"role": role, "content": "x".repeat(rng.usize(..50)), "tool_calls": calls})
    };
    let messages: Vec<Value> = (0..rng.u32(..400)).map(|_| message(rng)).collect();
    attacker.post("/apply-template", &json!({"messages": messages}).to_string())
}

pub fn wrong_types(attacker: &Attacker, rng: &mut Rng) -> u16 {
    let values = [json!(null), json!(-1), json!(1e308), json!("x"), json!([[]]), json!({"a": {}})];
    let fields = ["messages", "n", "seed", "stop", "temperature", "logit_bias", "tools", "stream"];
    let body: serde_json::Map<String, Value> = (0..4)
        .map(|_| {
            (fields[rng.usize(..fields.len())].into(), values[rng.usize(..values.len())].clone())
        })
        .collect();
    attacker.post(CHAT, &Value::from(body).to_string())
}
