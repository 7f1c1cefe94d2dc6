//! Random requests, determined by a seed.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// A request.
#[derive(Clone)]
pub struct Ask {
    pub method: &'static str,
    pub path: &'static str,
    pub body: Vec<u8>,
    pub kind: Kind,
    /// Maximum number of outputs.
    pub choices: usize,
}

/// Expected kind of reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Generated text that depends on the request alone.
    Generation,
    /// Another successful reply.
    Other,
    /// Probably an error.
    Bad,
}

/// Maximum size of a body.
pub const MAX_BODY: usize = 100_000;

const STARTS: [&str; 6] = [
    "Tell me a story about a fox.",
    "Tell me a story about a lost hat, a boat and a very long winter in the mountains.",
    "Once upon",
    "What is 3 plus 4?",
    "Ünïcode: 狐 🦊 — and\u{0} a null",
    "Mia",
];

/// Returns a random request.
pub fn ask(rng: &mut Rng) -> Ask {
    match rng.u32(..100) {
        0..50 => generation("/v1/chat/completions", chat(rng)),
        50..70 => generation("/v1/completions", completion(rng)),
        70..80 => other(rng),
        _ => bad(rng),
    }
}

/// Returns a request with a reproducible response.
pub fn generation(path: &'static str, body: Value) -> Ask {
    let of = |field: &str| body[field].as_u64().unwrap_or(1) as usize;
    let prompts = body["prompt"].as_array().filter(|p| p[0].is_string()).map_or(1, Vec::len);
    let choices = prompts * of("n").max(of("best_of"));
    Ask { method: "POST", path, body: body.to_string().into(), kind: Kind::Generation, choices }
}

fn start(rng: &mut Rng) -> String {
    let words = ["and", "the", "fox", "runs", "away", "from", "Pip"];
    let more = (0..rng.usize(..40)).map(|_| words[rng.usize(..words.len())]);
    let more: Vec<_> = more.collect();
    format!("{} {}", STARTS[rng.usize(..STARTS.len())], more.join(" "))
}

fn chat(rng: &mut Rng) -> Value {
    let roles = ["user", "assistant"];
    let turn = |i: usize, rng: &mut Rng| {
        if rng.bool() {
            json!({"role": roles[i % 2], "content": start(rng)})
        } else {
            let part = json!({"type": "text", "text": start(rng)});
            json!({"role": roles[i % 2], "content": [part]})
        }
    };
    let turns = 1 + 2 * rng.usize(..2);
    let messages: Vec<Value> = (0..turns).map(|i| turn(i, rng)).collect();
    let mut body = json!({"messages": messages});
    if rng.u32(..4) == 0 {
        body["logprobs"] = true.into();
        body["top_logprobs"] = rng.u32(..=20).into();
    }
    sampling(rng, body)
}

fn completion(rng: &mut Rng) -> Value {
    let prompt = match rng.u32(..3) {
        0 => json!(start(rng)),
        1 => (0..1 + rng.usize(..3)).map(|_| start(rng)).collect(),
        _ => (0..1 + rng.usize(..60)).map(|_| rng.u32(300..1500)).collect(),
    };
    let mut body = json!({"prompt": prompt});
    match rng.u32(..4) {
        0 => body["echo"] = true.into(),
        1 => body["logprobs"] = rng.u32(..=5).into(),
        _ => {}
    }
    let mut body = sampling(rng, body);
    if body["stream"] != true && rng.u32(..4) == 0 {
        body["best_of"] = (body["n"].as_u64().unwrap_or(1) + rng.u64(..3)).into();
    }
    body
}

