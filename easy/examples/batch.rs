//! Runs the requests of several threads in one batch.

use std::thread;
use wrinklefree_easy::{Engine, GenerateOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder_default().context(256).max_sequences(3).build()?;
    let options = GenerateOptions::default().max_tokens(24).temperature(0.0);
    let threads = ["The fox", "The owl", "The bear"].map(|prompt| {
        let (engine, options) = (engine.clone(), options.clone());
        thread::spawn(move || engine.generate(prompt, &options).map(|c| (prompt, c.text)))
    });
    for thread in threads {
        let (prompt, text) = thread.join().map_err(|_| "a thread panicked")??;
        println!("{prompt}|{text}");
    }
    Ok(())
}
