//! Reasoning before a constrained output, and its budget.

use super::{Constraint, Next, TokenTexts};
use std::sync::Arc;
use std::time::Duration;

/// Tokens around the reasoning of an output.
#[derive(Clone, Debug)]
pub struct ReasoningTokens {
    /// Tokens of the opening marker, if the output may begin with it. `None` if the output begins inside
    /// the reasoning.
    pub open: Option<Vec<u32>>,
    /// Tokens of the closing marker.
    pub close: Vec<u32>,
    /// Tokens before and after the marker, as the model's template writes it.
    pub around: [Vec<u32>; 2],
    /// End-of-text tokens. They cannot come inside the reasoning if a constraint describes the answer.
    pub eos: Vec<u32>,
    /// The texts of the markers, where a marker is several tokens: a model may cut it in other ways.
    pub texts: Option<MarkerTexts>,
}

/// The texts of markers that are not tokens of their own.
#[derive(Clone, Debug)]
pub struct MarkerTexts {
    /// Text of the opening marker.
    open: &'static str,
    /// Text of the closing marker.
    close: &'static str,
    /// The bytes of the model's tokens.
    tokens: Arc<dyn TokenTexts>,
    /// Tokens that have the closing marker and more than line breaks after it.
    overrunning: Arc<[u32]>,
    /// The same without the first bytes of the marker, by their number less one.
    completing: Arc<[Vec<u32>]>,
}

/// Ids of a model's tokens by their place in a closing marker.
#[derive(Clone, Debug)]
pub struct ClosingTokens {
    /// Tokens that have the whole marker.
    pub whole: Arc<[u32]>,
    /// Tokens that begin with the rest of the marker, by the number of bytes before it, from one on.
    pub rests: Vec<Arc<[u32]>>,
}

/// Most tokens of white space before an opening marker.
const MOST_SPACE: usize = 64;

impl MarkerTexts {
    /// Makes the texts of a model. `closing` are the tokens in question, of the closing marker.
    #[must_use]
    pub fn new(
        [open, close]: [&'static str; 2],
        tokens: Arc<dyn TokenTexts>,
        closing: &ClosingTokens,
    ) -> Self {
        let overruns = |token: &u32| {
            let bytes = tokens.bytes(*token);
            let mut parts = bytes.windows(close.len());
            let at = parts.position(|part| part == close.as_bytes());
            at.is_some_and(|at| goes_on(&bytes[at + close.len()..]))
        };
        let overrunning = closing.whole.iter().copied().filter(overruns).collect();
        let completing = closing.rests.iter().zip(1..).map(|(begun, n)| {
            let completes = |token: &u32| {
                let rest = tokens.bytes(*token).strip_prefix(&close.as_bytes()[n..]);
                rest.is_some_and(goes_on)
            };
            begun.iter().copied().filter(completes).collect()
        });
        let completing = completing.collect();
        Self { open, close, tokens, overrunning, completing }
    }

    /// Returns the bytes after the closing marker if the last of these tokens completes it.
    fn closed_by(&self, accepted: &[(u32, Phase)]) -> Option<Vec<u8>> {
        let close = self.close.as_bytes();
        let (text, last) = self.end(accepted, close.len());
        let begins = text.windows(close.len()).position(|part| part == close)?;
        let end = begins + close.len();
        (end + last > text.len()).then(|| text[end..].to_vec())
    }

    /// Returns the end of the text of the reasoning that the last of these tokens ends, with at least
    /// `more` bytes before it, and the number of bytes of the last token.
    fn end(&self, accepted: &[(u32, Phase)], more: usize) -> (Vec<u8>, usize) {
        let inside = |(_, phase): &&(u32, Phase)| matches!(phase, Phase::Reasoning(_));
        let last = accepted.last().map_or(0, |(token, _)| self.tokens.bytes(*token).len());
        let (mut pieces, mut length) = (Vec::new(), 0);
        for (token, _) in accepted.iter().rev().take_while(inside) {
            let bytes = self.tokens.bytes(*token);
            length += bytes.len();
            pieces.push(bytes);
            if length >= last + more {
                break;
            }
        }
        pieces.reverse();
        (pieces.concat(), last)
    }

    /// Returns the tokens that would complete the closing marker and go on with an answer, of which a
    /// constraint could not see the beginning.
    fn overrunning(&self, accepted: &[(u32, Phase)]) -> Vec<u32> {
        let close = self.close.as_bytes();
        let (text, _) = self.end(accepted, close.len());
        let mut all = self.overrunning.to_vec();
        for (tokens, n) in self.completing.iter().zip(1..) {
            if text.ends_with(&close[..n]) {
                all.extend(tokens);
            }
        }
        all
    }
}

/// Returns true if a text after the closing marker is more than line breaks.
fn goes_on(rest: &[u8]) -> bool {
    rest.iter().any(|&byte| byte != b'\n')
}

/// Lets a model reason freely before the output that another constraint describes. After a number of
/// tokens it closes the reasoning, and the model answers.
///
/// ```
/// use wrinklefree::decode::{Constraint, Next, ReasoningConstraint, ReasoningTokens};
///
/// let around = [vec![], vec![5]];
/// let tokens = ReasoningTokens { open: None, close: vec![9], around, eos: vec![], texts: None };
/// let any = Next::Except(vec![]);
/// let mut constraint = ReasoningConstraint::new(tokens, Some(2), None);
/// for free in [1, 2] {
///     assert_eq!(constraint.next(), any);
///     constraint.accept(free);
/// }
/// for closing in [9, 5] {
///     assert_eq!(constraint.next(), Next::Tokens(vec![1 << closing]));
///     constraint.accept(closing);
/// }
/// assert_eq!(constraint.next(), any);
/// ```
#[derive(Clone, Debug)]
pub struct ReasoningConstraint {
    tokens: ReasoningTokens,
    /// Most tokens of the reasoning, without its markers.
    budget: usize,
    /// Constraint of the answer.
    answer: Option<Box<dyn Constraint>>,
    /// Tokens accepted before the answer, and the phase before each of them.
    accepted: Vec<(u32, Phase)>,
    phase: Phase,
    /// Number of tokens of the answer.
    answered: usize,
}

/// Every token.
const ANY: Next = Next::Except(Vec::new());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The opening marker may come.
    Start,
    /// The token of this index of the opening marker comes next.
    Opening(usize),
    /// Inside the reasoning, after so many of its tokens.
    Reasoning(usize),
    /// The token of this index among the closing tokens comes next.
    Closing(usize),
    Answer,
}

