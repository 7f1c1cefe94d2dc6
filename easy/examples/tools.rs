//! Lets the model call a function, and answers with the result: `cargo run -p wrinklefree-easy --example tools`.
//!
//! The small model inside the library must be made to call: `ToolChoice::Required`. Models that were trained for
//! tools decide themselves with `ToolChoice::Auto`.

use serde_json::{Value, json};
use wrinklefree_easy::{Engine, GenerateOptions, Message, Tool, ToolChoice, Tools};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder_default().build()?;
    let city = json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"]});
    let weather = Tool {
        name: "weather".into(),
        description: Some("The weather in a city".into()),
        parameters: city,
        ..Tool::default()
    };
    let tools = Tools::new(vec![weather], ToolChoice::Required, false)?;
    let options = GenerateOptions::default().tools(tools).temperature(0.0);

    let mut messages = vec![Message::user("Is it warm in Oslo?")];
    let answer = engine.chat(&messages, &options)?;
    messages.push(Message::from(&answer));
    for call in &answer.tool_calls {
        let arguments: Value = serde_json::from_str(&call.arguments)?;
        println!("{} of {}", call.name, arguments["city"]);
        messages.push(Message::tool(&call.id, "12 °C, cloudy"));
    }
    let options = GenerateOptions::default().max_tokens(12).temperature(0.0);
    println!("{}", engine.chat(&messages, &options)?.text);
    Ok(())
}
