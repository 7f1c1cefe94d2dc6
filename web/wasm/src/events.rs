//! What happened, as JSON.

use serde::Serialize;
use std::collections::BTreeMap;
use wrinklefree::decode::{Sampled, Slot};
use wrinklefree::engine::{Engine, Event, FinishReason, SeqId, Step};
use wrinklefree::text::Tokenizer;

/// One pass.
#[derive(Serialize)]
pub struct Passed {
    ran: bool,
    prefill_rows: usize,
    decode_rows: usize,
    events: Vec<Said>,
}

/// One event.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    Token {
        id: u32,
        token: u32,
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprob: Option<f32>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        top: Vec<(u32, f32)>,
    },
    Slots {
        id: u32,
        slots: Vec<ShownSlot>,
    },
    End {
        id: u32,
        reason: &'static str,
        text: String,
        prompt_tokens: usize,
        generated_tokens: usize,
        passes: usize,
        cached_tokens: usize,
    },
}

/// A slot for people to look at.
#[derive(Serialize)]
struct ShownSlot {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u32>,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    certainty: Option<f32>,
}

/// The requests under way, by the engine's names for them.
#[derive(Default)]
pub struct Requests {
    known: BTreeMap<SeqId, Counts>,
    next: u32,
}

#[derive(Clone, Copy)]
struct Counts {
    id: u32,
    prompt: usize,
    generated: usize,
}

impl Requests {
    /// A number for a new request.
    pub fn add(&mut self, seq: SeqId, prompt: usize) -> u32 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.known.insert(seq, Counts { id, prompt, generated: 0 });
        id
    }

    /// The engine's name of a request that has not ended.
    pub fn find(&self, id: u32) -> Option<SeqId> {
        self.known.iter().find(|(_, counts)| counts.id == id).map(|(&seq, _)| seq)
    }

    /// What a step left behind.
    pub fn collect(&mut self, engine: &mut Engine, step: Step) -> Passed {
        let (ran, prefill_rows, decode_rows) = match step {
            Step::Ran { prefill_rows, decode_rows } => (true, prefill_rows, decode_rows),
            Step::Idle => (false, 0, 0),
        };
        let mut events = Vec::new();
        while let Some(event) = engine.poll() {
            events.extend(self.say(event, engine.tokenizer()));
        }
        Passed { ran, prefill_rows, decode_rows, events }
    }

    fn say(&mut self, event: Event, tokenizer: Option<&Tokenizer>) -> Option<Said> {
        match event {
            Event::Token { seq, sampled: Sampled { token, logprob, top }, text } => {
                let counts = self.known.get_mut(&seq)?;
                counts.generated += 1;
                Some(Said::Token { id: counts.id, token, text, logprob, top })
            }
            Event::Slots { seq, slots } => {
                let slots = slots.into_iter().map(|slot| shown(slot, tokenizer)).collect();
                Some(Said::Slots { id: self.known.get(&seq)?.id, slots })
            }
            Event::Finished { seq, reason, text, passes, cached } => {
                let Counts { id, prompt, generated } = self.known.remove(&seq)?;
                Some(Said::End {
                    id,
                    reason: reason_name(reason),
                    text,
                    prompt_tokens: prompt,
                    generated_tokens: generated,
                    passes,
                    cached_tokens: cached,
                })
            }
            // Nobody can ask for these here.
            Event::Scored { .. } | Event::Embedded { .. } => None,
        }
    }
}

fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
        FinishReason::Constraint => "constraint",
    }
}

fn shown(slot: Slot, tokenizer: Option<&Tokenizer>) -> ShownSlot {
    let (state, token, certainty) = match slot {
        Slot::Final(token, certainty) => ("final", Some(token), certainty),
        Slot::Provisional(token, certainty) => ("provisional", Some(token), certainty),
        Slot::Masked => ("masked", None, None),
    };
    // Entropy and margin are no probabilities; what people see is from 0 to 1 whatever it is.
    let certainty = certainty.filter(|c| c.is_finite()).map(|c| c.clamp(0.0, 1.0));
    let text = token.map(|id| text(id, tokenizer)).unwrap_or_default();
    ShownSlot { state, token, text, certainty }
}

/// A token by itself; part of a character gives U+FFFD.
fn text(id: u32, tokenizer: Option<&Tokenizer>) -> String {
    match tokenizer {
        Some(t) if t.is_special(id) => t.token(id).unwrap_or_default(),
        Some(t) => String::from_utf8_lossy(t.bytes(id)).into_owned(),
        None => id.to_string(),
    }
}
