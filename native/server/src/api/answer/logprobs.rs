//! Log-probabilities of tokens, as several APIs have them.

use serde_json::{Map, Value, json};
use wrinklefree::decode::Sampled;
use wrinklefree::text::Tokenizer;

/// Smallest log-probability that is returned: JSON has no infinity.
const MIN_LOGPROB: f32 = -9999.0;

/// Returns an object for each token of a prompt: the token and the `n` most likely ones, by id. The first
/// one is null, because nothing predicts it. A token after the `n` most likely ones has no rank.
pub fn prompt_logprobs(tokenizer: &Tokenizer, scored: &[Sampled], n: usize) -> Value {
    let entry = |token: u32, logprob: f32, rank: Option<usize>| {
        let text = tokenizer.decode(&[token]);
        let logprob = logprob.max(MIN_LOGPROB);
        json!({"logprob": logprob, "rank": rank, "decoded_token": text})
    };
    let place = |sampled: &Sampled| {
        let mut entries = Map::new();
        for (index, &(token, logprob)) in sampled.top.iter().take(n).enumerate() {
            entries.insert(token.to_string(), entry(token, logprob, Some(index + 1)));
        }
        let rank = sampled.top.iter().position(|(token, _)| *token == sampled.token);
        entries.entry(sampled.token.to_string()).or_insert_with(|| {
            let logprob = sampled.logprob.unwrap_or(MIN_LOGPROB);
            entry(sampled.token, logprob, rank.map(|index| index + 1))
        });
        Value::from(entries)
    };
    std::iter::once(Value::Null).chain(scored.iter().map(place)).collect()
}

/// Returns a sampled token with its log-probability and `n` alternatives.
pub fn sampled(tokenizer: &Tokenizer, sampled: &Sampled, n: usize) -> Value {
    let mut entry = token(tokenizer, sampled.token, sampled.logprob.unwrap_or(0.0));
    let top = sampled.top.iter().take(n).map(|&(id, logprob)| token(tokenizer, id, logprob));
    entry["top_logprobs"] = top.collect();
    entry
}

/// Returns the name of a token by its id, as vLLM's API has it.
pub fn id_name(token: u32) -> String {
    format!("token_id:{token}")
}

/// Names the tokens of an entry that [`sampled()`] returned by their ids.
pub fn name_by_id(entry: &mut Value, sampled: &Sampled) {
    entry["token"] = id_name(sampled.token).into();
    let top = entry["top_logprobs"].as_array_mut().into_iter().flatten();
    for (entry, &(token, _)) in top.zip(&sampled.top) {
        entry["token"] = id_name(token).into();
    }
}

/// Returns a token with its log-probability.
fn token(tokenizer: &Tokenizer, token: u32, logprob: f32) -> Value {
    json!({
        "token": tokenizer.decode(&[token]),
        "logprob": logprob.max(MIN_LOGPROB),
        "bytes": tokenizer.bytes(token),
    })
}