impl ReasoningConstraint {
    /// Makes the constraint of an output whose answer follows `answer`, or is free.
    #[must_use]
    pub fn new(
        tokens: ReasoningTokens,
        budget: Option<usize>,
        answer: Option<Box<dyn Constraint>>,
    ) -> Self {
        let budget = budget.unwrap_or(usize::MAX);
        let (accepted, phase) = (Vec::new(), Phase::Start);
        let mut constraint = Self { tokens, budget, answer, accepted, phase, answered: 0 };
        constraint.phase = constraint.first_phase();
        constraint
    }

    fn first_phase(&self) -> Phase {
        if self.tokens.open.is_some() { Phase::Start } else { self.reasoning(0) }
    }

    /// The phase after `count` tokens of reasoning.
    fn reasoning(&self, count: usize) -> Phase {
        if count < self.budget { Phase::Reasoning(count) } else { Phase::Closing(0) }
    }

    /// Returns the closing token of an index.
    fn closing(&self, index: usize) -> Option<u32> {
        let [before, after] = &self.tokens.around;
        before.iter().chain(&self.tokens.close).chain(after).nth(index).copied()
    }

    /// True if the last tokens are the closing marker.
    fn closes(&self) -> bool {
        if let Some(texts) = &self.tokens.texts {
            return texts.closed_by(&self.accepted).is_some();
        }
        let close = &self.tokens.close;
        let Some(from) = self.accepted.len().checked_sub(close.len()) else { return false };
        self.accepted[from..].iter().map(|(token, _)| token).eq(close)
    }

    /// The phase after the last accepted token, which came in `phase`.
    fn after(&self, phase: Phase) -> Phase {
        match phase {
            Phase::Start if self.free_texts().is_some() => self.after_free_start(),
            Phase::Start => self.opening_from(1),
            Phase::Opening(index) => self.opening_from(index + 1),
            // A token may end the marker and the line breaks after it.
            Phase::Reasoning(_) if self.closes() && self.ends_gap() => Phase::Answer,
            // A grammar does not know what stands between marker and answer.
            Phase::Reasoning(_) if self.closes() && self.answer.is_some() => {
                self.closing_from(self.tokens.around[0].len() + self.tokens.close.len())
            }
            Phase::Reasoning(_) if self.closes() => Phase::Answer,
            Phase::Reasoning(count) => self.reasoning(count + 1),
            Phase::Closing(index) => self.closing_from(index + 1),
            Phase::Answer => Phase::Answer,
        }
    }

