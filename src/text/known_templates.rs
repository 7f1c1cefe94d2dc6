//! Chat templates that are known by name, and those of files that are known to be wrong.

use super::Tokenizer;
use crate::format::TextParts;

/// Templates by name, as their models' authors define them.
const TEMPLATES: [(&str, &str); 7] = [
    ("bitnet", BITNET),
    ("chatml", CHATML),
    ("gemma", GEMMA),
    ("hunyuan", HUNYUAN),
    ("llama3", LLAMA3),
    ("phi3", PHI3),
    ("zephyr", ZEPHYR),
];

const BITNET: &str = "\
{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}\
{{ message['role'] | capitalize + ': ' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}\
{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}";

const CHATML: &str = "\
{% for message in messages %}\
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The first user message carries the system message, for which Gemma has no role.
const GEMMA: &str = "\
{{ bos_token }}{% set system = namespace(text='') %}\
{% for message in messages %}{% if message['role'] == 'system' %}\
{% set system.text = message['content'] | trim + '\\n\\n' %}{% else %}\
{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' }}\
{% if message['role'] == 'user' %}{{ system.text }}{% set system.text = '' %}{% endif %}\
{{ message['content'] | trim + '<end_of_turn>\\n' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

/// Hy-MT2-1.8B and other models with these tokens. Only the first message may be the system's.
const HUNYUAN: &str = "\
{{ '<｜hy_begin▁of▁sentence｜>' }}{% for message in messages %}\
{% if message['role'] == 'user' %}{{ '<｜hy_User｜>' + message['content'] }}\
{% elif message['role'] == 'assistant' %}\
{{ '<｜hy_Assistant｜>' + message['content'] + '<｜hy_place▁holder▁no▁2｜>' }}\
{% elif loop.first %}{{ message['content'] + '<｜hy_place▁holder▁no▁3｜>' }}\
{% else %}{{ raise_exception('only the first message may be a system message') }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<｜hy_Assistant｜>' }}{% endif %}";

/// A token that only models with this template have.
const HUNYUAN_USER: &str = "<｜hy_User｜>";

const LLAMA3: &str = "\
{{ bos_token }}{% for message in messages %}\
{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}\
{{ message['content'] | trim + '<|eot_id|>' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

const PHI3: &str = "\
{% for message in messages %}\
{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

const ZEPHYR: &str = "\
{% for message in messages %}\
{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token + '\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

/// A template that is known to be wrong.
struct WrongTemplate {
    /// A text that only this template has.
    contains: &'static str,
    /// Name of the template that its model was trained with.
    right: &'static str,
    reason: &'static str,
}

const WRONG: [WrongTemplate; 1] = [WrongTemplate {
    contains: "BITNETAssistant",
    right: "bitnet",
    reason: "BitNet's converter wrote a placeholder (`Human: … BITNETAssistant: …`), and the model was \
             trained with `User: …<|eot_id|>Assistant: …`",
}];

/// Names of the known templates, for messages.
#[must_use]
pub fn template_names() -> String {
    TEMPLATES.map(|(name, _)| name).join(", ")
}

/// Returns the template that a user means: one with this name, or the text itself if it is Jinja.
#[must_use]
pub fn template_text(template: &str) -> Option<&str> {
    let named = TEMPLATES.iter().find(|(name, _)| *name == template);
    let is_jinja = template.contains("{{") || template.contains("{%");
    named.map(|(_, text)| *text).or(is_jinja.then_some(template))
}

/// Adds a template where a model's files have none, if its tokens tell which one it was trained with.
/// Returns a note that says so.
pub(super) fn supply_missing(
    parts: &mut TextParts,
    tokenizer: Option<&Tokenizer>,
) -> Option<String> {
    let known = parts.chat_template.is_none() && tokenizer?.id(HUNYUAN_USER).is_some();
    known.then(|| {
        parts.chat_template = Some(HUNYUAN.into());
        format!("the model's files have no chat template; `hunyuan` fits its token {HUNYUAN_USER}")
    })
}

/// Replaces a template that is known to be wrong. Returns a note that says so.
pub(super) fn replace_wrong(parts: &mut TextParts) -> Option<String> {
    let wrong = wrong(parts)?;
    parts.chat_template = template_text(wrong.right).map(str::to_owned);
    Some(format!(
        "the chat template of the model's files is known to be wrong, and `{}` replaces it: {}",
        wrong.right, wrong.reason
    ))
}

fn wrong(parts: &TextParts) -> Option<&'static WrongTemplate> {
    let template = parts.chat_template.as_deref()?;
    WRONG.iter().find(|wrong| template.contains(wrong.contains))
}
