//! DRY: a penalty on tokens that continue a repetition of the text.

use std::collections::BTreeMap;

/// Settings of DRY ("don't repeat yourself", oobabooga/text-generation-webui#5677).
///
/// A token that would prolong a repetition of `n` tokens loses
/// `multiplier · base^(n − allowed_length)` from its logit, for `n` of at least `allowed_length`. Of
/// several repetitions the longest one counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// Factor of the penalty; above 0.
    pub multiplier: f32,
    /// Base of the penalty; at least 1.
    pub base: f32,
    /// Length of a repetition from which it is penalized.
    pub allowed_length: usize,
    /// Number of last tokens, of prompt and output, in which repetitions are looked for.
    pub window: usize,
    /// Sequences of tokens that no repetition contains, such as a line break. A breaker of one token is
    /// never penalized.
    pub breakers: Vec<Vec<u32>>,
}

impl Default for Dry {
    fn default() -> Self {
        Self {
            multiplier: 0.8,
            base: 1.75,
            allowed_length: 2,
            window: usize::MAX,
            breakers: Vec::new(),
        }
    }
}

impl Dry {
    /// Subtracts the penalties for a token after `text` from the logits.
    pub(super) fn penalize(&self, text: &[u32], logits: &mut [f32]) {
        let text = &text[text.len().saturating_sub(self.window)..];
        let (longest, least) = (self.unbroken(text), self.allowed_length.max(1));
        if longest < least {
            return;
        }
        for (token, length) in repeated(text, longest) {
            let breaks = self.breakers.iter().any(|breaker| breaker[..] == [token]);
            if length >= least
                && !breaks
                && let Some(logit) = logits.get_mut(token as usize)
            {
                *logit -= self.penalty(length);
            }
        }
    }

    fn penalty(&self, length: usize) -> f32 {
        let exponent = (length - self.allowed_length) as f64;
        let penalty = f64::from(self.multiplier) * libm::pow(f64::from(self.base), exponent);
        penalty.min(f64::from(f32::MAX)) as f32
    }

    /// Number of tokens after the last breaker.
    fn unbroken(&self, text: &[u32]) -> usize {
        let ends = |length: &usize| {
            let before = &text[..text.len() - length];
            self.breakers.iter().any(|b| !b.is_empty() && before.ends_with(b))
        };
        (0..text.len()).find(ends).unwrap_or(text.len())
    }
}

/// Returns the tokens that followed an earlier occurrence of the text's end, with the length of the
/// longest such occurrence, at most `most`.
fn repeated(text: &[u32], most: usize) -> BTreeMap<u32, usize> {
    let mut lengths = BTreeMap::new();
    for (distance, length) in common_suffixes(text).into_iter().enumerate().skip(1) {
        if length > 0 {
            let next = text[text.len() - distance];
            let longest = lengths.entry(next).or_insert(0);
            *longest = length.min(most).max(*longest);
        }
    }
    lengths
}

/// Returns, for each distance d, the number of last tokens that are equal to those d positions earlier:
/// the Z function of the reversed text, in linear time.
fn common_suffixes(text: &[u32]) -> Vec<usize> {
    let n = text.len();
    let reversed = |i: usize| text[n - 1 - i];
    let mut z = vec![0; n];
    let (mut left, mut right) = (0, 0);
    for i in 1..n {
        if i < right {
            z[i] = z[i - left].min(right - i);
        }
        while i + z[i] < n && reversed(z[i]) == reversed(i + z[i]) {
            z[i] += 1;
        }
        if i + z[i] > right {
            (left, right) = (i, i + z[i]);
        }
    }
    z
}
