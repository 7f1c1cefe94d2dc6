//! Prints a text while it is generated.

use std::io::Write;
use wrinklefree_easy::{Engine, GenerateOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder_default().context(512).build()?;
    let options = GenerateOptions::default().max_tokens(40).temperature(0.0);
    for chunk in engine.stream("Once upon a time", &options)? {
        let chunk = chunk?;
        print!("{}", chunk.text);
        std::io::stdout().flush()?;
        if let Some(end) = chunk.finished {
            println!("\n[{:?}]", end.reason);
        }
    }
    Ok(())
}
