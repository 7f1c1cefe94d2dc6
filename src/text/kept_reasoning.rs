//! Earlier reasoning in a rendered conversation, as the model generated it.
//!
//! Templates of models that think leave out the reasoning of earlier turns, and the empty block of a model
//! that was told not to think. So the next prompt differs from what was computed, and a prefix cache reads
//! each answer again. With the variable `preserve_thinking` the conversation is rendered without reasoning
//! and with a mark in each answer. Afterwards a block of reasoning replaces what the template wrote there.

use super::OutputPart;
use super::control::Used;
use super::reasoning::{REASONING_FIELDS, reasoning_of};
use super::{
    ChatTemplate, ReasoningMarkers, ReasoningParser, ReasoningStart, RenderOptions, TextError,
};
use serde_json::{Value, json};

/// Variable of templates that keeps the reasoning of earlier turns. Some templates know it themselves.
pub(crate) const PRESERVE_THINKING: &str = "preserve_thinking";
/// Longest text between the beginning of an answer and the name of its first call.
const LONGEST_HEAD: usize = 256;

/// Form in which a template begins an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerForm {
    markers: ReasoningMarkers,
    /// Text before each answer.
    head: String,
    /// Texts before and after the reasoning.
    around: [String; 2],
    /// Block of an answer without reasoning.
    empty: String,
}

/// Returns true if these options ask for the reasoning of earlier turns.
pub(super) fn is_asked(options: &RenderOptions) -> bool {
    options.variables.get(PRESERVE_THINKING) == Some(&Value::Bool(true))
}

/// Renders a conversation with the reasoning of all answers; `None` if the template does not write answers
/// so that the places are found.
///
/// # Errors
/// When the template refuses the conversation, fails, or uses up its budget.
pub(super) fn render(
    template: &ChatTemplate,
    form: &AnswerForm,
    messages: &Value,
    options: &RenderOptions,
) -> Result<Option<String>, TextError> {
    let mut used = Used::of(template.source(), messages, options);
    let (Some(begin), Some(end)) = (used.take_free(), used.take_free()) else { return Ok(None) };
    let mut messages = messages.clone();
    let mut answers = Vec::new();
    let all = messages.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    let last = all.len().saturating_sub(1);
    for (place, message) in all.iter_mut().enumerate() {
        if message["role"] == "assistant" {
            let marks = Marks { begin, end, index: answers.len() };
            let is_last = place == last && !options.add_generation_prompt;
            answers.extend(Answer::take(message, form.markers, &marks, is_last));
        }
    }
    let rendered = template.render_with(&messages, options)?;
    Ok(form.insert(&rendered, &answers, [begin, end]))
}

/// The marks of an answer.
struct Marks {
    begin: char,
    end: char,
    index: usize,
}

/// An answer whose reasoning was taken.
struct Answer {
    reasoning: String,
    /// True if the mark stands in the name of its first call.
    in_call: bool,
}

impl Answer {
    /// Takes the reasoning out of a message, and marks the message. `None` if its text is cut within the
    /// reasoning, or the model goes on inside it.
    fn take(
        message: &mut Value,
        markers: ReasoningMarkers,
        marks: &Marks,
        is_last: bool,
    ) -> Option<Self> {
        let mut content = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            _ => return None,
        };
        let given = reasoning_of(message).map(|text| text.as_str().map(String::from));
        let reasoning = match given {
            Some(text) => text?,
            None if !content.trim_start().starts_with(markers.open) => String::new(),
            None if is_last || !content.contains(markers.close) => return None,
            None => {
                let mut reasoning = String::new();
                let mut parser = ReasoningParser::new(markers, ReasoningStart::Optional);
                let parts = parser.push(&std::mem::take(&mut content));
                for part in parts.into_iter().chain(parser.finish()) {
                    match part {
                        OutputPart::Reasoning(text) => reasoning += &text,
                        OutputPart::Answer(text) => content += &text,
                    }
                }
                reasoning
            }
        };
        let calls = message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        let Marks { begin, end, index } = marks;
        let in_call = calls && content.trim().is_empty();
        if in_call {
            if message["content"].is_string() {
                message["content"] = content.into();
            }
            let call = &mut message["tool_calls"][0];
            let function =
                if call.get("function").is_some() { &mut call["function"] } else { call };
            let name = function["name"].as_str()?;
            function["name"] = format!("{begin}{index}{begin}{name}").into();
        } else {
            // The mark at the end keeps white space that the model wrote there.
            let end = if calls { String::new() } else { end.to_string() };
            message["content"] = format!("{begin}{index}{begin}{content}{end}").into();
        }
        let fields = message.as_object_mut()?;
        REASONING_FIELDS.iter().for_each(|name| {
            fields.remove(*name);
        });
        Some(Self { reasoning: reasoning.trim_matches('\n').into(), in_call })
    }
}

