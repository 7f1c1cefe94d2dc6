//! Holds a conversation of two turns.

use wrinklefree_easy::{Engine, Error, GenerateOptions, Message};

fn main() -> Result<(), Error> {
    let engine = Engine::builder_default().context(512).build()?;
    let options = GenerateOptions::default().max_tokens(60).temperature(0.0);
    let mut messages = Vec::new();
    for question in ["Hello!", "Tell me a story about a fox named Pip."] {
        messages.push(Message::user(question));
        let answer = engine.chat(&messages, &options)?;
        println!("> {question}\n{}", answer.text);
        messages.push(Message::assistant(answer.text));
    }
    Ok(())
}
