//! Tokens that end a text: stated, known by name, asked for.

use serde_json::{Value, json};
use wrinklefree::format::{TextParts, Vocabulary};
use wrinklefree::text::{
    EndReason, Message, ModelText, TextOptions, Tokenizer, describe_end_tokens, end_tokens,
};

/// A tokenizer of these tokens, which are special if they are not among `text`.
fn tokenizer(tokens: &[&str], text: &[&str]) -> Tokenizer {
    let vocab: serde_json::Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| ((*token).into(), json!(id))).collect();
    let special = tokens.iter().enumerate().filter(|(_, token)| !text.contains(token));
    let added: Vec<Value> = special
        .map(|(id, token)| {
            json!({"id": id, "content": token, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let json = json!({"added_tokens": added, "model": {"type": "BPE", "vocab": vocab, "merges": []},
        "decoder": {"type": "ByteFallback"}});
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}

fn reasons(tokenizer: &Tokenizer, stated: &[u32]) -> Vec<(u32, EndReason)> {
    let ends = end_tokens(Some(tokenizer), stated, &[]).unwrap();
    ends.into_iter().map(|end| (end.id, end.reason)).collect()
}

#[test]
fn every_turn_of_a_supported_family_ends() {
    // Family, a token that its files state, and the tokens that end its turns and texts.
    let families: [(&str, &str, &[&str]); 9] = [
        ("BitNet b1.58", "<|end_of_text|>", &["<|end_of_text|>", "<|eot_id|>"]),
        ("Llama 3", "<|end_of_text|>", &["<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"]),
        ("Falcon 3", "<|endoftext|>", &["<|endoftext|>"]),
        ("Falcon-E", "<|end_of_text|>", &["<|end_of_text|>", "<|im_end|>"]),
        ("Llama 2", "</s>", &["</s>"]),
        ("Qwen2, Fast-dLLM", "<|endoftext|>", &["<|endoftext|>", "<|im_end|>"]),
        ("Qwen3, SDAR", "<|im_end|>", &["<|im_end|>", "<|endoftext|>"]),
        ("Qwen3.5", "<|im_end|>", &["<|im_end|>", "<|endoftext|>"]),
        ("SmolLM2", "<|im_end|>", &["<|im_end|>", "<|endoftext|>"]),
    ];
    for (family, stated, ends) in families {
        let tokens: Vec<&str> =
            ["a", "<|im_start|>", "<think>"].iter().chain(ends).copied().collect();
        let tokenizer = tokenizer(&tokens, &["a"]);
        let id = |token: &str| tokenizer.id(token).unwrap();
        let found = reasons(&tokenizer, &[id(stated)]);
        assert_eq!(found[0], (id(stated), EndReason::Stated), "{family}");
        let mut ids: Vec<u32> = found.iter().map(|(id, _)| *id).collect();
        let mut want: Vec<u32> = ends.iter().map(|end| id(end)).collect();
        ids.sort_unstable();
        want.sort_unstable();
        assert_eq!(ids, want, "{family}");
    }
}

#[test]
fn names_count_where_they_mean_an_end() {
    let html = tokenizer(&["a", "</s>", "<eos>"], &["a", "</s>"]);
    assert_eq!(reasons(&html, &[]), [(2, EndReason::Named)], "markup is text");
    // Each part of an answer of gpt-oss ends with `<|end|>`.
    let harmony = tokenizer(&["<|end|>", "<|return|>", "<|call|>"], &[]);
    assert_eq!(reasons(&harmony, &[]), [(1, EndReason::Named), (2, EndReason::Named)]);
    assert_eq!(reasons(&tokenizer(&["<|end|>"], &[]), &[]), [(0, EndReason::Named)]);
    // Some files have an end of turn as a normal token.
    let normal = tokenizer(&["<|eot_id|>"], &["<|eot_id|>"]);
    assert_eq!(reasons(&normal, &[]), [(0, EndReason::Named)]);
}

#[test]
fn tokens_that_are_asked_for() {
    let tokenizer = tokenizer(&["a", "7", "<|stop|>", "<|im_end|>"], &["a", "7"]);
    let ask =
        |token: &str| end_tokens(Some(&tokenizer), &[], &[token.into()]).map(|ends| ends[0].id);
    assert_eq!((ask("<|stop|>"), ask("2"), ask("7")), (Ok(2), Ok(2), Ok(1)), "a name wins");
    for wrong in ["<|nothing|>", "4", "-1", ""] {
        let error = ask(wrong).unwrap_err();
        assert_eq!(error.code(), "unknown_token");
        assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
    }
    // Without a tokenizer there are ids alone.
    assert_eq!(end_tokens(None, &[3], &["5".into()]).unwrap().len(), 2);
    let ends = end_tokens(Some(&tokenizer), &[0], &["2".into()]).unwrap();
    assert_eq!(
        describe_end_tokens(&ends),
        "a text ends at a (0, in the model's files), <|stop|> (2, asked for), \
         <|im_end|> (3, known by its name)"
    );
}

/// The template of the official GGUF file of BitNet b1.58 2B-4T.
const BITNET_GGUF: &str = "\
{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}\
{% if message['role'] == 'user' %}{{ 'Human: ' + message['content'] + '\\n\\nBITNETAssistant: ' + eos_token }}\
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}";

fn open(template: Option<&str>, options: &TextOptions) -> ModelText {
    let special = [("bos_token", "<b>"), ("eos_token", "<e>")];
    let special = special.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let chat_template = template.map(str::to_owned);
    let parts = TextParts { chat_template, special, ..TextParts::default() };
    ModelText::open(parts, &[1], None, options).unwrap()
}

fn render(text: &ModelText) -> String {
    let message =
        |role: &str, content: &str| Message { role: role.into(), content: content.into() };
    let messages = [
        message("system", "Be kind."),
        message("user", " Hi "),
        message("assistant", "Yo"),
        message("user", "Bye"),
    ];
    text.template.as_ref().unwrap().render(&messages, true).unwrap()
}

#[test]
fn templates_known_to_be_wrong_are_replaced_with_a_note() {
    let text = open(Some(BITNET_GGUF), &TextOptions::default());
    let want = "<b>System: Be kind.<|eot_id|>User: Hi<|eot_id|>Assistant: Yo<|eot_id|>User: Bye<|eot_id|>\
                Assistant: ";
    assert_eq!(render(&text), want);
    assert!(text.notes[0].contains("`bitnet` replaces it"), "{:?}", text.notes);
    let kept =
        open(Some(BITNET_GGUF), &TextOptions { template_fixes: false, ..TextOptions::default() });
    assert!(render(&kept).contains("BITNETAssistant: <e>") && kept.notes.is_empty());
    let right = open(Some("{{ messages[0].content }}"), &TextOptions::default());
    assert!(right.notes.is_empty());
}

#[test]
fn a_missing_template_follows_from_tokens_that_one_family_has() {
    let json = r#"{"model": {"type": "BPE", "vocab": {"a": 0, "<｜hy_User｜>": 1}, "merges": []}}"#;
    let open = |options: &TextOptions| {
        let vocabulary = Some(Vocabulary::Json(json.as_bytes().to_vec().into()));
        let parts = TextParts { vocabulary, ..TextParts::default() };
        ModelText::open(parts, &[1], None, options).unwrap()
    };
    let text = open(&TextOptions::default());
    let want = "<｜hy_begin▁of▁sentence｜>Be kind.<｜hy_place▁holder▁no▁3｜><｜hy_User｜> Hi <｜hy_Assistant｜>Yo\
                <｜hy_place▁holder▁no▁2｜><｜hy_User｜>Bye<｜hy_Assistant｜>";
    assert_eq!(render(&text), want);
    assert!(text.notes[0].contains("`hunyuan`"), "{:?}", text.notes);
    assert!(
        open(&TextOptions { template_fixes: false, ..TextOptions::default() }).template.is_none()
    );
}

#[test]
fn templates_by_name_and_as_text() {
    let with = |template: &str| {
        let chat_template = Some(template.to_owned());
        let options = TextOptions { chat_template, ..TextOptions::default() };
        render(&open(Some("{{ 'the file' }}"), &options))
    };
    assert_eq!(with("{{ messages | length }}"), "4");
    let starts = [
        ("bitnet", "<b>System: Be kind.<|eot_id|>User: Hi<|eot_id|>"),
        ("chatml", "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"),
        ("gemma", "<b><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nYo<"),
        ("llama3", "<b><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|><|start_h"),
        ("phi3", "<|system|>\nBe kind.<|end|>\n<|user|>\n Hi <|end|>\n<|assistant|>\nYo<|end|>\n"),
        ("zephyr", "<|system|>\nBe kind.<e>\n<|user|>\n Hi <e>\n<|assistant|>\nYo<e>\n"),
    ];
    for (name, start) in starts {
        let rendered = with(name);
        assert!(rendered.starts_with(start), "{name}: {rendered}");
    }
    let unknown = TextOptions { chat_template: Some("mistrall".into()), ..TextOptions::default() };
    let error = ModelText::open(TextParts::default(), &[], None, &unknown).unwrap_err();
    assert!(error.to_string().contains("mistrall") && error.to_string().contains("bitnet, chatml"));
    let broken = TextOptions { chat_template: Some("{% if %}".into()), ..TextOptions::default() };
    let error = ModelText::open(TextParts::default(), &[], None, &broken).unwrap_err();
    assert_eq!(error.code(), "bad_chat_template");
}
