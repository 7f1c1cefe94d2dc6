//! Where drafts come from.

/// Proposes tokens that may come next.
#[derive(Clone, Debug, PartialEq)]
pub enum Drafter {
    /// What followed the last occurrence of the latest tokens (prompt lookup): for text that repeats
    /// itself or its prompt. Costs no pass.
    Ngram {
        /// Tokens of a draft at most.
        length: usize,
        /// Tokens that must match, at least and at most; the longest match wins.
        matches: (usize, usize),
    },
    /// One denoising pass of the model over masked slots: for models that have both paths.
    Denoise {
        /// Tokens of a draft at most.
        length: usize,
        /// Id of the MASK token.
        mask: u32,
        /// Whether a slot is predicted by the row before it (shift 1) or by its own.
        shift: bool,
    },
}

impl Drafter {
    /// Most tokens that prompt lookup may compare: it tries each number of them.
    pub const LONGEST_MATCH: usize = 16;

    /// Whether prompt lookup can match so many tokens, at least and at most.
    pub fn can_match((shortest, longest): (usize, usize)) -> bool {
        0 < shortest && shortest <= longest && longest <= Self::LONGEST_MATCH
    }

    /// Tokens of a draft at most.
    pub(super) fn length(&self) -> usize {
        match *self {
            Self::Ngram { length, .. } | Self::Denoise { length, .. } => length,
        }
    }

    /// Passes of the model that a draft takes.
    pub(super) fn passes(&self) -> usize {
        usize::from(matches!(self, Self::Denoise { .. }))
    }

    /// Appends at most `most` drafted tokens to `out`; `true` when they are MASKs that a pass of the
    /// model has to fill.
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
        }
    }

    /// The rows that predict `slots` masked slots behind one known token.
    pub(super) fn rows(&self, slots: usize) -> std::ops::Range<usize> {
        match self {
            Self::Denoise { shift: false, .. } => 1..slots + 1,
            _ => 0..slots,
        }
    }

    /// The most likely token that can be output.
    pub(super) fn best(&self, logits: &[f32]) -> u32 {
        match *self {
            Self::Denoise { mask, .. } => best_except(logits, mask),
            Self::Ngram { .. } => unreachable!("prompt lookup asks for no logits"),
        }
    }
}

/// The most likely token other than `banned`, the first of equals.
fn best_except(logits: &[f32], banned: u32) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (token, &logit) in (0u32..).zip(logits) {
        if logit > best.1 && token != banned {
            best = (token, logit);
        }
    }
    best.0
}

/// What followed the last earlier occurrence of the longest possible run of final tokens; empty when
/// even the shortest one has never occurred before.
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