    /// True if the last token has more than the closing marker.
    fn ends_gap(&self) -> bool {
        let texts = self.tokens.texts.as_ref();
        texts.and_then(|t| t.closed_by(&self.accepted)).is_some_and(|rest| !rest.is_empty())
    }

    /// Returns the texts of markers where nothing restricts the answer, so that the output may begin with
    /// the opening marker in any form.
    fn free_texts(&self) -> Option<&MarkerTexts> {
        let cut = self.tokens.open.as_ref().is_some_and(|open| open.len() > 1);
        self.tokens.texts.as_ref().filter(|_| cut && self.answer.is_none())
    }

    /// The phase of a free output that may begin with the opening marker.
    fn after_free_start(&self) -> Phase {
        let Some(texts) = self.free_texts() else { return Phase::Answer };
        let text = self.accepted.iter().map(|(token, _)| texts.tokens.bytes(*token));
        let text = text.collect::<Vec<_>>().concat();
        let (text, open) = (text.trim_ascii_start(), texts.open.as_bytes());
        match text {
            text if text.starts_with(open) => self.reasoning(0),
            text if open.starts_with(text) && self.accepted.len() < MOST_SPACE => Phase::Start,
            _ => Phase::Answer,
        }
    }

    fn opening_from(&self, index: usize) -> Phase {
        let token = self.tokens.open.as_ref().and_then(|open| open.get(index));
        token.map_or_else(|| self.reasoning(0), |_| Phase::Opening(index))
    }

    /// True if this first token begins the opening marker. One of several tokens that may also begin an
    /// answer does not.
    fn opens(&mut self, token: u32) -> bool {
        let Some(open) = &self.tokens.open else { return false };
        let alone = open.len() == 1;
        open.first() == Some(&token) && (alone || !self.answer_allows(token))
    }

    fn answer_allows(&mut self, token: u32) -> bool {
        match self.answer.as_mut().map(|answer| answer.next()) {
            None => true,
            Some(Next::Tokens(set)) => {
                set.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
            }
            Some(Next::Except(tokens)) => !tokens.contains(&token),
            Some(Next::End | Next::Unknown(_)) => false,
        }
    }

    fn closing_from(&self, index: usize) -> Phase {
        self.closing(index).map_or(Phase::Answer, |_| Phase::Closing(index))
    }

    /// Returns the tokens that may come next, where the answer allows `next`.
    fn next_with(&self, mut next: Next) -> Next {
        match self.phase {
            Phase::Reasoning(_) if self.answer.is_some() => {
                let texts = self.tokens.texts.as_ref();
                let more = texts.map(|texts| texts.overrunning(&self.accepted)).unwrap_or_default();
                Next::Except([&self.tokens.eos[..], &more].concat())
            }
            Phase::Reasoning(_) => ANY,
            Phase::Answer => next,
            Phase::Closing(index) => only(self.closing(index)),
            Phase::Opening(index) => {
                only(self.tokens.open.as_ref().and_then(|open| open.get(index)).copied())
            }
            Phase::Start => {
                let open = self.tokens.open.as_ref().and_then(|open| open.first());
                if let (Next::Tokens(set), Some(open)) = (&mut next, open) {
                    insert(set, *open);
                }
                next
            }
        }
    }
}

/// Allows one token.
fn only(token: Option<u32>) -> Next {
    let mut set = Vec::new();
    token.inspect(|&token| insert(&mut set, token));
    Next::Tokens(set)
}

/// Adds a token to a set; see [`Next::Tokens`].
fn insert(set: &mut Vec<u32>, token: u32) {
    let word = token as usize / 32;
    set.resize(set.len().max(word + 1), 0);
    set[word] |= 1 << (token % 32);
}

impl Constraint for ReasoningConstraint {
    fn next(&mut self) -> Next {
        let next = match (self.phase, &mut self.answer) {
            (Phase::Start | Phase::Answer, Some(answer)) => answer.next(),
            _ => ANY,
        };
        self.next_with(next)
    }

    fn accept(&mut self, token: u32) {
        if self.phase == Phase::Start && self.free_texts().is_none() && !self.opens(token) {
            self.phase = Phase::Answer;
        }
        if self.phase == Phase::Answer {
            self.answered += 1;
            self.answer.iter_mut().for_each(|answer| answer.accept(token));
        } else {
            self.accepted.push((token, self.phase));
            self.phase = self.after(self.phase);
        }
    }

