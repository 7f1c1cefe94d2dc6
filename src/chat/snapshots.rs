//! The whole output so far, with marks for what block diffusion has not decided yet.

use super::{OutputParser, OutputPieces};
use crate::engine::{EventKind, Request, Slot};
use crate::text::Tokenizer;

/// Stands in a [`Snapshot`] for a token that is not decided yet: U+2591, a light shade.
pub const MASK_CHARACTER: char = '\u{2591}';

/// Bytes of an output that has a snapshot for every pass. One of twice this length has a snapshot for every
/// second pass, and so on: the bytes of all snapshots then grow with the number of passes alone.
const BYTES_PER_PASS: usize = 16 << 10;

/// The whole output so far. It replaces the one before; [`MASK_CHARACTER`] stands for each token that is not
/// decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The answer.
    pub text: String,
    /// The reasoning before it; empty if there is none.
    pub reasoning: String,
}

/// Makes snapshots of an output from its events. The last one equals the whole output.
///
/// ```
/// use wrinklefree::chat::{OutputParser, Snapshots};
/// use wrinklefree::decode::Sampled;
/// use wrinklefree::engine::{EventKind, Request};
///
/// let mut snapshots = Snapshots::new(&Request::default(), OutputParser::default(), None);
/// let sampled = Sampled { token: 5, logprob: None, top: Vec::new() };
/// snapshots.push(&EventKind::Token { sampled, text: "Hi".into() });
/// snapshots.push(&EventKind::Slots(Vec::new()));
/// assert_eq!(snapshots.take().expect("a pass has ended").text, "Hi");
/// ```
#[derive(Clone, Debug)]
pub struct Snapshots {
    /// Splits the final text.
    pieces: OutputPieces,
    /// The part of the output that is final.
    done: Snapshot,
    /// The text from the first token on that the last pass left undecided.
    tail: String,
    /// Number of tokens that may still come.
    left: usize,
    eos: Vec<u32>,
    tokenizer: Option<Tokenizer>,
    /// True if slots are places of the output, and not drafts.
    denoises: bool,
    /// True if the output has changed since the last snapshot.
    changed: bool,
    /// Number of passes since the last snapshot.
    passes: usize,
    /// True between the passes: all tokens of the last one have come.
    settled: bool,
    ended: bool,
}

impl Snapshots {
    /// Begins with the output of a request that has [`Request::watch`]; `parser` parses it.
    #[must_use]
    pub fn new(request: &Request, parser: OutputParser, tokenizer: Option<&Tokenizer>) -> Self {
        Self {
            pieces: OutputPieces::new(parser),
            done: Snapshot::default(),
            tail: String::new(),
            left: request.max_tokens,
            eos: request.eos.clone(),
            tokenizer: tokenizer.cloned(),
            denoises: request.denoises(),
            changed: false,
            passes: 0,
            settled: false,
            ended: false,
        }
    }

    /// Learns of an event. Slots may be left out where nobody takes the snapshot of their pass.
    pub fn push(&mut self, event: &EventKind) {
        match event {
            EventKind::Token { text, .. } => {
                self.left = self.left.saturating_sub(1);
                let piece = self.pieces.push(text);
                self.append(&piece.text, &piece.reasoning);
                self.settled = false;
            }
            EventKind::Slots(slots) => {
                (self.passes, self.settled) = (self.passes + 1, true);
                let tail = if self.denoises { self.undecided(slots) } else { String::new() };
                self.changed |= tail != self.tail;
                self.tail = tail;
            }
            EventKind::Finished { text, .. } => {
                let piece = self.pieces.finish(text);
                self.append(&piece.text, &piece.reasoning);
                self.ended = true;
            }
            EventKind::Scored(_) | EventKind::Embedded(_) | EventKind::Logits(_) => {}
        }
    }

    /// Takes the snapshot after the last event; `None` while nothing has changed, or within a pass. The end of
    /// the output always has one.
    pub fn take(&mut self) -> Option<Snapshot> {
        let length = self.done.text.len() + self.done.reasoning.len();
        let due = self.changed && self.settled && self.passes > length / BYTES_PER_PASS;
        if !due && !self.ended {
            return None;
        }
        (self.changed, self.passes, self.ended) = (false, 0, false);
        let mut snapshot = self.done.clone();
        if !self.tail.is_empty() {
            let tail = self.pieces.clone().finish(&self.tail);
            snapshot.text += &tail.text;
            snapshot.reasoning += &tail.reasoning;
        }
        Some(snapshot)
    }

    /// Adds final text. The slots of an earlier pass are then of no use.
    fn append(&mut self, text: &str, reasoning: &str) {
        self.done.text += text;
        self.done.reasoning += reasoning;
        self.tail.clear();
        self.changed = true;
    }

    /// Returns the text from the first undecided slot on, as far as the output may go.
    fn undecided(&self, slots: &[Slot]) -> String {
        let is_final = |slot: &&Slot| matches!(slot, Slot::Final(..));
        let (mut text, mut run) = (String::new(), Vec::new());
        for slot in slots.iter().skip_while(is_final).take(self.left) {
            match *slot {
                Slot::Final(token, _) if self.eos.contains(&token) => break,
                Slot::Final(token, _) => run.extend_from_slice(self.bytes(token)),
                Slot::Provisional(..) | Slot::Masked => {
                    text += &String::from_utf8_lossy(&std::mem::take(&mut run));
                    text.push(MASK_CHARACTER);
                }
            }
        }
        text + &String::from_utf8_lossy(&run)
    }

    fn bytes(&self, token: u32) -> &[u8] {
        let tokenizer = self.tokenizer.as_ref().filter(|t| !t.is_special(token));
        tokenizer.map_or(&[], |tokenizer| tokenizer.bytes(token))
    }
}
