//! Everything about text that a model's files hold, ready to use.

use super::known_templates::{replace_wrong, supply_missing, template_names, template_text};
use super::{ChatTemplate, EndToken, TextError, Tokenizer, describe_end_tokens, end_tokens};
use crate::format::TextParts;
use std::sync::Arc;

/// Options for [`ModelText::open`].
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// True if control tokens that stand in messages act as such; else they are text there.
    pub allow_control_tokens: bool,
    /// Tokens that end a text in addition to those of the model's files and those that are known by name: exact
    /// names, or ids.
    pub stop_tokens: Vec<String>,
    /// Name of a known chat template, or Jinja, instead of the template of the model's files.
    pub chat_template: Option<String>,
    /// True if templates that are known to be wrong are replaced, and missing ones added where the
    /// vocabulary tells which one fits.
    pub template_fixes: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            allow_control_tokens: false,
            stop_tokens: Vec::new(),
            chat_template: None,
            template_fixes: true,
        }
    }
}

/// Tokenizer, chat template and the tokens that end a text.
///
/// ```
/// use wrinklefree::format::TextParts;
/// use wrinklefree::text::{Message, ModelText, TextOptions};
///
/// let options = TextOptions { chat_template: Some("phi3".into()), ..TextOptions::default() };
/// let text = ModelText::open(TextParts::default(), &[7], None, &options)?;
/// let messages = [Message { role: "user".into(), content: "Hi".into() }];
/// let prompt = text.template.unwrap().render(&messages, true)?;
/// assert_eq!(prompt, "<|user|>\nHi<|end|>\n<|assistant|>\n");
/// assert_eq!(text.end_tokens[0].id, 7);
/// # Ok::<(), wrinklefree::text::TextError>(())
/// ```
#[derive(Debug)]
pub struct ModelText {
    /// `None`: the model takes and gives token ids only.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// `None`: the model only continues text.
    pub template: Option<ChatTemplate>,
    /// Tokens that end a text, with the reasons.
    pub end_tokens: Vec<EndToken>,
    /// Oddities of the files that a user should know of.
    pub notes: Vec<String>,
}

impl ModelText {
    /// Builds the text parts of a model whose files say that the ids `stated` end a text. `mask` is the
    /// id of a diffusion model's mask, which no message may hold.
    ///
    /// # Errors
    /// When the vocabulary, or a template or token of the options, cannot be used.
    pub fn open(
        mut parts: TextParts,
        stated: &[u32],
        mask: Option<u32>,
        options: &TextOptions,
    ) -> Result<Self, TextError> {
        let mut notes = Vec::new();
        let tokenizer = parts.vocabulary.as_ref().map(Tokenizer::new).transpose()?.map(Arc::new);
        let end_tokens = end_tokens(tokenizer.as_deref(), stated, &options.stop_tokens)?;
        if end_tokens.is_empty() && tokenizer.is_some() {
            notes.push(describe_end_tokens(&end_tokens));
        }
        if let Some(pre) = tokenizer.as_deref().and_then(Tokenizer::guessed_pre_tokenizer) {
            notes.push(format!(
                "tokenizer.ggml.pre is missing: the vocabulary looks like `{pre}` and is read so. If \
                 texts are cut in other places than in training, answers get worse"
            ));
        }
        match &options.chat_template {
            Some(template) => {
                let text = template_text(template).ok_or_else(|| TextError::UnknownTemplate {
                    name: template.clone(),
                    known: template_names(),
                })?;
                (parts.chat_template, parts.tool_template) = (Some(text.into()), None);
            }
            None if options.template_fixes => {
                notes.extend(replace_wrong(&mut parts));
                notes.extend(supply_missing(&mut parts, tokenizer.as_deref()));
            }
            None => {}
        }
        let mut template = match options.chat_template {
            Some(_) => ChatTemplate::new(&parts)?,
            None => ChatTemplate::open(&parts),
        };
        if let Some(fault) = template.as_ref().and_then(ChatTemplate::fault) {
            notes.push(format!("the model cannot chat, only continue texts (--raw): {fault}"));
        }
        if let Some(tokenizer) = tokenizer.as_deref().filter(|_| !options.allow_control_tokens) {
            let ids: Vec<u32> = end_tokens.iter().map(|end| end.id).chain(mask).collect();
            template = template.map(|template| template.with_control_tokens(tokenizer, &ids));
        }
        Ok(Self { tokenizer, template, end_tokens, notes })
    }
}
