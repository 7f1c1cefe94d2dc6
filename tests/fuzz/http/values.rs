//! Random changes to JSON values.

use fastrand::Rng;
use serde_json::{Value, json};

/// Texts that matter to parsers, tokenizers, templates and grammars.
const TEXTS: [&str; 24] = [
    "",
    " ",
    "\u{0}",
    "\u{feff}x",
    "é\u{301}",
    "日本",
    "👩‍💻",
    "<|im_end|>",
    "<|mask|>",
    "</s>",
    "<tool_call>",
    "{{ x }}",
    "{% for %}",
    "%s",
    "null",
    "-1",
    "1e999",
    "[0-9]{1,999}",
    "(a|b)*c",
    "(.*)*",
    "start: /x/",
    "#/$defs/a",
    "user",
    "assistant",
];

/// Changes up to three places of a value.
pub fn values(body: &mut Value, rng: &mut Rng) {
    for _ in 0..rng.u32(..4) {
        change(body, rng);
    }
}

/// Replaces, removes, repeats or moves something on a random path.
fn change(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Object(map) if !map.is_empty() && rng.u32(..6) > 0 => {
            let key = map.keys().nth(rng.usize(..map.len())).expect("there").clone();
            match rng.u32(..8) {
                0 => drop(map.remove(&key)),
                1 => {
                    let value = map[&key].clone();
                    map.insert(TEXTS[rng.usize(..TEXTS.len())].into(), value);
                }
                _ => change(&mut map[&key], rng),
            }
        }
        Value::Array(list) if !list.is_empty() && rng.u32(..6) > 0 => {
            let index = rng.usize(..list.len());
            match rng.u32(..8) {
                0 => drop(list.remove(index)),
                1 => {
                    let copies = vec![list[index].clone(); rng.usize(..200)];
                    list.extend(copies);
                }
                _ => change(&mut list[index], rng),
            }
        }
        Value::String(text) if rng.bool() => {
            let other = TEXTS[rng.usize(..TEXTS.len())];
            let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
            let place = if places.is_empty() { 0 } else { places[rng.usize(..places.len())] };
            text.insert_str(place, &other.repeat(rng.usize(1..4)));
        }
        Value::Number(_) if rng.bool() => *value = extreme(rng),
        _ => *value = any(rng, 4),
    }
}

fn extreme(rng: &mut Rng) -> Value {
    let numbers = [
        json!(0),
        json!(-1),
        json!(1),
        json!(2),
        json!(-0.0),
        json!(0.5),
        json!(1e-300),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(u32::MAX),
        json!(4_294_967_296u64),
        json!(255),
    ];
    numbers[rng.usize(..numbers.len())].clone()
}

/// Any value of at most this depth.
fn any(rng: &mut Rng, depth: usize) -> Value {
    match rng.u32(..if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => rng.bool().into(),
        2 => extreme(rng),
        3 | 4 => TEXTS[rng.usize(..TEXTS.len())].repeat(rng.usize(1..50)).into(),
        5 => (0..rng.u32(..5)).map(|_| any(rng, depth - 1)).collect(),
        _ => {
            let keys = ["type", "text", "content", "role", "properties", "$ref", "items", "x"];
            let entries = (0..rng.u32(..4))
                .map(|_| (keys[rng.usize(..keys.len())].to_string(), any(rng, depth - 1)));
            Value::Object(entries.collect())
        }
    }
}
