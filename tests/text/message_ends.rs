//! Ends of the system text and of the last question in a prompt.

use serde_json::{Value, json};
use wrinklefree::format::TextParts;
use wrinklefree::text::{ChatTemplate, Prompt, RenderOptions, Tokenizer};

/// A token per letter, and one that begins messages.
fn tokenizer() -> Tokenizer {
    let letters = ('a'..='z').map(String::from).chain(["Ġ", "Ċ", "?", "!"].map(String::from));
    let vocab: serde_json::Map<String, Value> =
        letters.zip(0u32..).map(|(letter, id)| (letter, id.into())).collect();
    let begin = json!({"id": 30, "content": "<s>", "special": true, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": false});
    let json = json!({"version": "1.0", "added_tokens": [begin], "pre_tokenizer": bytes, "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocab, "merges": []}});
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}

/// Drops the thinking of answers before the last question.
const SOURCE: &str = "{% set ns = namespace(last=-1) %}\
{% for m in messages if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endfor %}\
{% set at = namespace(question=-1) %}\
{% for m in messages %}{% if m.role == 'user' %}{% set at.question = at.question + 1 %}{% endif %}\
<s>{{ m.role }}\n{% if m.thinking and at.question == ns.last %}{{ m.thinking }}\n{% endif %}\
{{ m.content }}\n{% endfor %}\
{% if add_generation_prompt %}<s>assistant\n{% endif %}";

fn prompt(messages: &[Value], add_generation_prompt: bool) -> Prompt {
    let parts = TextParts { chat_template: Some(SOURCE.into()), ..TextParts::default() };
    let template = ChatTemplate::new(&parts).unwrap().unwrap();
    let options = RenderOptions { add_generation_prompt, ..RenderOptions::default() };
    template.prompt(json!(messages), options).unwrap()
}

/// Texts of the tokens up to the two ends.
fn ends(messages: &[Value]) -> [Option<String>; 2] {
    let (tokenizer, prompt) = (tokenizer(), prompt(messages, true));
    let tokens = prompt.encode(&tokenizer).unwrap();
    let bare = self::prompt(messages, false);
    let stable = prompt.stable_prefix(bare.text(), tokens.len(), &tokenizer);
    let ends = prompt.message_ends(messages, (&tokens, stable), &tokenizer, |messages| {
        Some(self::prompt(messages, false))
    });
    let text = |end: usize| -> Vec<u8> {
        tokens[..end].iter().flat_map(|&token| tokenizer.bytes(token).to_vec()).collect()
    };
    ends.map(|end| end.map(|end| String::from_utf8(text(end)).unwrap()))
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

#[test]
fn a_prompt_has_the_ends_of_its_system_text_and_question() {
    let system = message("system", "be kind");
    let user = message("user", "? why");
    let begin = Some("<s>system\nbe kind\n<s>user\n".to_owned());
    let asked = Some("<s>system\nbe kind\n<s>user\n? why\n".to_owned());
    // The beginning is the same for each question, also for one that begins as the one to compare with.
    assert_eq!(ends(&[system.clone(), user.clone()]), [begin.clone(), asked.clone()]);
    let other = ends(&[system.clone(), message("user", "hi")]);
    assert_eq!(other[0], begin);
    // Calls follow the question.
    let call = json!({"role": "assistant", "thinking": "hm", "content": "call"});
    let result = message("tool", "found");
    let calls = [system, user, call, result];
    assert_eq!(ends(&calls), [begin.clone(), asked.clone()]);
    // The next question changes what stands between.
    let next = [&calls[..], &[message("assistant", "so"), message("user", "and")]].concat();
    let all = "<s>system\nbe kind\n<s>user\n? why\n<s>assistant\ncall\n<s>tool\nfound\n\
               <s>assistant\nso\n<s>user\nand\n";
    assert_eq!(ends(&next), [begin, Some(all.to_owned())]);
}

#[test]
fn a_prompt_may_have_neither() {
    assert_eq!(ends(&[message("assistant", "so")])[1], None);
    let [system, question] = ends(&[message("user", "hi")]);
    assert_eq!(
        (system.as_deref(), question.as_deref()),
        (Some("<s>user\n"), Some("<s>user\nhi\n"))
    );
}
