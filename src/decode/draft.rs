//! Sources of drafts for [`Verify`](super::Verify).

use super::pass_costs::PassCosts;
use super::sample::uniform;
use std::sync::Arc;

/// A source of drafts: guesses of the next tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum Drafter {
    /// Prompt lookup: drafts what followed the last occurrence of the latest tokens. For text that
    /// repeats itself or its prompt. Costs no pass.
    Ngram {
        /// Maximum number of tokens in a draft.
        length: usize,
        /// Minimum and maximum number of tokens that must match; the longest match wins.
        matches: (usize, usize),
    },
    /// One denoising pass of the model over masked slots. For models that were trained for it.
    Denoise {
        /// Maximum number of tokens in a draft.
        length: usize,
        /// Id of the MASK token.
        mask: u32,
        /// True if the row before a slot predicts it; false if the slot's own row does.
        shift: bool,
    },
    /// A net that reads the hidden states of earlier passes. For models that have one:
    /// [`Model::draft`](crate::model::Model::draft).
    Net {
        /// Maximum number of tokens in a draft.
        length: usize,
        /// The net: [`Model::draft_net`](crate::model::Model::draft_net).
        net: DraftNet,
        /// Drafts end before the first token of a lower confidence; 0 for nets without confidences.
        threshold: f32,
    },
}

/// Kinds of nets that draft from a model's hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftNetKind {
    /// The model's own block for multi-token prediction: a pass drafts one token.
    Mtp,
    /// A drafter from files of its own (DFlash, DSpark): a pass drafts a block of tokens.
    Blocks,
}

/// Properties of a net that drafts, which decide how it is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftNet {
    /// Kind of the net.
    pub kind: DraftNetKind,
    /// Cost of a draft of any length, relative to a pass of the model over one row.
    pub pass_cost: f32,
    /// Cost of each drafted token, relative to a pass of the model over one row.
    pub token_cost: f32,
    /// True if these costs were measured. Otherwise they count bytes of weights, and a row of the net's own
    /// pass costs more in addition.
    pub measured: bool,
    /// Maximum number of tokens in a draft.
    pub longest: usize,
    /// True if the net states its confidence in each token.
    pub confident: bool,
}

/// Number of drafts and of their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Number of drafts.
    pub drafts: u64,
    /// Number of drafted tokens.
    pub drafted: u64,
    /// Number of drafted tokens that were right.
    pub accepted: u64,
}

impl DraftCounts {
    /// Returns the drafts since an earlier count.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            drafts: self.drafts.saturating_sub(earlier.drafts),
            drafted: self.drafted.saturating_sub(earlier.drafted),
            accepted: self.accepted.saturating_sub(earlier.accepted),
        }
    }

    /// Adds other drafts.
    pub fn add(&mut self, other: Self) {
        self.drafts += other.drafts;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }
}

/// Drafts that are right with a given probability, whatever the net says. The net's passes are computed as
/// ever, so speed can be measured with random weights.
#[derive(Clone, Debug, PartialEq)]
pub struct AssumedDrafts {
    /// The text: prompt and output, as autoregressive decoding gives it.
    pub text: Arc<[u32]>,
    /// Probability that a drafted token is right, from 0 to 1.
    pub accept: f64,
    /// Seed of the random numbers, of which each position has its own.
    pub seed: u64,
}

impl AssumedDrafts {
    /// Replaces the tokens of a draft, the first of which has the position `start` in the text. Right ones
    /// are those of the text; wrong ones are other tokens of a vocabulary of `vocab`.
    pub fn replace(&self, start: usize, vocab: usize, draft: &mut [u32]) {
        for (position, token) in (start..).zip(draft) {
            let Some(&right) = self.text.get(position) else { return };
            let accepted = uniform(self.seed, position as u64)[0] < self.accept;
            *token = if accepted { right } else { (right + 1) % vocab as u32 };
        }
    }
}

impl DraftNet {
    /// A block for multi-token prediction of which a token costs so much, relative to a pass of the model
    /// over one row.
    #[must_use]
    pub fn mtp(token_cost: f32) -> Self {
        let (kind, longest, confident) = (DraftNetKind::Mtp, usize::MAX, false);
        Self { kind, pass_cost: 0.0, token_cost, measured: false, longest, confident }
    }
}

impl Drafter {
    /// Maximum number of tokens that prompt lookup may compare. It tries each number, so a large one
    /// would be slow.
    pub const LONGEST_MATCH: usize = 16;

    /// Returns true if prompt lookup supports these minimum and maximum numbers of tokens.
    pub fn can_match((shortest, longest): (usize, usize)) -> bool {
        0 < shortest && shortest <= longest && longest <= Self::LONGEST_MATCH
    }

