//! Conversations with models that think before they answer.

use crate::puppet;
use serde_json::json;
use wrinklefree_easy::wrinklefree::chat::ChatError;
use wrinklefree_easy::wrinklefree::settings::ReasoningError;
use wrinklefree_easy::{
    Chunk, Completion, Engine, Error, FinishReason, GenerateOptions, Message, PartialOutput, Tool,
    ToolChoice, Tools,
};

/// The prompt begins the thinking, as Qwen3.5's does.
const TEMPLATE: &str = "{%- for m in messages -%}<|im_start|>{{ m.role }}\n\
    {%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}\
    {{ m.content }}<|im_end|>\n{% endfor -%}\
    {%- if add_generation_prompt -%}<|im_start|>assistant\n<think>\n{# </think> <tool_call> #}{% endif -%}";

/// Opens a model that says `text`.
fn engine(text: &str) -> Engine {
    let home = tempfile::tempdir().expect("a folder");
    puppet::write(home.path(), &puppet::pieces(text), TEMPLATE);
    Engine::builder(home.path()).threads(1).context(256).build().expect("opens")
}

fn greedy() -> GenerateOptions {
    GenerateOptions::default().max_tokens(64).temperature(0.0)
}

fn question() -> [Message; 1] {
    [Message::user("Is it?")]
}

fn parts(output: &Completion) -> (&str, &str) {
    (&output.reasoning, &output.text)
}

#[test]
fn thinking_and_answer_are_apart_whole_and_streamed() {
    let engine = engine("Hm, is it?\n</think>\n\nYes, it is.");
    let whole = engine.chat(&question(), &greedy()).expect("answers");
    assert_eq!(parts(&whole), ("Hm, is it?", "Yes, it is."));
    let stream = engine.chat_stream(&question(), &greedy()).expect("starts");
    let chunks: Vec<Chunk> = stream.collect::<Result<_, _>>().expect("no error");
    let joined = |part: fn(&Chunk) -> &str| chunks.iter().map(part).collect::<String>();
    assert_eq!(joined(|chunk| &chunk.reasoning), whole.reasoning);
    assert_eq!(joined(|chunk| &chunk.text), whole.text);
    assert_eq!(chunks.iter().filter_map(|chunk| chunk.token.clone()).count(), whole.tokens.len());
    // A plain prompt is continued as it is.
    let plain = engine.generate("<|im_start|>assistant\n", &greedy()).expect("generates");
    assert_eq!(parts(&plain), ("", "Hm, is it?\n</think>\n\nYes, it is."));
}

#[test]
fn thinking_and_calls_are_apart() {
    let call = |city: &str| {
        format!(
            "<tool_call>\n{{\"name\": \"sun\", \"arguments\": {{\"city\": \"{city}\"}}}}\n</tool_call>"
        )
    };
    let engine = engine(&format!("Hm.\n</think>\n\n{}\n{}", call("Oslo"), call("Rome")));
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let sun = Tool { name: "sun".into(), parameters, ..Tool::default() };
    let tools = Tools::new(vec![sun], ToolChoice::Auto, true).expect("valid");
    let options = greedy().tools(tools).max_tokens(200);
    let whole = engine.chat(&question(), &options).expect("answers");
    assert_eq!((whole.reasoning.as_str(), whole.text.trim()), ("Hm.", ""));
    let calls: Vec<_> =
        whole.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("sun", "{\"city\": \"Oslo\"}"), ("sun", "{\"city\": \"Rome\"}")]);
    let stream = engine.chat_stream(&question(), &options).expect("starts");
    let mut output = PartialOutput::default();
    let streamed = stream.filter_map(|chunk| output.push(chunk.expect("no error"))).last();
    let streamed = streamed.expect("the end");
    assert_eq!(parts(&streamed), parts(&whole));
    assert_eq!(streamed.tool_calls.len(), 2);
}

#[test]
fn settings_of_thinking_are_honored() {
    let engine = engine("Hm, is it?\n</think>\n\nYes, it is.");
    let ask = |options: &GenerateOptions| engine.chat(&question(), options).expect("answers");
    assert_eq!(parts(&ask(&greedy().enable_thinking(false))), ("", "Yes, it is."));
    let cut = ask(&greedy().thinking_budget(1));
    assert!("Hm, is it?".starts_with(&cut.reasoning) && cut.reasoning.len() < 10, "{cut:?}");
    // Stop strings act on the answer alone.
    let stopped = ask(&greedy().stop("it"));
    assert_eq!(parts(&stopped), ("Hm, is it?", "Yes, "));
    assert_eq!(stopped.finished.reason, FinishReason::StopString(0));
}

#[test]
fn a_schema_holds_for_the_answer_alone() {
    let engine = engine("Hm.\n</think>\n\n{\"a\": 17}");
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let output = engine.chat(&question(), &greedy().json_schema(schema)).expect("answers");
    assert_eq!(parts(&output), ("Hm.", "{\"a\": 17}"));
}

#[test]
fn conversations_that_cannot_be_answered_are_refused() {
    let engine = engine("Hm.\n</think>\n\nYes.");
    let error = |messages: &[Message]| engine.chat(messages, &greedy()).expect_err("refused");
    assert!(matches!(error(&[]), Error::Chat(ChatError::Empty)));
    let robot = Message { role: "robot".into(), ..Message::user("") };
    let message = error(&[Message::user("Hello"), robot]).to_string();
    assert!(message.starts_with("messages[1].role: unknown role `robot`"), "{message}");
    let plain = engine.generate("Once", &greedy().enable_thinking(true)).expect_err("refused");
    assert!(matches!(plain, Error::PlainReasoning), "{plain}");
}

#[cfg(feature = "default-model")]
#[test]
fn a_model_that_does_not_think_is_not_asked_to() {
    let engine = Engine::builder_default().threads(1).context(256).build().expect("opens");
    let error = engine.chat(&question(), &greedy().enable_thinking(true)).expect_err("refused");
    assert!(matches!(error, Error::Chat(ChatError::Reasoning(ReasoningError::NoReasoning))));
    let output = engine.chat(&question(), &greedy().enable_thinking(false)).expect("answers");
    assert!(output.reasoning.is_empty() && !output.text.is_empty());
}
