//! Calls of tools by the library: grammars make the small model call.

use serde_json::{Value, json};
use wrinklefree_easy::wrinklefree::chat::tools::ToolsError;
use wrinklefree_easy::{
    Engine, Error, FinishReason, GenerateOptions, Message, PartialOutput, Tool, ToolChoice, Tools,
};

fn engine() -> Engine {
    Engine::builder_default().threads(1).context(512).build().expect("the small model")
}

fn weather() -> Tool {
    let city = json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]},
        "days": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 2}},
        "required": ["city", "days"]});
    Tool { name: "weather".into(), parameters: city, ..Tool::default() }
}

fn options(choice: ToolChoice) -> GenerateOptions {
    let tools = Tools::new(vec![weather()], choice, false).expect("valid");
    GenerateOptions::default().tools(tools).temperature(0.0).max_tokens(80)
}

fn question() -> Vec<Message> {
    vec![Message::user("Is it warm in Oslo?")]
}

#[test]
fn a_required_call_matches_its_schema_and_goes_back_with_its_result() {
    let engine = engine();
    let answer = engine.chat(&question(), &options(ToolChoice::Required)).expect("an answer");
    let [call] = &answer.tool_calls[..] else { panic!("one call, not {answer:?}") };
    assert_eq!((call.name.as_str(), answer.text.as_str()), ("weather", ""));
    assert_eq!(answer.finished.reason, FinishReason::Stop);
    let arguments: Value = serde_json::from_str(&call.arguments).expect("JSON");
    assert!(["Oslo", "Rome"].contains(&arguments["city"].as_str().expect("a city")));
    assert!(arguments["days"].is_array());

    let called = Message::from(&answer);
    let told = [question(), vec![called, Message::tool(&call.id, "It is warm.")]].concat();
    let options = options(ToolChoice::None).max_tokens(8);
    let end = engine.chat(&told, &options).expect("an answer");
    assert!(end.tool_calls.is_empty());
    let asked = engine.chat(&question(), &options).expect("an answer");
    assert!(end.finished.prompt_tokens > asked.finished.prompt_tokens);
}

#[test]
fn streamed_parts_of_calls_are_the_whole_call() {
    let engine = engine();
    let options = options(ToolChoice::Named("weather".into()));
    let whole = engine.chat(&question(), &options).expect("an answer");
    let (mut parts, mut output) = (0, PartialOutput::default());
    let stream = engine.chat_stream(&question(), &options).expect("a stream");
    let chunks = stream.map(|chunk| chunk.expect("a chunk"));
    let streamed = chunks.inspect(|chunk| parts += chunk.tool_calls.len());
    let streamed = streamed.filter_map(|chunk| output.push(chunk)).last().expect("the end");
    assert!(parts > 1, "{parts}");
    assert_eq!(streamed.tool_calls[0].arguments, whole.tool_calls[0].arguments);
    assert!(streamed.tool_calls[0].id.starts_with("call_"));
    assert_ne!(streamed.tool_calls[0].id, whole.tool_calls[0].id);
}

#[test]
fn a_call_that_is_cut_ends_by_length() {
    let options = options(ToolChoice::Required).max_tokens(30);
    let cut = engine().chat(&question(), &options).expect("an answer");
    assert_eq!(cut.finished.reason, FinishReason::Length);
}

#[test]
fn an_answer_in_json_may_be_a_call_instead() {
    let schema = json!({"type": "object", "properties": {"warm": {"type": "boolean"}},
        "required": ["warm"], "additionalProperties": false});
    let options = options(ToolChoice::Auto).json_schema(schema);
    let answer = engine().chat(&question(), &options).expect("an answer");
    match &answer.tool_calls[..] {
        [] => assert!(serde_json::from_str::<Value>(&answer.text).is_ok(), "{answer:?}"),
        [call] => assert_eq!(call.name, "weather"),
        _ => panic!("at most one call: {answer:?}"),
    }
    let both = self::options(ToolChoice::Auto).regex("[a-z]+");
    let error = engine().chat(&question(), &both).expect_err("two forms").to_string();
    assert!(error.contains("JSON output only"), "{error}");
}

#[test]
fn tools_that_cannot_be_used_are_refused_by_name() {
    let engine = engine();
    let plain = engine.generate("Once", &options(ToolChoice::Auto)).expect_err("no conversation");
    assert!(matches!(plain, Error::PlainTools), "{plain}");
    let documents = GenerateOptions::default().documents(vec![json!({"text": "It is warm."})]);
    let error = engine.chat(&question(), &documents).expect_err("no place").to_string();
    assert!(error.contains("takes no documents"), "{error}");
    let named = Tools::new(vec![weather()], ToolChoice::Named("moon".into()), true);
    assert_eq!(named, Err(ToolsError::NoSuchTool("moon".into())));
    let strict = Tool {
        parameters: json!({"type": "object", "uniqueItems": true}),
        strict: true,
        ..weather()
    };
    let strict = Tools::new(vec![strict], ToolChoice::Auto, true).expect("valid");
    let error = engine.chat(&question(), &GenerateOptions::default().tools(strict));
    let error = error.expect_err("no grammar holds it").to_string();
    assert!(error.contains("tools[0] (`weather`)"), "{error}");
}
