//! Compiles and renders any text as a chat template.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wrinklefree::format::TextParts;
use wrinklefree::text::{ChatTemplate, Message};

fuzz_target!(|data: &[u8]| {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let parts = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
    let Ok(Some(template)) = ChatTemplate::new(&parts) else { return };
    let message = |role: &str, content: &str| Message { role: role.into(), content: content.into() };
    let _ = template.render(&[message("user", "a b"), message("assistant", "<think>é</think>")], true);
});
