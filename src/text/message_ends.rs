//! Ends of messages in a rendered prompt, after which other prompts go on.

use super::{Prompt, Tokenizer};
use serde_json::{Value, json};

impl Prompt {
    /// Returns the numbers of first tokens of this prompt up to the end of the system text and tools, and
    /// up to the end of the last question, where the prompt has them. Other prompts go on there.
    ///
    /// The prompt shows these `messages`, has these `tokens`, and `stable` is the end of all messages
    /// ([`stable_prefix`](Self::stable_prefix)). `render` renders other messages in the same way,
    /// without the generation prompt.
    #[must_use]
    pub fn message_ends(
        &self,
        messages: &[Value],
        (tokens, stable): (&[u32], Option<usize>),
        tokenizer: &Tokenizer,
        render: impl Fn(&[Value]) -> Option<Prompt>,
    ) -> [Option<usize>; 2] {
        let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
        let is_system = |message: &&Value| matches!(&*role(message), "system" | "developer");
        let system = messages.iter().take_while(is_system).count();
        // Another question shows what does not depend on this one.
        let first = messages.get(system).and_then(|message| message["content"].as_str());
        let other =
            if first.is_some_and(|text| text.trim_start().starts_with('?')) { "!" } else { "?" };
        let mut begin = messages[..system].to_vec();
        begin.push(json!({"role": "user", "content": other}));
        let common = |prompt: Prompt| self.tokens_in_common(&prompt, tokens, tokenizer);
        let after_system = render(&begin).map(common);
        let question = messages.iter().rposition(|message| role(message) == "user");
        let after_question = match question {
            Some(last) if last + 1 == messages.len() => stable,
            Some(last) => render(&messages[..=last]).map(common),
            None => None,
        };
        [after_system, after_question]
    }

    /// Returns the number of first tokens of this prompt, which has these `tokens`, whose text is at the
    /// beginning of another prompt.
    fn tokens_in_common(&self, other: &Self, tokens: &[u32], tokenizer: &Tokenizer) -> usize {
        let both = self.text().bytes().zip(other.text().bytes());
        let mut left = both.take_while(|(a, b)| a == b).count();
        let fits = |token: &&u32| {
            let rest = left.checked_sub(tokenizer.bytes(**token).len());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        tokens.iter().take_while(fits).count()
    }
}