/// Returns fields of both endpoints, always with a seed.
fn sampling(rng: &mut Rng, mut body: Value) -> Value {
    let modes = ["auto", "ar", "verify", "iterative", "adaptive", "greedy"];
    body["seed"] = rng.i64(..).into();
    body["max_tokens"] = (1 + rng.u32(..120)).into();
    let mut maybe = |rng: &mut Rng, field: &str, value: Value| {
        if rng.u32(..3) == 0 {
            body[field] = value;
        }
    };
    let unit = |rng: &mut Rng| f64::from(rng.u32(1..=100)) / 100.0;
    let mode = modes[rng.usize(..modes.len())];
    for (field, value) in [
        ("stream", json!(true)),
        ("decode_mode", json!(mode)),
        ("temperature", json!(2.0 * unit(rng))),
        ("top_p", json!(unit(rng))),
        ("top_k", json!(rng.u32(1..100))),
        ("min_p", json!(unit(rng) / 10.0)),
        ("n", json!(rng.u32(1..=3))),
        ("stop", json!([". ", "fox", "\n"][..rng.usize(1..=3)])),
        ("frequency_penalty", json!(unit(rng))),
        ("presence_penalty", json!(-unit(rng))),
        ("repetition_penalty", json!(1.0 + unit(rng))),
        ("logit_bias", json!({rng.u32(..2000).to_string(): -50, rng.u32(..2000).to_string(): 5})),
        ("ignore_eos", json!(true)),
        ("threshold", json!(unit(rng))),
        ("user", json!("somebody")),
    ] {
        maybe(rng, field, value);
    }
    if body["stream"] == true && rng.bool() {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

fn other(rng: &mut Rng) -> Ask {
    let paths = ["/health", "/version", "/v1/models", "/v1/models/default", "/v1/loads"];
    let pages = ["/metrics", "/server_info", "/", "/page/chat.js"];
    let get = |path| (path, Value::Null);
    let (path, body) = match rng.u32(..6) {
        0 => ("/tokenize", json!({"content": start(rng)})),
        1 => ("/detokenize", json!({"tokens": [1, 2, 3, rng.u32(..2048)]})),
        2 => ("/apply-template", json!({"messages": [{"role": "user", "content": start(rng)}]})),
        3 => get(pages[rng.usize(..pages.len())]),
        _ => get(paths[rng.usize(..paths.len())]),
    };
    let (method, body) = match body {
        Value::Null => ("GET", Vec::new()),
        body => ("POST", body.to_string().into()),
    };
    Ask { method, path, body, kind: Kind::Other, choices: 0 }
}

/// Returns an invalid request.
fn bad(rng: &mut Rng) -> Ask {
    let (path, body) = if rng.bool() {
        ("/v1/chat/completions", chat(rng))
    } else {
        ("/v1/completions", completion(rng))
    };
    let text = body.to_string();
    let body = match rng.u32(..8) {
        0 => text.as_bytes()[..rng.usize(..text.len())].into(),
        1 => [text.as_bytes(), b"\xff\xfe"].concat(),
        2 => text.replace("\":", "\":[").into(),
        3 => "[".repeat(rng.usize(..MAX_BODY)).into(),
        4 => format!("{{\"messages\":{}", "[{\"content\":".repeat(5000)).into(),
        5 => " ".repeat(MAX_BODY + rng.usize(1..100_000)).into(),
        _ => junk(rng, body).to_string().into(),
    };
    // A random `n` may be valid: 3 prompts with 8 outputs each.
    let (method, choices) = (if rng.u32(..20) == 0 { "PUT" } else { "POST" }, 24);
    Ask { method, path, body, kind: Kind::Bad, choices }
}

/// Returns the body with some fields replaced.
fn junk(rng: &mut Rng, mut body: Value) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(2.5),
        json!(""),
        json!("NaN"),
        json!([]),
        json!([[[1]]]),
        json!({}),
        json!({"a": {"b": 1}}),
        json!({"type": "json_object"}),
        json!("x".repeat(5000)),
        json!([{"role": "user"}, {"role": 3, "content": []}]),
    ];
    let more = ["tools", "response_format", "suffix", "best_of", "echo", "block_size", "model"];
    let fields: &mut Map<String, Value> = body.as_object_mut().expect("an object");
    for _ in 0..=rng.usize(..3) {
        let known: Vec<String> = fields.keys().cloned().collect();
        let field = match rng.u32(..3) {
            0 => more[rng.usize(..more.len())].into(),
            _ => known[rng.usize(..known.len())].clone(),
        };
        fields.insert(field, values[rng.usize(..values.len())].clone());
    }
    body
}
