//! Conversations rendered by a chat template.

use serde::Serialize;
use std::time::SystemTime;
use wrinklefree::text::{ChatTemplate, Date, Message, Prompt, RenderOptions, TextError};

/// Renders the prompt that makes the model answer these messages.
pub fn render<M: Serialize>(template: &ChatTemplate, messages: &[M]) -> Result<Prompt, TextError> {
    let date = Some(today());
    let options = RenderOptions { add_generation_prompt: true, date, ..RenderOptions::default() };
    template.prompt(serde_json::to_value(messages).expect("messages are JSON"), options)
}

/// Returns true if system messages reach the model: some templates ignore them silently.
pub fn hears_system(template: &ChatTemplate) -> bool {
    const SAID: &str = "reply in rhymes";
    let message =
        |role: &str, content: &str| Message { role: role.into(), content: content.into() };
    let messages = [message("system", SAID), message("user", "Hello")];
    // A template that refuses system messages reports an error itself.
    render(template, &messages).map_or(true, |prompt| prompt.text().contains(SAID))
}

/// Returns the date in UTC: the standard library knows no time zones.
pub fn today() -> Date {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Date::from_unix(since.map_or(0, |d| d.as_secs().cast_signed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wrinklefree::format::TextParts;

    #[test]
    fn templates_know_the_date() {
        let source = "{{ strftime_now('%Y') }}".to_string();
        let text = TextParts { chat_template: Some(source), ..TextParts::default() };
        let template = ChatTemplate::new(&text).expect("valid").expect("there");
        let prompt = render::<Message>(&template, &[]).expect("renders");
        let year: u32 = prompt.text().parse().expect("a year");
        assert!(year >= 2025, "{year}");
    }

    #[test]
    fn templates_that_ignore_system_messages_are_detected() {
        let hears = |source: &str| {
            let text = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
            hears_system(&ChatTemplate::new(&text).expect("valid").expect("there"))
        };
        assert!(hears("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"));
        assert!(!hears("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"));
    }
}
