//! Compiles and renders any text as a chat template, and the template that its bytes choose.
#![no_main]

#[path = "../template_grammar.rs"]
mod template_grammar;

use libfuzzer_sys::fuzz_target;
use template_grammar::Choices;
use wrinklefree::format::TextParts;
use wrinklefree::text::{ChatTemplate, Message};

fuzz_target!(|data: &[u8]| {
    if let Ok(source) = std::str::from_utf8(data) {
        run(source);
    }
    run(&Choices(data).template(3));
});

fn run(source: &str) {
    let parts = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
    let message = |role: &str, content: &str| Message { role: role.into(), content: content.into() };
    let messages = [message("user", "a b"), message("assistant", "<think>é</think>")];
    let rendered = ChatTemplate::new(&parts).map(|t| t.map(|t| t.render(&messages, true)));
    // Panics become errors, which count as failures here.
    let text = format!("{rendered:?}");
    assert!(!text.contains(" panic: "), "{source}: {text}");
}
