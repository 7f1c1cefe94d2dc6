//! Reasoning before a constrained output, and its budget.

use super::{Constraint, Next};
use std::time::Duration;

/// Tokens around the reasoning of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasoningTokens {
    /// Token that begins the reasoning, if the output may begin with it. `None` if the output begins
    /// inside the reasoning.
    pub open: Option<u32>,
    /// Tokens of the closing marker.
    pub close: Vec<u32>,
    /// Tokens before and after the marker, as the model's template writes it.
    pub around: [Vec<u32>; 2],
    /// End-of-text tokens. They cannot come inside the reasoning if a constraint describes the answer.
    pub eos: Vec<u32>,
}

/// Lets a model reason freely before the output that another constraint describes. Behind a number of
/// tokens it closes the reasoning, and the model answers.
///
/// ```
/// use wrinklefree::decode::{Constraint, Next, ReasoningConstraint, ReasoningTokens};
///
/// let around = [vec![], vec![5]];
/// let tokens = ReasoningTokens { open: None, close: vec![9], around, eos: vec![] };
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
    /// Inside the reasoning, behind so many of its tokens.
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

    /// The phase behind `count` tokens of reasoning.
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
        let close = &self.tokens.close;
        let Some(from) = self.accepted.len().checked_sub(close.len()) else { return false };
        self.accepted[from..].iter().map(|(token, _)| token).eq(close)
    }

    /// The phase behind the last accepted token, which came in `phase`.
    fn after(&self, phase: Phase) -> Phase {
        match phase {
            Phase::Start => self.reasoning(0),
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

    fn closing_from(&self, index: usize) -> Phase {
        self.closing(index).map_or(Phase::Answer, |_| Phase::Closing(index))
    }

    /// Returns the tokens that may come next, where the answer allows `next`.
    fn next_with(&self, mut next: Next) -> Next {
        match self.phase {
            Phase::Reasoning(_) if self.answer.is_some() => Next::Except(self.tokens.eos.clone()),
            Phase::Reasoning(_) => ANY,
            Phase::Answer => next,
            Phase::Closing(index) => {
                let mut set = Vec::new();
                self.closing(index).inspect(|&token| insert(&mut set, token));
                Next::Tokens(set)
            }
            Phase::Start => {
                if let (Next::Tokens(set), Some(open)) = (&mut next, self.tokens.open) {
                    insert(set, open);
                }
                next
            }
        }
    }
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
        if self.phase == Phase::Start && self.tokens.open != Some(token) {
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
            open,
            close: vec![8, 9],
            around: [vec![4], vec![5, 6]],
            eos: vec![3],
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
}
