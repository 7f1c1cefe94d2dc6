//! Restricts outputs to a JSON schema and to a regular expression.

use serde_json::{Value, json};
use wrinklefree_easy::{Engine, GenerateOptions, Message};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder_default().context(512).build()?;
    let schema = json!({
        "type": "object",
        "properties": {"animal": {"enum": ["fox", "owl", "bear"]}, "age": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["animal", "age"],
        "additionalProperties": false,
    });
    let options = GenerateOptions::default().temperature(0.0);
    let question = [Message::user("Describe an animal.")];
    let answer = engine.chat(&question, &options.clone().json_schema(schema))?;
    let animal: Value = serde_json::from_str(&answer.text)?;
    println!("animal: {}, age: {}", animal["animal"], animal["age"]);

    let answer = engine.chat(&[Message::user("Is the sky blue?")], &options.regex("yes|no"))?;
    println!("answer: {}", answer.text);
    Ok(())
}
