//! What an output may be: a grammar, one token at a time.

use std::fmt::Debug;

/// Says which tokens may come next in one text.
pub trait Constraint: Debug + Send + Sync {
    /// What may come after the tokens accepted so far.
    fn next(&mut self) -> Next;

    /// Takes a token that may come next.
    fn accept(&mut self, token: u32);

    /// Forgets the last so many tokens.
    fn rewind(&mut self, tokens: usize);

    /// The same for another text.
    fn boxed_clone(&self) -> Box<dyn Constraint>;
}

impl Clone for Box<dyn Constraint> {
    fn clone(&self) -> Self {
        self.as_ref().boxed_clone()
    }
}

/// What may come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The tokens of this set, of which there is at least one: token t is bit t % 32 of word t / 32.
    Tokens(Vec<u32>),
    /// Nothing: the text is complete.
    End,
    /// Nobody knows: the grammar has become too complex, for this reason.
    Unknown(String),
}

/// A constraint under way.
#[derive(Clone, Debug)]
pub(super) struct Guide {
    constraint: Box<dyn Constraint>,
    next: Next,
}

impl Guide {
    pub fn new(mut constraint: Box<dyn Constraint>) -> Self {
        let next = constraint.next();
        Self { constraint, next }
    }

    pub fn next(&self) -> &Next {
        &self.next
    }

    pub fn accept(&mut self, token: u32) {
        self.constraint.accept(token);
        self.next = self.constraint.next();
    }

    pub fn rewind(&mut self, tokens: usize) {
        self.constraint.rewind(tokens);
        self.next = self.constraint.next();
    }

    /// Leaves only what may come next. Where biases have banned all of that, each is as good as the
    /// others: the grammar holds in any case.
    pub fn restrict(&self, logits: &mut [f32]) {
        let Next::Tokens(set) = &self.next else { return };
        let may =
            |token: usize| set.get(token / 32).is_some_and(|word| word >> (token % 32) & 1 == 1);
        let mut left = false;
        for (token, logit) in logits.iter_mut().enumerate() {
            if may(token) {
                left |= *logit > f32::NEG_INFINITY;
            } else {
                *logit = f32::NEG_INFINITY;
            }
        }
        if !left {
            let all = logits.iter_mut().enumerate();
            all.filter(|(token, _)| may(*token)).for_each(|(_, logit)| *logit = 0.0);
        }
    }
}
