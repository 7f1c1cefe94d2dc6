//! The prompt of a conversation, and what reads its answer.

use super::messages::{Ending, TemplateMessages};
use super::tools::{self, CallFormat};
use super::{AnswerScope, ChatError, Conversation, OutputParser, SharedPrefixes};
use crate::settings::{OutputReasoning, Reasoning};
use crate::text::{
    ChatTemplate, Date, Prompt, ReasoningMarkers, RenderOptions, StopScope, Tokenizer,
};
use serde_json::Value;
use std::borrow::Cow;

/// Changes messages; `None` if there is nothing to change.
type Repair = fn(&[Value]) -> Option<Vec<Value>>;

/// Changes of messages that a template refuses, in this order: many templates write the members of
/// arguments, allow one system message, and only as the first one, and want turns to alternate.
const REPAIRS: [Repair; 3] =
    [TemplateMessages::with_objects, TemplateMessages::with_one_system, TemplateMessages::joined];

/// The parts of a model that turn a conversation into a prompt.
#[derive(Clone, Copy)]
pub struct ChatModel<'a> {
    /// The chat template.
    pub template: &'a ChatTemplate,
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// True if the model has recurrent states, which the prefix cache keeps at few positions only.
    pub recurrent: bool,
    /// Positions of the context, which a prompt must fit; `None` if the caller checks that.
    pub context: Option<usize>,
    /// The date that templates print.
    pub date: Option<Date>,
    /// Defaults of reasoning, for the settings that a conversation leaves unset.
    pub reasoning: Option<&'a Reasoning>,
}

/// A conversation as the model reads it.
#[derive(Clone, Debug)]
pub struct RenderedChat<'a> {
    /// The text.
    pub prompt: Prompt,
    /// The messages in the form that the template could read.
    messages: Cow<'a, [Value]>,
    /// The tools in that form.
    tools: Vec<Value>,
}

/// A prompt that makes the model answer a conversation.
#[derive(Clone, Debug, Default)]
pub struct ChatPrompt {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Prefixes that other prompts share, of a model with recurrent states.
    pub prefixes: SharedPrefixes,
    /// Reasoning that the answer has.
    pub reasoning: OutputReasoning,
    /// Format of the calls in the answer.
    pub format: CallFormat,
    /// Parser of the answer.
    pub parser: OutputParser,
}

impl ChatPrompt {
    /// Returns the part of the answer in which these stop strings act; `None` for all of it, or for no
    /// strings.
    #[must_use]
    pub fn stop_scope(&self, stop: &[String]) -> Option<Box<dyn StopScope>> {
        let scope = || Box::new(AnswerScope::new(self.parser.clone())) as Box<dyn StopScope>;
        (!stop.is_empty() && !self.parser.is_plain()).then(scope)
    }
}

