//! Beginnings of a prompt that other prompts share.

use crate::engine::MessageEnds;
use crate::text::{Prompt, Tokenizer};
use serde_json::Value;

/// Numbers of first tokens of a prompt that other prompts begin with. A prefix cache needs to know them for a
/// model with recurrent states, which it keeps at few positions only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedPrefixes {
    /// The prefix that the next turn begins with; `None` is the whole prompt.
    pub stable: Option<usize>,
    /// The ends of messages after which other prompts go on.
    pub message_ends: MessageEnds,
}

impl SharedPrefixes {
    /// Finds the prefixes of a prompt that shows these `messages` and has these `tokens`. With `preserves` it
    /// keeps earlier thinking, so the next turn begins with all of it. `render` renders other messages in
    /// the same way, without the generation prompt.
    pub fn find(
        (prompt, tokens): (&Prompt, &[u32]),
        messages: &[Value],
        tokenizer: &Tokenizer,
        preserves: bool,
        render: impl Fn(&[Value]) -> Option<Prompt>,
    ) -> Self {
        let end = || prompt.stable_prefix(render(messages)?.text(), tokens.len(), tokenizer);
        let stable = if preserves { Some(tokens.len()) } else { end() };
        let [system, question] = prompt.message_ends(messages, (tokens, stable), tokenizer, render);
        Self { stable, message_ends: MessageEnds { system, question } }
    }
}
