//! Infill sampling: for a text between others, which is short and often ends at once.

use super::filters::{best_first, total};
use std::fmt::Debug;
use std::sync::Arc;

/// Largest [`top_k`](super::SamplingParams::top_k) with infill sampling, which compares all candidates with
/// each other.
pub(super) const MOST_CANDIDATES: usize = 1000;
/// The end is certain enough if its probability times this, times the number of candidates, exceeds that
/// of all texts.
const END_WEIGHT: f64 = 3.0;
/// Least probability of a text that is not given up for the end.
const LEAST: f64 = 0.2;

/// The bytes of tokens.
pub trait TokenTexts: Debug + Send + Sync {
    /// Returns the bytes of a token; none for a control token.
    fn bytes(&self, token: u32) -> &[u8];
}

/// Infill sampling, as llama.cpp has it (ggml-org/llama.cpp#9896). It ends the output unless a text is likely,
/// and joins tokens that begin alike.
#[derive(Clone, Debug)]
pub struct Infill {
    /// The bytes of the model's tokens.
    pub texts: Arc<dyn TokenTexts>,
    /// Tokens that end the output. The first one that is allowed is chosen where no text is likely.
    pub end_tokens: Vec<u32>,
}

impl Infill {
    /// Keeps likely texts, or the end alone. At least one token stays, and the list is sorted by id. Tokens
    /// whose logit is −∞ are not allowed.
    pub(super) fn keep(&self, list: &mut Vec<(u32, f32)>, logits: &[f32]) {
        let is_end = |&(token, _): &(u32, f32)| self.end_tokens.contains(&token);
        let all = total(list);
        let end: f64 = list.iter().filter(|entry| is_end(entry)).map(|e| f64::from(e.1)).sum();
        if END_WEIGHT * end * list.len() as f64 > all - end {
            return list.retain(is_end);
        }
        list.sort_unstable_by(best_first);
        let best = list[0];
        self.join(list);
        let keep = |list: &mut Vec<(u32, f32)>, share: f64| {
            let least = share * total(list);
            list.retain(|entry| is_end(entry) || f64::from(entry.1) >= least);
        };
        keep(list, LEAST);
        let texts = list.iter().filter(|entry| !is_end(entry)).count();
        if texts == 0 {
            let allowed =
                |token: &&u32| logits.get(**token as usize).is_some_and(|&x| x > f32::NEG_INFINITY);
            let end = self.end_tokens.iter().find(allowed);
            *list = vec![end.map_or(best, |&token| (token, 1.0))];
            return;
        }
        keep(list, 1.0 / (texts + 1) as f64);
        list.sort_unstable_by_key(|entry| entry.0);
    }

    /// Adds the weight of a token to one that begins with it, or the other way around: the likelier one
    /// stays.
    fn join(&self, list: &mut Vec<(u32, f32)>) {
        for short in 0..list.len() {
            for long in 0..list.len() {
                let [bytes, longer] = [short, long].map(|i| self.texts.bytes(list[i].0));
                let open = short != long && list[short].1 > 0.0 && list[long].1 > 0.0;
                if !open || bytes.is_empty() || !longer.starts_with(bytes) {
                    continue;
                }
                let likelier_is_long = list[long].1 > list[short].1;
                let (to, from) = if likelier_is_long { (long, short) } else { (short, long) };
                list[to].1 += std::mem::take(&mut list[from].1);
            }
        }
        list.retain(|entry| entry.1 > 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Words(&'static [&'static str]);

    impl TokenTexts for Words {
        fn bytes(&self, token: u32) -> &[u8] {
            self.0[token as usize].as_bytes()
        }
    }

    /// Returns the ids of candidates that stay. Token 0 is the end.
    fn kept(words: &'static [&'static str], weights: &[f32]) -> Vec<u32> {
        let infill = Infill { texts: Arc::new(Words(words)), end_tokens: vec![0] };
        let mut list: Vec<(u32, f32)> = (0..).zip(weights.iter().copied()).collect();
        list.retain(|entry| entry.1 > 0.0);
        let logits: Vec<f32> = weights.iter().map(|weight| weight.ln()).collect();
        infill.keep(&mut list, &logits);
        list.iter().map(|entry| entry.0).collect()
    }

    #[test]
    fn likely_texts_stay_and_others_end_the_output() {
        let words = &["", "re", "return", "x", "y"];
        assert_eq!(kept(words, &[0.2, 0.5, 0.3]), [0], "3 · 0.2 · 3 > 0.8");
        assert_eq!(kept(words, &[0.001, 0.1, 0.6, 0.19]), [0, 2], "the joined one");
        assert_eq!(kept(words, &[0.001, 0.14, 0.09, 0.4, 0.369]), [0, 3, 4], "a quarter is needed");
        let letters = &["", "a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(kept(letters, &[0.001, 0.14, 0.14, 0.14, 0.14, 0.14, 0.14, 0.159]), [0]);
        let allowed_alone = kept(letters, &[0.0, 0.14, 0.14, 0.14, 0.14, 0.14, 0.14, 0.16]);
        assert_eq!(allowed_alone, [7], "a grammar forbids the end");
    }
}