impl ChatModel<'_> {
    /// Renders and tokenizes the prompt for an answer to a conversation.
    ///
    /// # Errors
    /// If the template refuses the conversation, or a setting of reasoning does not fit the model.
    pub fn prompt(&self, conversation: &Conversation) -> Result<ChatPrompt, ChatError> {
        let rendered = self.render(conversation)?;
        self.check_length(&rendered.prompt)?;
        let tokens = rendered.prompt.encode(self.tokenizer)?;
        self.with_tokens(conversation, &rendered, tokens)
    }

    /// Renders the prompt. Messages and tools that the template refuses are repaired, if that helps.
    ///
    /// # Errors
    /// If the template refuses the conversation, or a setting of reasoning does not fit the model.
    pub fn render<'c>(
        &self,
        conversation: &'c Conversation,
    ) -> Result<RenderedChat<'c>, ChatError> {
        if conversation.messages.is_empty() {
            return Err(ChatError::Empty);
        }
        if conversation.documents.is_some() && !self.template.source().contains("documents") {
            return Err(ChatError::Documents);
        }
        let options = self.options(conversation)?;
        let render = |messages: &[Value], tools: &[Value]| {
            self.render_messages(messages, tools, conversation.ending, options.clone())
        };
        let mut messages = Cow::from(&conversation.messages);
        let mut tools = conversation.tools.definitions();
        let first = match render(&messages, &tools) {
            Ok(prompt) => return Ok(RenderedChat { prompt, messages, tools }),
            Err(error) => error,
        };
        if let Some(described) = described(tools.clone()) {
            tools = described;
            if let Ok(prompt) = render(&messages, &tools) {
                return Ok(RenderedChat { prompt, messages, tools });
            }
        }
        for repair in REPAIRS {
            let Some(repaired) = repair(&messages) else { continue };
            messages = repaired.into();
            if let Ok(prompt) = render(&messages, &tools) {
                return Ok(RenderedChat { prompt, messages, tools });
            }
        }
        Err(first)
    }

    /// Makes the prompt of a conversation with other tokens for the same text, as the model wrote them
    /// before.
    ///
    /// # Errors
    /// If a setting of reasoning does not fit the model.
    pub fn with_tokens(
        &self,
        conversation: &Conversation,
        rendered: &RenderedChat<'_>,
        tokens: Vec<u32>,
    ) -> Result<ChatPrompt, ChatError> {
        let prefixes = self.prefixes(conversation, rendered, &tokens);
        let end = self.end_of_reasoning(conversation).unwrap_or(rendered.prompt.text());
        let reasoning = self.reasoning(conversation).of_output(self.template, end)?;
        let format = self.call_format();
        let parser = OutputParser::new(reasoning.parser(), conversation.tools.parser(format));
        Ok(ChatPrompt { tokens, prefixes, reasoning, format, parser })
    }

    /// Returns the format in which the model writes calls.
    #[must_use]
    pub fn call_format(&self) -> CallFormat {
        CallFormat::of_template(self.template).unwrap_or_default()
    }

    /// Refuses a text that must have more tokens than the context, before it is tokenized: that takes time
    /// and about 30 times the memory of the text.
    fn check_length(&self, prompt: &Prompt) -> Result<(), ChatError> {
        let least = self.tokenizer.least_tokens(prompt.text().len());
        match self.context.filter(|&context| least > context) {
            Some(context) => Err(ChatError::TooLong { least, context }),
            None => Ok(()),
        }
    }

    fn render_messages(
        &self,
        messages: &[Value],
        tools: &[Value],
        ending: Ending,
        options: RenderOptions,
    ) -> Result<Prompt, ChatError> {
        let (messages, tools) =
            tools::for_template(self.template, messages.to_vec(), tools.to_vec());
        let last = messages.last().and_then(|message| message["content"].as_str());
        let last = last.unwrap_or_default().to_string();
        let add_generation_prompt = ending == Ending::NewMessage;
        let options = RenderOptions { tools, add_generation_prompt, ..options };
        let prompt = self.template.prompt(messages.into(), options).map_err(ChatError::Refused)?;
        match ending {
            Ending::LastMessage => open_end(prompt, &last).ok_or(ChatError::NotContinued),
            Ending::NewMessage | Ending::Bare => Ok(prompt),
        }
    }

    /// Inputs of the template next to messages and tools.
    fn options(&self, conversation: &Conversation) -> Result<RenderOptions, ChatError> {
        let documents = conversation.documents.clone().map(Value::from);
        let variables = self.reasoning(conversation).variables()?;
        Ok(RenderOptions { documents, date: self.date, variables, ..RenderOptions::default() })
    }

    /// Returns the settings of reasoning, with the defaults for unset ones. A default is no demand: a model
    /// that knows no thinking answers without.
    fn reasoning(&self, conversation: &Conversation) -> Reasoning {
        let mut defaults = self.reasoning.cloned().unwrap_or_default();
        if ReasoningMarkers::of_template(self.template).is_none() {
            defaults.enable_thinking = None;
        }
        conversation.reasoning.clone().or(defaults)
    }

    /// Returns the marker of reasoning that decides where a continued message is, if the template has any.
    fn end_of_reasoning(&self, conversation: &Conversation) -> Option<&'static str> {
        let markers = ReasoningMarkers::of_template(self.template)?;
        if conversation.ending != Ending::LastMessage {
            return None;
        }
        let text = conversation.messages.last()?["content"].as_str()?;
        let open = text.contains(markers.open) && !text.contains(markers.close);
        Some(if open { markers.open } else { markers.close })
    }

    /// Returns the prefixes that other prompts share, where the prefix cache needs to know them.
    fn prefixes(
        &self,
        conversation: &Conversation,
        rendered: &RenderedChat<'_>,
        tokens: &[u32],
    ) -> SharedPrefixes {
        if !self.recurrent {
            return SharedPrefixes::default();
        }
        let RenderedChat { prompt, messages, tools } = rendered;
        let render = |messages: &[Value]| {
            let options = self.options(conversation).ok()?;
            self.render_messages(messages, tools, Ending::Bare, options).ok()
        };
        let preserves = self.reasoning(conversation).preserves() == Some(true);
        SharedPrefixes::find((prompt, tokens), messages, self.tokenizer, preserves, render)
    }
}

/// Returns the tools with an empty description where one has none, for templates that write it anyway.
/// `None` if all have one.
fn described(mut tools: Vec<Value>) -> Option<Vec<Value>> {
    let mut changed = false;
    for function in tools.iter_mut().filter_map(|tool| tool["function"].as_object_mut()) {
        let known = function.len();
        function.entry("description").or_insert_with(|| "".into());
        changed |= function.len() > known;
    }
    changed.then_some(tools)
}

/// Cuts a prompt after the text of its last message, so that the model continues it. `None` if the
/// prompt does not have the text.
fn open_end(prompt: Prompt, last: &str) -> Option<Prompt> {
    let text = last.trim();
    let begin = prompt.text().rfind(text).filter(|_| !text.is_empty())?;
    let end = begin + text.len();
    // Templates may keep white space at the end or remove it.
    let space = &last[last.trim_end().len()..];
    let kept = if prompt.text()[end..].starts_with(space) { space.len() } else { 0 };
    Some(prompt.truncated(end + kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::TextParts;
    use serde_json::json;

    #[test]
    fn a_last_message_can_be_continued() {
        let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}";
        let text = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
        let template = ChatTemplate::new(&text).expect("valid").expect("there");
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        for (last, want) in [("a b ", Some("a b ")), ("a", Some("a")), (" ", None)] {
            let messages = json!([message("user", "a"), message("assistant", last)]);
            let prompt = template.prompt(messages, RenderOptions::default()).expect("renders");
            let open = open_end(prompt, last).map(|prompt| prompt.text().to_string());
            assert_eq!(open, want.map(|want| format!("<user>a</s><assistant>{want}")), "{last}");
        }
    }
}