impl AnswerForm {
    /// Reads from a template how it begins answers; `None` if its model does not think.
    pub(super) fn of_template(template: &ChatTemplate) -> Option<Self> {
        let markers = ReasoningMarkers::of_template(template)?;
        let [on, off] = [true, false].map(|thinks| generation_prompt(template, thinks));
        let (on, off) = (on?, off.unwrap_or_default());
        let before_block = |prompt: &str| {
            let marks = [markers.open, markers.close].map(|marker| prompt.find(marker));
            marks.into_iter().flatten().min().unwrap_or(prompt.len())
        };
        let mut head = &on[..before_block(&on)];
        if !off.is_empty() && head.starts_with(&off[..before_block(&off)]) {
            head = &head[..before_block(&off)];
        }
        let begun = &on[head.len()..];
        let shown = answer(template, head, "reasoned");
        let mut around = [format!("{}\n", markers.open), format!("\n{}\n\n", markers.close)];
        if let Some((before, after)) = shown.as_deref().and_then(|text| text.split_once("reasoned"))
            && before.contains(markers.open)
            && after.contains(markers.close)
        {
            around = [before.into(), after.into()];
        }
        if begun.contains(markers.open) && !begun.contains(markers.close) {
            around[0] = begun.into();
        }
        let closes = |text: &String| text.contains(markers.close);
        let opens = begun.contains(markers.open);
        // What the template ends a prompt with is what the model went on from.
        let of_prompt = off.strip_prefix(head).map(String::from);
        let empty = of_prompt
            .filter(closes)
            .or_else(|| answer(template, head, "").filter(closes))
            .or_else(|| opens.then(|| around.concat()))
            .unwrap_or_default();
        Some(Self { markers, head: head.into(), around, empty })
    }

    /// Puts the reasoning of answers into a rendered text, at their marks.
    fn insert(&self, rendered: &str, answers: &[Answer], marks: [char; 2]) -> Option<String> {
        let [begin, end] = marks;
        // A template that escapes marks writes answers in another form.
        let escaped = |mark: char| format!("\\u{:04x}", u32::from(mark));
        if marks.iter().any(|mark| rendered.contains(&escaped(*mark))) {
            return None;
        }
        let mut out = String::with_capacity(rendered.len());
        let (mut rest, mut next) = (rendered, 0);
        while let Some((before, marked)) = rest.split_once(begin) {
            let (index, after) = marked.split_once(begin)?;
            let index: usize = index.parse().ok()?;
            let answer = answers.get(index).filter(|_| index >= next)?;
            self.place(before, answer, &mut out)?;
            (rest, next) = (after, index + 1);
        }
        out.push_str(rest);
        out.retain(|c| c != end);
        Some(out)
    }

    /// Appends the text before the mark of an answer, with its reasoning.
    fn place(&self, before: &str, answer: &Answer, out: &mut String) -> Option<()> {
        let block = match answer.reasoning.as_str() {
            "" => self.empty.clone(),
            text => format!("{}{text}{}", self.around[0], self.around[1]),
        };
        let begins = before.rfind(&self.head).filter(|_| !self.head.is_empty());
        let gap = &before[begins.map_or(before.len(), |at| at + self.head.len())..];
        // The template may have written a block itself, which is empty.
        let ReasoningMarkers { open, close } = self.markers;
        let own = gap.rfind(close).map_or(0, |at| at + close.len());
        let written: String = gap[..own].split_whitespace().collect();
        let is_block = own == 0 || written == close || written == format!("{open}{close}");
        let call = gap[own..].trim_start_matches('\n');
        let is_head =
            if answer.in_call { call.len() <= LONGEST_HEAD } else { call.trim().is_empty() };
        let fits = begins.is_some() && is_block && is_head;
        match (fits, answer.in_call) {
            (true, _) if block.is_empty() => out.push_str(before),
            (true, _) => {
                let call = if answer.in_call { call } else { "" };
                out.extend([&before[..before.len() - gap.len()], &block, call]);
            }
            // After a tool's result some templates write no beginning.
            (false, false) if answer.reasoning.is_empty() => out.push_str(before),
            (false, false)
                if before.ends_with(['>', ']', '\n'])
                    && !before.trim_end().ends_with(self.markers.close) =>
            {
                out.extend([before, &block]);
            }
            (false, _) => return None,
        }
        Some(())
    }
}

/// Returns the text that makes the model answer.
fn generation_prompt(template: &ChatTemplate, thinks: bool) -> Option<String> {
    let render = |add: bool| {
        let mut options = RenderOptions { add_generation_prompt: add, ..RenderOptions::default() };
        options.variables.insert("enable_thinking".into(), thinks.into());
        template.render_with(&json!([{"role": "user", "content": "asked"}]), &options).ok()
    };
    let (prompt, bare) = (render(true)?, render(false)?);
    prompt.strip_prefix(&bare).map(String::from)
}

