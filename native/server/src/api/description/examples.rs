//! Examples of request bodies, for the OpenAPI document and the page that shows it.

use serde_json::Value;

/// Bodies by path.
const EXAMPLES: [(&str, &str); 26] = [
    (
        "/v1/chat/completions",
        r#"{"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 64, "stream": true}"#,
    ),
    ("/v1/completions", r#"{"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0.7}"#),
    ("/v1/responses", r#"{"input": "Tell me a story about a fox.", "max_output_tokens": 64}"#),
    ("/v1/responses/input_tokens", r#"{"input": "Tell me a story about a fox."}"#),
    (
        "/v1/messages",
        r#"{"model": "default", "messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 64}"#,
    ),
    (
        "/v1/messages/count_tokens",
        r#"{"model": "default", "messages": [{"role": "user", "content": "Tell me a story about a fox."}]}"#,
    ),
    ("/v1/embeddings", r#"{"input": ["A fox in the forest.", "An owl in a tree."]}"#),
    ("/v1/models/load", r#"{"model": "default"}"#),
    ("/v1/models/unload", r#"{"model": "default"}"#),
    ("/models/load", r#"{"model": "default"}"#),
    ("/models/unload", r#"{"model": "default"}"#),
    ("/pooling", r#"{"input": ["A fox in the forest."]}"#),
    (
        "/api/chat",
        r#"{"model": "default", "messages": [{"role": "user", "content": "Tell me a story about a fox."}], "options": {"num_predict": 64}}"#,
    ),
    (
        "/api/generate",
        r#"{"model": "default", "prompt": "Tell me a story about a fox.", "options": {"num_predict": 64}}"#,
    ),
    ("/api/embed", r#"{"model": "default", "input": "A fox in the forest."}"#),
    ("/api/embeddings", r#"{"model": "default", "prompt": "A fox in the forest."}"#),
    ("/api/show", r#"{"model": "default"}"#),
    ("/api/pull", r#"{"model": "microsoft/bitnet-b1.58-2B-4T"}"#),
    ("/api/delete", r#"{"model": "microsoft/bitnet-b1.58-2B-4T"}"#),
    ("/completion", r#"{"prompt": "Once upon a time", "n_predict": 32}"#),
    (
        "/infill",
        r#"{"input_prefix": "Once upon a time there was a fox. ", "input_suffix": " They were friends.", "n_predict": 16}"#,
    ),
    ("/embedding", r#"{"content": "A fox in the forest."}"#),
    ("/slots/{id}", r#"{"filename": "fox.slot"}"#),
    ("/tokenize", r#"{"content": "A fox in the forest.", "with_pieces": true}"#),
    ("/detokenize", r#"{"tokens": [40, 41, 42]}"#),
    ("/apply-template", r#"{"messages": [{"role": "user", "content": "Hello!"}]}"#),
];

/// Returns the example for a path, if requests to it have a body.
pub fn of(path: &str) -> Option<Value> {
    let (_, text) = EXAMPLES.iter().find(|(of, _)| *of == path)?;
    Some(serde_json::from_str(text).expect("examples are JSON"))
}