    /// Maximum number of tokens in a draft.
    pub(super) fn length(&self) -> usize {
        match *self {
            Self::Ngram { length, .. } | Self::Denoise { length, .. } => length,
            Self::Net { length, net, .. } => length.min(net.longest),
        }
    }

    /// Costs of a draft, and of each of its tokens, in addition to passes of the model. They are relative
    /// to a pass of one row.
    pub(super) fn costs(&self, passes: &PassCosts) -> (f32, f32) {
        match *self {
            Self::Net { net: DraftNet { pass_cost, token_cost, measured: true, .. }, .. } => {
                (pass_cost, token_cost)
            }
            Self::Net { net: DraftNet { pass_cost, token_cost, .. }, .. } => {
                (pass_cost, token_cost + (passes.of(2.0) - 1.0) * pass_cost)
            }
            Self::Ngram { .. } | Self::Denoise { .. } => (0.0, 0.0),
        }
    }

    /// Number of passes of the model that a draft costs.
    pub(super) fn passes(&self) -> usize {
        usize::from(matches!(self, Self::Denoise { .. }))
    }

    /// Appends at most `most` drafted tokens to `out`. Returns true if they are MASK tokens that a pass
    /// of the model has to fill. Nothing is appended where the engine runs the drafter.
    pub(super) fn extend(&self, tokens: &[u32], most: usize, out: &mut Vec<u32>) -> bool {
        match *self {
            _ if most == 0 => false,
            Self::Ngram { matches, .. } => {
                out.extend(continuation(tokens, matches).iter().take(most));
                false
            }
            Self::Denoise { mask, .. } => {
                out.extend(std::iter::repeat_n(mask, most));
                true
            }
            Self::Net { .. } => false,
        }
    }

    /// Returns the rows that predict `slots` masked slots after one known token.
    pub(super) fn rows(&self, slots: usize) -> std::ops::Range<usize> {
        match self {
            Self::Denoise { shift: false, .. } => 1..slots + 1,
            _ => 0..slots,
        }
    }

    /// Returns the most likely token except MASK.
    pub(super) fn best(&self, logits: &[f32]) -> u32 {
        match *self {
            Self::Denoise { mask, .. } => argmax(logits, Some(mask)),
            Self::Ngram { .. } | Self::Net { .. } => unreachable!("it requests no logits"),
        }
    }
}

/// Returns the most likely token other than `banned`; the first of equals.
pub(crate) fn argmax(logits: &[f32], banned: Option<u32>) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (token, &logit) in (0u32..).zip(logits) {
        if logit > best.1 && Some(token) != banned {
            best = (token, logit);
        }
    }
    best.0
}

/// Finds the last earlier occurrence of the longest possible suffix, and returns what followed it. Empty
/// if even the shortest suffix has not occurred before.
fn continuation(tokens: &[u32], (shortest, longest): (usize, usize)) -> &[u32] {
    for size in (shortest..=longest.min(tokens.len().saturating_sub(1))).rev() {
        let (before, last) = (&tokens[..tokens.len() - 1], &tokens[tokens.len() - size..]);
        if let Some(at) = before.windows(size).rposition(|window| window == last) {
            return &tokens[at + size..];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumed_drafts_are_right_as_often_as_assumed() {
        let text: Arc<[u32]> = (0..4000).map(|i| i % 100).collect();
        for accept in [0.0, 0.25, 0.75, 1.0] {
            let drafts = AssumedDrafts { text: text.clone(), accept, seed: 3 };
            let (mut all, mut parts) = (vec![7; 4000], vec![7; 4000]);
            drafts.replace(0, 100, &mut all);
            for (i, part) in parts.chunks_mut(3).enumerate() {
                drafts.replace(3 * i, 100, part);
            }
            assert_eq!(all, parts, "a position has one random number");
            let right = all.iter().zip(&text[..]).filter(|(a, b)| a == b).count() as f64;
            assert!((right / 4000.0 - accept).abs() < 0.02, "{right} for {accept}");
            assert!(all.iter().all(|&token| token < 100));
        }
        let mut beyond = [7; 2];
        AssumedDrafts { text, accept: 1.0, seed: 3 }.replace(3999, 100, &mut beyond);
        assert_eq!(beyond, [99, 7]);
    }

    #[test]
    fn the_longest_match_wins_and_of_those_the_latest() {
        assert_eq!(continuation(&[1, 2, 9, 2, 8, 1, 2], (1, 4)), [9, 2, 8, 1, 2]);
        assert_eq!(continuation(&[1, 2, 9, 2, 8, 1, 2], (1, 1)), [8, 1, 2]);
        assert_eq!(continuation(&[5, 5, 5], (1, 2)), [5]);
        assert!(continuation(&[1, 2, 9, 2], (2, 3)).is_empty());
        assert!(continuation(&[1, 2, 3], (1, 3)).is_empty());
        assert!(continuation(&[1], (1, 3)).is_empty());
    }
}