/// Returns the text between the beginning of the last answer and its content.
fn answer(template: &ChatTemplate, head: &str, reasoning: &str) -> Option<String> {
    let messages = json!([
        {"role": "user", "content": "asked"},
        {"role": "assistant", "content": "answered", "reasoning_content": reasoning},
    ]);
    let text = template.render_with(&messages, &RenderOptions::default()).ok()?;
    let before = &text[..text.rfind("answered")?];
    let begins = before.find("asked").filter(|_| head.is_empty()).map(|at| at + "asked".len());
    let begins = begins.or_else(|| before.rfind(head).map(|at| at + head.len()))?;
    Some(before[begins..].into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::TextParts;

    fn prompt(source: &str, messages: Value, thinks: Option<bool>, keeps: bool) -> String {
        let parts = TextParts { chat_template: Some(source.into()), ..TextParts::default() };
        let template = ChatTemplate::new(&parts).expect("valid").expect("there");
        let mut options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        options.variables.insert(PRESERVE_THINKING.into(), keeps.into());
        options.variables.extend(thinks.map(|thinks| ("enable_thinking".into(), thinks.into())));
        template.prompt(messages, options).expect("renders").text().to_string()
    }

    const THINK: &str = "{%- for m in messages %}<|{{ m.role }}|>\n";
    const ENDS: &str = "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n";
    const BLOCK: &str = "<think>\n\n</think>\n\n";

    /// Templates in the manner of Qwen3.5 (the prompt opens the reasoning), Qwen3 (the model does) and
    /// DeepSeek-R1 (no answer shows reasoning), with the name of a call after a text of its own.
    fn templates() -> [String; 3] {
        let call = "{% if m.tool_calls %}{% if m.content|trim %}{{ '\n' }}{% endif %}<call>{{ m.tool_calls[0].function.name }}</call>{% endif %}";
        let last = "{% if m.role == 'assistant' and loop.last %}<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}";
        let off = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n";
        [
            format!(
                "{THINK}{last}{{{{ m.content|trim }}}}{call}{ENDS}{off}{{% else %}}<think>\n{{% endif %}}{{% endif %}}"
            ),
            format!(
                "{THINK}{last}{{{{ m.content|trim }}}}{call}{ENDS}{off}{{% endif %}}{{% endif %}}"
            ),
            format!(
                "{THINK}{{{{ m.content.split('</think>')[-1]|trim }}}}{call}{ENDS}<think>\n{{% endif %}}"
            ),
        ]
    }

    #[test]
    fn earlier_answers_are_as_they_were_generated() {
        let user = |text: &str| json!({"role": "user", "content": text});
        let call =
            json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}});
        for (number, source) in templates().iter().enumerate() {
            // Prompt and output of each turn, and what a client makes of them.
            let mut messages = vec![user("a")];
            let thought =
                if number == 1 { "<think>\nHm.\n</think>\n\n" } else { "Hm.\n</think>\n\n" };
            let turns = [
                (
                    format!("{thought}Yes. "),
                    json!({"content": "Yes. ", "reasoning_content": "Hm."}),
                ),
                (
                    format!("{thought}<call>f</call>"),
                    json!({"content": "", "reasoning": "Hm.", "tool_calls": [call]}),
                ),
                (
                    format!("{thought}So.\n<call>f</call>"),
                    json!({"content": "So.", "thinking": "Hm.", "tool_calls": [call]}),
                ),
                (
                    format!("{thought}<call>f</call>"),
                    json!({"content": "<think>\nHm.\n</think>\n\n", "tool_calls": [call]}),
                ),
                (format!("{thought}No."), json!({"content": "<think>\nHm.\n</think>\n\nNo."})),
            ];
            for (output, mut answer) in turns {
                let before = prompt(source, messages.clone().into(), None, true) + &output;
                answer["role"] = "assistant".into();
                messages.extend([answer, user("b <|assistant|>\nc")]);
                let after = prompt(source, messages.clone().into(), None, true);
                assert!(after.starts_with(&before), "{number}: {before:?} {after:?}");
            }
            // The last two answers have their thinking in their texts.
            messages.truncate(7);
            let plain = prompt(source, messages.into(), None, false);
            assert!(!plain.contains("Hm."), "{plain}");
        }
    }

    #[test]
    fn answers_without_reasoning_keep_the_empty_block() {
        for source in &templates()[..2] {
            let messages = json!([{"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
            let before = prompt(source, json!([messages[0]]), Some(false), true);
            assert!(before.ends_with(BLOCK), "{before}");
            for thinks in [None, Some(true), Some(false)] {
                let after = prompt(source, messages.clone(), thinks, true);
                assert!(after.starts_with(&format!("{before}b<|end|>")), "{after}");
            }
        }
    }

    #[test]
    fn other_conversations_stay_as_they_are() {
        let [source, ..] = templates();
        let cut = json!([{"role": "user", "content": "a"},
            {"role": "assistant", "content": "<think>\nb"}, {"role": "user", "content": "c"}]);
        for messages in [cut, json!([{"role": "user", "content": "\u{e000}\\ue001"}])] {
            let plain = prompt(&source, messages.clone(), None, false);
            assert_eq!(prompt(&source, messages, None, true), plain);
        }
        // A template that writes answers in another form.
        let json = "{{ messages|tojson }}<|assistant|>\n<think>\n{# </think> #}";
        let messages = json!([{"role": "assistant", "content": "b", "reasoning_content": "Hm."}]);
        let plain = prompt(json, messages.clone(), None, false);
        assert_eq!(prompt(json, messages, None, true), plain);
    }
}
