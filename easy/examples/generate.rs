//! Continues a prompt.

use wrinklefree_easy::{Engine, Error, GenerateOptions};

fn main() -> Result<(), Error> {
    let engine = Engine::builder_default().context(512).build()?;
    let options = GenerateOptions::default().max_tokens(40).temperature(0.0);
    let story = engine.generate("Once upon a time", &options)?;
    println!("Once upon a time{}", story.text);
    println!("[{} tokens, {} passes]", story.tokens.len(), story.finished.passes);
    Ok(())
}
