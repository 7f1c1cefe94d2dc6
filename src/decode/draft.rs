//! Sources of drafts for [`Verify`](super::Verify).

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
    /// The model's block for multi-token prediction, which reads the hidden states of earlier passes. For
    /// models that have one: [`Model::draft`](crate::model::Model::draft).
    Mtp {
        /// Maximum number of tokens in a draft.
        length: usize,
        /// Cost of a drafted token relative to a pass of one row:
        /// [`Model::mtp_cost`](crate::model::Model::mtp_cost).
        cost: f32,
    },
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
            Self::Ngram { length, .. }
            | Self::Denoise { length, .. }
            | Self::Mtp { length, .. } => length,
        }
    }

    /// Cost of drafting one token in addition to passes of the model, relative to a pass of one row.
    pub(super) fn token_cost(&self) -> f32 {
        match *self {
            Self::Mtp { cost, .. } => cost,
            Self::Ngram { .. } | Self::Denoise { .. } => 0.0,
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
            Self::Mtp { .. } => false,
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
            Self::Ngram { .. } | Self::Mtp { .. } => unreachable!("it requests no logits"),
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
    fn the_longest_match_wins_and_of_those_the_latest() {
        assert_eq!(continuation(&[1, 2, 9, 2, 8, 1, 2], (1, 4)), [9, 2, 8, 1, 2]);
        assert_eq!(continuation(&[1, 2, 9, 2, 8, 1, 2], (1, 1)), [8, 1, 2]);
        assert_eq!(continuation(&[5, 5, 5], (1, 2)), [5]);
        assert!(continuation(&[1, 2, 9, 2], (2, 3)).is_empty());
        assert!(continuation(&[1, 2, 3], (1, 3)).is_empty());
        assert!(continuation(&[1], (1, 3)).is_empty());
    }
}