    fn rewind(&mut self, tokens: usize) {
        let of_answer = tokens.min(self.answered);
        self.answered -= of_answer;
        self.answer.iter_mut().for_each(|answer| answer.rewind(of_answer));
        for _ in of_answer..tokens {
            if let Some((_, phase)) = self.accepted.pop() {
                self.phase = phase;
            }
        }
        if self.answered == 0 && self.accepted.is_empty() {
            self.phase = self.first_phase();
        }
    }

    fn poll(&mut self, budget: &mut Duration) -> Option<Next> {
        let next = match (self.phase, &mut self.answer) {
            (Phase::Start | Phase::Answer, Some(answer)) => answer.poll(budget)?,
            _ => ANY,
        };
        Some(self.next_with(next))
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of the tokens 20, 21, 22.
    #[derive(Clone, Debug)]
    struct Count(u32);

    impl Constraint for Count {
        fn next(&mut self) -> Next {
            if self.0 == 3 { Next::End } else { Next::Tokens(vec![1 << (20 + self.0)]) }
        }
        fn accept(&mut self, token: u32) {
            assert_eq!(token, 20 + self.0);
            self.0 += 1;
        }
        fn rewind(&mut self, tokens: usize) {
            self.0 -= tokens as u32;
        }
        fn boxed_clone(&self) -> Box<dyn Constraint> {
            Box::new(self.clone())
        }
    }

    fn constraint(open: Option<u32>, budget: Option<usize>, answers: bool) -> ReasoningConstraint {
        let tokens = ReasoningTokens {
            open: open.map(|open| vec![open]),
            close: vec![8, 9],
            around: [vec![4], vec![5, 6]],
            eos: vec![3],
            texts: None,
        };
        let answer = answers.then(|| Box::new(Count(0)) as Box<dyn Constraint>);
        ReasoningConstraint::new(tokens, budget, answer)
    }

    /// Accepts tokens that must be allowed; with `only` nothing else may be.
    fn accept(constraint: &mut ReasoningConstraint, tokens: &[u32], only: bool) {
        for &token in tokens {
            match constraint.next() {
                Next::Except(not) => assert!(!only && !not.contains(&token), "{token}"),
                Next::Tokens(set) => {
                    assert!(set[token as usize / 32] >> (token % 32) & 1 == 1, "{token}");
                    let count: u32 = set.iter().map(|word| word.count_ones()).sum();
                    assert!(!only || count == 1, "{token}");
                }
                other => panic!("{other:?} at {token}"),
            }
            constraint.accept(token);
        }
    }

    #[test]
    fn a_budget_closes_the_reasoning() {
        for answers in [false, true] {
            let mut c = constraint(None, Some(3), answers);
            accept(&mut c, &[1, 8, 1], false);
            accept(&mut c, &[4, 8, 9, 5, 6], true);
            if answers {
                accept(&mut c, &[20, 21, 22], true);
                assert_eq!(c.next(), Next::End);
            } else {
                assert_eq!(c.next(), ANY);
            }
        }
        accept(&mut constraint(None, Some(0), true), &[4, 8, 9, 5, 6, 20], true);
        let mut c = constraint(Some(7), Some(0), true);
        accept(&mut c, &[7], false);
        accept(&mut c, &[4, 8, 9, 5, 6, 20], true);
    }

    #[test]
    fn the_answer_follows_its_grammar() {
        let mut c = constraint(None, None, true);
        assert_eq!(c.next(), Next::Except(vec![3]), "the text cannot end without an answer");
        accept(&mut c, &[1, 2, 4, 8, 9], false);
        accept(&mut c, &[5, 6, 20, 21, 22], true);
        assert_eq!(c.next(), Next::End);
        let mut c = constraint(Some(7), None, true);
        accept(&mut c, &[20], false);
        accept(&mut c, &[21, 22], true);
    }

    #[test]
    fn it_can_be_rewound() {
        let texts: [(Option<u32>, usize, &[u32]); 3] = [
            (Some(7), 4, &[7, 1, 2, 8, 9, 5, 6, 20, 21]),
            (Some(7), 4, &[20, 21, 22]),
            (None, 3, &[1, 2, 7, 4, 8, 9, 5, 6, 20]),
        ];
        for (open, budget, text) in texts {
            for to in 0..text.len() {
                let mut c = constraint(open, Some(budget), true);
                accept(&mut c, text, false);
                c.rewind(text.len() - to);
                let mut fresh = constraint(open, Some(budget), true);
                accept(&mut fresh, &text[..to], false);
                assert_eq!(format!("{c:?}"), format!("{fresh:?}"), "{text:?} {to}");
                accept(&mut c, &text[to..], false);
            }
        }
    }

    /// Tokens of a letter or more each.
    #[derive(Debug)]
    struct Words;

    /// From 1 on; 20 to 22 are the answer.
    const WORDS: [&str; 23] = [
        "", "a", "<", "</", "\n", "\n\n", "t>", "</t", ">", ">\n\n", ">x", "<t", "<t>", "", "", "",
        "", "", "", "", "A", "B", "C",
    ];

    impl TokenTexts for Words {
        fn bytes(&self, token: u32) -> &[u8] {
            WORDS[token as usize].as_bytes()
        }
    }

    /// Markers `<t>` and `</t>` without tokens of their own.
    fn cut(open: bool, budget: Option<usize>, answers: bool) -> ReasoningConstraint {
        let find = |fits: &dyn Fn(&str) -> bool| {
            (0u32..).zip(WORDS).filter(|(_, word)| fits(word)).map(|(token, _)| token).collect()
        };
        let rests = (1..4).map(|n| find(&|word| word.starts_with(&"</t>"[n..]))).collect();
        let closing = ClosingTokens { whole: find(&|word| word.contains("</t>")), rests };
        let texts = MarkerTexts::new(["<t>", "</t>"], Arc::new(Words), &closing);
        let tokens = ReasoningTokens {
            open: open.then(|| vec![2, 6]),
            close: vec![3, 6],
            around: [vec![4], vec![5]],
            eos: vec![13],
            texts: Some(texts),
        };
        let answer = answers.then(|| Box::new(Count(0)) as Box<dyn Constraint>);
        ReasoningConstraint::new(tokens, budget, answer)
    }

    #[test]
    fn markers_may_be_cut_in_any_way() {
        for closing in [&[3, 6][..], &[2, 1, 7, 8], &[7, 8], &[7, 7, 8]] {
            let mut c = cut(false, None, true);
            accept(&mut c, &[1, 4], false);
            accept(&mut c, closing, false);
            accept(&mut c, &[5, 20, 21, 22], true);
            assert_eq!(c.next(), Next::End);
        }
        // The line breaks after a marker may be in its last token, but no answer.
        let mut c = cut(false, None, true);
        accept(&mut c, &[1, 7], false);
        assert_eq!(c.next(), Next::Except(vec![13, 10]));
        accept(&mut c, &[9], false);
        accept(&mut c, &[20, 21], true);
        let mut c = cut(false, Some(2), true);
        accept(&mut c, &[1, 1], false);
        accept(&mut c, &[4, 3, 6, 5, 20], true);
    }

    #[test]
    fn outputs_may_begin_with_a_marker_of_several_tokens() {
        let mut c = cut(true, None, true);
        accept(&mut c, &[2], false);
        accept(&mut c, &[6], true);
        accept(&mut c, &[1, 3, 6], false);
        accept(&mut c, &[5, 20], true);
        accept(&mut cut(true, None, true), &[20, 21], false);
        for opening in [&[12][..], &[11, 8], &[4, 2, 6], &[2, 6]] {
            let mut c = cut(true, Some(1), false);
            accept(&mut c, opening, false);
            accept(&mut c, &[1], false);
            accept(&mut c, &[4, 3, 6, 5], true);
            assert_eq!(c.next(), ANY);
        }
        let mut c = cut(true, Some(0), false);
        accept(&mut c, &[2, 1, 1, 1], false);
        assert_eq!(c.next(), ANY);
    }

    #[test]
    fn cut_markers_can_be_rewound() {
        let texts: [(bool, bool, &[u32]); 4] = [
            (false, true, &[1, 7, 9, 20, 21]),
            (true, true, &[2, 6, 1, 3, 6, 5, 20]),
            (true, false, &[11, 8, 1, 7, 8, 1, 1]),
            (true, false, &[2, 1, 1]),
        ];
        for (open, answers, text) in texts {
            for to in 0..text.len() {
                let mut c = cut(open, Some(9), answers);
                accept(&mut c, text, false);
                c.rewind(text.len() - to);
                let mut fresh = cut(open, Some(9), answers);
                accept(&mut fresh, &text[..to], false);
                assert_eq!(format!("{c:?}"), format!("{fresh:?}"), "{text:?} {to}");
            }
        }
    }
}
