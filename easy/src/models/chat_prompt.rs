//! Conversations rendered by a chat template.

use serde::Serialize;
use serde_json::{Map, Value};
use std::time::SystemTime;
use wrinklefree::text::{ChatTemplate, Date, Message, Prompt, RenderOptions, TextError};

/// Inputs of a template next to messages.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Tools that the model may call, in the form of OpenAI's API.
    pub tools: Option<Value>,
    /// Documents to answer from.
    pub documents: Option<Value>,
    /// Further variables of the template.
    pub variables: Map<String, Value>,
}

/// Renders the prompt that makes the model answer these messages.
pub fn render<M: Serialize>(
    template: &ChatTemplate,
    messages: &[M],
    inputs: Inputs,
) -> Result<Prompt, TextError> {
    render_with(template, messages, inputs, true)
}

/// Renders these messages without the generation prompt, for [`Prompt::stable_prefix`].
pub fn render_bare<M: Serialize>(
    template: &ChatTemplate,
    messages: &[M],
    inputs: Inputs,
) -> Result<Prompt, TextError> {
    render_with(template, messages, inputs, false)
}

/// Cuts a prompt after the text of its last message, so that the model continues it. `None` if the
/// prompt does not have the text.
pub fn open_end(prompt: Prompt, last: &str) -> Option<Prompt> {
    let text = last.trim();
    let begin = prompt.text().rfind(text).filter(|_| !text.is_empty())?;
    let end = begin + text.len();
    // Templates may keep white space at the end or remove it.
    let space = &last[last.trim_end().len()..];
    let kept = if prompt.text()[end..].starts_with(space) { space.len() } else { 0 };
    Some(prompt.truncated(end + kept))
}

fn render_with<M: Serialize>(
    template: &ChatTemplate,
    messages: &[M],
    inputs: Inputs,
    add_generation_prompt: bool,
) -> Result<Prompt, TextError> {
    let Inputs { tools, documents, variables } = inputs;
    let options =
        RenderOptions { add_generation_prompt, date: Some(today()), tools, documents, variables };
    let messages = serde_json::to_value(messages).expect("messages are JSON");
    template.prompt(messages, options)
}

/// Returns true if system messages reach the model: some templates ignore them silently.
pub fn hears_system(template: &ChatTemplate) -> bool {
    const SAID: &str = "reply in rhymes";
    let message =
        |role: &str, content: &str| Message { role: role.into(), content: content.into() };
    let messages = [message("system", SAID), message("user", "Hello")];
    // A template that refuses system messages reports an error itself.
    render(template, &messages, Inputs::default())
        .map_or(true, |prompt| prompt.text().contains(SAID))
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
        let prompt = render::<Value>(&template, &[], Inputs::default()).expect("renders");
        let year: u32 = prompt.text().parse().expect("a year");
        assert!(year >= 2025, "{year}");
    }

    #[test]
    fn a_last_message_can_be_continued() {
        let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}";
        let text = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
        let template = ChatTemplate::new(&text).expect("valid").expect("there");
        let message =
            |role: &str, content: &str| Message { role: role.into(), content: content.into() };
        for (last, want) in [("a b ", Some("a b ")), ("a", Some("a")), (" ", None)] {
            let messages = [message("user", "a"), message("assistant", last)];
            let prompt = render_bare(&template, &messages, Inputs::default()).expect("renders");
            let open = open_end(prompt, last).map(|prompt| prompt.text().to_string());
            assert_eq!(open, want.map(|want| format!("<user>a</s><assistant>{want}")), "{last}");
        }
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
