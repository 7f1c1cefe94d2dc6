//! Events of the engine as JSON.

use crate::request::BuiltRequest;
use serde::Serialize;
use wrinklefree::chat::{CallPiece, OutputPiece, OutputPieces, Snapshot, Snapshots};
use wrinklefree::decode::{Sampled, Slot};
use wrinklefree::engine::{Engine, Event, EventKind, FinishReason, SeqId, Step};
use wrinklefree::text::Tokenizer;

/// Result of one forward pass.
#[derive(Serialize)]
pub struct StepReport {
    ran: bool,
    prefill_rows: usize,
    decode_rows: usize,
    events: Vec<EventJson>,
}

/// One event of a request.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum EventJson {
    Token {
        id: u32,
        token: u32,
        #[serde(flatten)]
        output: OutputJson,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprob: Option<f32>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        top: Vec<(u32, f32)>,
    },
    Slots {
        id: u32,
        slots: Vec<SlotJson>,
        #[serde(skip_serializing_if = "Option::is_none")]
        snapshot: Option<SnapshotJson>,
    },
    End {
        id: u32,
        reason: &'static str,
        #[serde(flatten)]
        output: OutputJson,
        #[serde(skip_serializing_if = "Option::is_none")]
        snapshot: Option<SnapshotJson>,
        prompt_tokens: usize,
        generated_tokens: usize,
        passes: usize,
        cached_tokens: usize,
        drafted_tokens: u64,
        accepted_tokens: u64,
    },
}

/// New text of an output: of the answer, of the reasoning before it, and of calls.
#[derive(Default, Serialize)]
struct OutputJson {
    text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<CallJson>,
}

/// The whole output so far.
#[derive(Serialize)]
struct SnapshotJson {
    text: String,
    reasoning: String,
}

impl From<Snapshot> for SnapshotJson {
    fn from(Snapshot { text, reasoning }: Snapshot) -> Self {
        Self { text, reasoning }
    }
}

/// A part of a call.
#[derive(Serialize)]
struct CallJson {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

impl From<OutputPiece> for OutputJson {
    fn from(OutputPiece { text, reasoning, calls }: OutputPiece) -> Self {
        let call = |CallPiece { index, name, arguments }| CallJson { index, name, arguments };
        Self { text, reasoning, calls: calls.into_iter().map(call).collect() }
    }
}

/// A position of the block or draft in progress, with its text.
#[derive(Serialize)]
struct SlotJson {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u32>,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    certainty: Option<f32>,
}

/// The requests in progress, with the engine's sequence ids. They are few, and the code of a map is large.
#[derive(Default)]
pub struct Requests {
    active: Vec<(SeqId, Counters)>,
    next_id: u32,
}

struct Counters {
    id: u32,
    prompt: usize,
    generated: usize,
    /// Splits the output.
    pieces: OutputPieces,
    /// True if slots are reported.
    watched: bool,
    /// Makes snapshots, if they are reported.
    snapshots: Option<Snapshots>,
}

impl Requests {
    /// Adds a request, with what reads its output, and returns its id.
    pub fn add(&mut self, seq: SeqId, prompt: usize, built: BuiltRequest) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let BuiltRequest { parser, watched, snapshots, .. } = built;
        let pieces = OutputPieces::new(parser);
        self.active.push((seq, Counters { id, prompt, generated: 0, pieces, watched, snapshots }));
        id
    }

    /// Returns the sequence id of a request that has not ended.
    pub fn find(&self, id: u32) -> Option<SeqId> {
        self.active.iter().find(|(_, counts)| counts.id == id).map(|&(seq, _)| seq)
    }

    /// Drains the engine's events after a step.
    pub fn collect(&mut self, engine: &mut Engine, step: Step) -> StepReport {
        let (ran, prefill_rows, decode_rows) = match step {
            Step::Ran { prefill_rows, decode_rows } => (true, prefill_rows, decode_rows),
            Step::Idle => (false, 0, 0),
        };
        let mut events = Vec::new();
        while let Some(event) = engine.poll() {
            events.extend(self.convert(event, engine.tokenizer()));
        }
        StepReport { ran, prefill_rows, decode_rows, events }
    }

    fn convert(&mut self, event: Event, tokenizer: Option<&Tokenizer>) -> Option<EventJson> {
        let place = self.active.iter().position(|&(seq, _)| seq == event.seq)?;
        let counts = &mut self.active[place].1;
        let snapshot = counts.snapshots.as_mut().and_then(|snapshots| {
            snapshots.push(&event.kind);
            snapshots.take().map(SnapshotJson::from)
        });
        match event.kind {
            EventKind::Token { sampled: Sampled { token, logprob, top }, text } => {
                counts.generated += 1;
                let output = counts.pieces.push(&text).into();
                Some(EventJson::Token { id: counts.id, token, output, logprob, top })
            }
            EventKind::Slots(slots) => {
                let slots = slots.into_iter().filter(|_| counts.watched);
                let slots = slots.map(|slot| slot_json(slot, tokenizer)).collect();
                Some(EventJson::Slots { id: counts.id, slots, snapshot })
            }
            EventKind::Finished { reason, text, passes, cached, drafts } => {
                let (_, mut counts) = self.active.swap_remove(place);
                let output = counts.pieces.finish(&text).into();
                let Counters { id, prompt, generated, pieces, .. } = counts;
                Some(EventJson::End {
                    id,
                    reason: reason_name(pieces.end(reason)),
                    output,
                    snapshot,
                    prompt_tokens: prompt,
                    generated_tokens: generated,
                    passes,
                    cached_tokens: cached,
                    drafted_tokens: drafts.drafted,
                    accepted_tokens: drafts.accepted,
                })
            }
            // No request of this shell asks for these.
            EventKind::Scored(_) | EventKind::Embedded(_) | EventKind::Logits(_) => None,
        }
    }
}

fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
        FinishReason::Constraint => "constraint",
        FinishReason::NotFinite => "model_error",
    }
}

fn slot_json(slot: Slot, tokenizer: Option<&Tokenizer>) -> SlotJson {
    let (state, token, certainty) = match slot {
        Slot::Final(token, certainty) => ("final", Some(token), certainty),
        Slot::Provisional(token, certainty) => ("provisional", Some(token), certainty),
        Slot::Masked => ("masked", None, None),
    };
    // Entropy and margin are not probabilities; the page shows a value from 0 to 1.
    let certainty = certainty.filter(|c| c.is_finite()).map(|c| c.clamp(0.0, 1.0));
    let text = token.map(|id| token_text(id, tokenizer)).unwrap_or_default();
    SlotJson { state, token, text, certainty }
}

/// Returns the text of one token; an incomplete character becomes U+FFFD.
fn token_text(id: u32, tokenizer: Option<&Tokenizer>) -> String {
    match tokenizer {
        Some(t) if t.is_special(id) => t.token(id).unwrap_or_default(),
        Some(t) => String::from_utf8_lossy(t.bytes(id)).into_owned(),
        None => id.to_string(),
    }
}
