//! Bodies that once took much of a server's memory.

use serde_json::json;

const CHAT: &str = "/v1/chat/completions";
const MIB: usize = 1 << 20;

/// Repeats `part` in an array until the body has almost 4 MiB.
fn repeated(begin: &str, part: &str, end: &str) -> String {
    let count = (4 * MIB - begin.len() - end.len() - 16) / (part.len() + 1);
    format!("{begin}{}{end}", vec![part; count].join(","))
}

/// Bodies of almost 4 MiB with their paths: many values, deep and shallow, and long texts.
pub fn large() -> Vec<(&'static str, String)> {
    let message = "{\"role\":\"user\",\"content\":\"\"}";
    let unread = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":1,\"x\":[";
    let call = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":\
                {\"name\":\"f\",\"arguments\":\"[";
    let tool = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"tools\":[{\"type\":\"function\",\
                \"function\":{\"name\":\"f\",\"parameters\":{\"enum\":[";
    let text = "word ".repeat(4 * MIB / 5 - 40);
    vec![
        (CHAT, repeated(unread, "0", "]}")),
        (CHAT, repeated(unread, "{\"\":0}", "]}")),
        (CHAT, repeated(call, "0", "]\"}}]}]}")),
        (CHAT, repeated(tool, "0", "]}}}]}")),
        (CHAT, repeated("{\"messages\":[", message, "]}")),
        (CHAT, json!({"messages": [{"role": "user", "content": text}]}).to_string()),
        ("/v1/completions", repeated("{\"prompt\":[", "0", "]}")),
        ("/v1/completions", repeated("{\"prompt\":[", "[]", "]}")),
        ("/v1/completions", repeated("{\"prompt\":[\"a\",", "0", "]}")),
        ("/v1/completions", repeated("{\"prompt\":[", "0", ",\"a\"]}")),
        ("/v1/embeddings", repeated("{\"input\":[[\"a\",", "0", "]]}")),
        ("/v1/completions", json!({"prompt": text}).to_string()),
        ("/v1/embeddings", repeated("{\"input\":[", "\"\"", "]}")),
        ("/v1/embeddings", json!({"input": text}).to_string()),
        (
            "/v1/responses",
            repeated("{\"input\":\"Hi\",\"max_output_tokens\":1,\"metadata\":[", "0", "]}"),
        ),
        ("/v1/messages/count_tokens", repeated("{\"messages\":[", message, "]}")),
        ("/tokenize", json!({"content": text}).to_string()),
        ("/detokenize", repeated("{\"tokens\":[", "0", "]}")),
        ("/apply-template", repeated("{\"messages\":[", message, "]}")),
    ]
}
